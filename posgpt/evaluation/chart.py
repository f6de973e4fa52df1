"""The chart of a report."""

import textwrap
from collections.abc import Sequence
from typing import Any

from posgpt.evaluation.predictions import Prediction, split_into_groups
from posgpt.plots import BLUE, GREY, LIGHT_BLUE, ORANGE, make_figure


def draw_chart(figures: dict[str, Any], predictions: Sequence[Prediction], unseen: dict[str, list[Prediction]]) -> Any:
    """Return a figure: accuracies, reliability, risk and coverage, and confidence of what is known and what is not."""
    figure, ((bars, reliability), (selective, known)) = make_figure(11, 7.6, rows=2, columns=2)
    draw_accuracies(bars, figures)
    draw_reliability(reliability, figures)
    draw_selection(selective, figures["selective"], figures.get("worth"))
    draw_confidences(known, (split_into_groups(predictions) or {"all": list(predictions)}) | unseen)
    return figure


def draw_accuracies(axes: Any, figures: dict[str, Any]) -> None:
    """Draw bars of the model's accuracy, with its interval, and the baselines'."""
    accuracies = {"PosGPT": figures["accuracy"], **figures["baselines"]}
    percent = [100 * accuracy for accuracy in accuracies.values()]
    labels = [textwrap.fill(name, 22) for name in accuracies]
    bars = axes.barh(labels, percent, color=[BLUE] + [GREY] * len(figures["baselines"]))
    low, high = (100 * value for value in figures["accuracy_interval"])
    axes.errorbar(percent[:1], [0], xerr=[[percent[0] - low], [high - percent[0]]], color="black", capsize=3)
    axes.bar_label(bars, fmt="%.1f %%", padding=16)
    axes.invert_yaxis()
    axes.set(xlim=(0, 118), xlabel=f"accuracy on {figures['total']} questions (%)", title="Right answers")


def draw_reliability(axes: Any, figures: dict[str, Any]) -> None:
    """Draw accuracy over confidence, before and after temperature scaling."""
    axes.plot([0, 1], [0, 1], color=GREY, linestyle="--")
    curves = [("before", 1.0, ORANGE), ("after", figures["temperature"], BLUE)]
    for key, temperature, color in curves if figures["temperature"] != 1 else curves[:1]:
        bins, ece = figures["calibration"][key]["bins"], figures["calibration"][key]["ece"]
        points = [row["confidence"] for row in bins], [row["accuracy"] for row in bins]
        axes.plot(*points, color=color, label=f"temperature {temperature:.2f}: ECE {ece:.3f}")
        sizes = [4 + 200 * row["count"] / figures["total"] for row in bins]
        axes.scatter(*points, s=sizes, color=color, clip_on=False)
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="confidence", ylabel="share right", title="Reliability")
    axes.legend(loc="upper left", fontsize="small")


def draw_selection(axes: Any, selective: dict[str, Any], worth: dict[str, Any] | None) -> None:
    """Draw risk over coverage, and the threshold; with `worth`, also for questions of which some are about unseen names."""
    curves = {"questions of the test": (selective, BLUE)}
    if worth:
        curves[f"{worth['unseen_share']:.0%} unseen names among them"] = (worth, GREY)
    for label, (curve, color) in curves.items():
        risk = [100 * value for value in curve["risk"]]
        axes.plot(curve["coverage"], risk, color=color, drawstyle="steps-post", label=label)
    if worth:
        axes.legend(loc="upper left", fontsize="small")
    if selective["abstain_below"] is not None:
        axes.axvline(selective["answered"], color=ORANGE, linestyle="--")
        axes.annotate(
            f"“I don't know” below {selective['abstain_below']:.2f}", (selective["answered"], 0.97),
            xycoords=("data", "axes fraction"), ha="right", va="top", rotation=90, color=ORANGE,
        )  # fmt: skip
    axes.set(xlim=(0, 1), ylim=(0, None), xlabel="share of the questions answered, the surest first")
    axes.set(ylabel="of which wrong (%)", title="Answering only when sure")


def draw_confidences(axes: Any, kinds: dict[str, list[Prediction]]) -> None:
    """Draw box plots of the confidence in each group."""
    axes.boxplot(
        [[prediction.confidence for prediction in of_kind] for of_kind in kinds.values()],
        tick_labels=[textwrap.fill(f"{kind} ({len(of_kind)})", 22) for kind, of_kind in kinds.items()],
        orientation="horizontal",
        patch_artist=True,
        widths=0.6,
        boxprops={"facecolor": LIGHT_BLUE},
        flierprops={"markersize": 2},
    )
    axes.invert_yaxis()
    axes.set(xlim=(0, 1.02), xlabel="confidence", title="Known and not known")
