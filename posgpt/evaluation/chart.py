"""The chart of a report."""

import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np

from posgpt.evaluation.scoring import ScoredQuestions, compute_bins, count_answered, list_accuracies, measure
from posgpt.plots import BLUE, GREY, LIGHT_BLUE, ORANGE, make_figure


def draw_chart(
    test: ScoredQuestions, confidences: Mapping[str, np.ndarray], relations: Mapping[str, Mapping[str, Any]]
) -> Any:
    """Return a figure: accuracies, and where probabilities are known reliability, risk and coverage, and confidences.

    Args:
        confidences: Of each group of questions.
        relations: From `measure_accuracy`, by relation.
    """
    if not test.has_confidence:
        figure, bars = make_figure(5.5, 3.8)
        draw_accuracies(bars, relations)
        return figure
    figure, ((bars, reliability), (selective, known)) = make_figure(11, 7.6, rows=2, columns=2)
    draw_accuracies(bars, relations)
    draw_reliability(reliability, test)
    draw_selection(selective, test)
    draw_confidences(known, confidences)
    return figure


def draw_accuracies(axes: Any, relations: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw the accuracies with their intervals: of one relation beside its baselines, of several beside each other."""
    of_each = {relation: list_accuracies(metrics, "PosGPT") for relation, metrics in relations.items()}
    rows = next(iter(of_each.values()))
    if len(of_each) > 1:
        rows = {relation: shares["PosGPT"] for relation, shares in of_each.items()}
    percent = 100 * np.array([share.accuracy for share in rows.values()])
    low, high = 100 * np.array([share.interval for share in rows.values()]).T
    colors = BLUE if len(relations) > 1 else [BLUE, *[GREY] * (len(rows) - 1)]
    labels, errors = [textwrap.fill(name, 22) for name in rows], [percent - low, high - percent]
    bars = axes.barh(labels, percent, xerr=errors, capsize=3, color=colors)
    axes.bar_label(bars, [f"{value:.1f} %" for value in percent], padding=3)
    axes.invert_yaxis()
    total = list(relations.values())[-1]["total"]
    axes.set(xlim=(0, 118), xlabel=f"accuracy on {total} questions (%)", title="Correct answers")


def draw_reliability(axes: Any, scored: ScoredQuestions) -> None:
    """Draw accuracy over confidence, before and after temperature scaling."""
    axes.plot([0, 1], [0, 1], color=GREY, linestyle="--")
    curves = {1.0: ORANGE} | {scored.temperature: ORANGE if scored.temperature == 1 else BLUE}
    for temperature, color in curves.items():
        curve = ScoredQuestions(scored.predictions, temperature)
        bins = compute_bins(curve)
        points = [row["confidence"] for row in bins], [row["accuracy"] for row in bins]
        axes.plot(*points, color=color, label=f"temperature {temperature:.2f}: ECE {measure(curve)['ece']:.3f}")
        axes.scatter(*points, s=[4 + 200 * row["count"] / len(scored) for row in bins], color=color, clip_on=False)
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="confidence", ylabel="share correct", title="Reliability")
    axes.legend(loc="lower right", fontsize="small")


def draw_selection(axes: Any, scored: ScoredQuestions) -> None:
    """Draw risk over coverage (El-Yaniv and Wiener 2010), and the threshold."""
    _, answered, correct = count_answered(scored.confidence, scored.correct)
    axes.plot(answered / len(scored), 100 * (1 - correct / answered), color=BLUE, drawstyle="steps-post")
    if scored.abstain_below is not None:
        coverage = scored.is_sure.mean()
        axes.axvline(coverage, color=ORANGE, linestyle="--")
        axes.annotate(
            f"“I don't know” below {scored.abstain_below:.2f}", (coverage, 0.97), xycoords=("data", "axes fraction"),
            ha="right", va="top", rotation=90, color=ORANGE,
        )  # fmt: skip
    axes.set(xlim=(0, 1), ylim=(0, None), xlabel="share of the questions answered, the surest first")
    axes.set(ylabel="of which wrong (%)", title="Answering only when sure")


def draw_confidences(axes: Any, groups: Mapping[str, np.ndarray]) -> None:
    """Draw box plots of the confidence in each group."""
    axes.boxplot(
        list(groups.values()),
        tick_labels=[textwrap.fill(f"{group} ({len(confidence)})", 22) for group, confidence in groups.items()],
        orientation="horizontal",
        patch_artist=True,
        widths=0.6,
        boxprops={"facecolor": LIGHT_BLUE},
        flierprops={"markersize": 2},
    )
    axes.invert_yaxis()
    axes.set(xlim=(0, 1.02), xlabel="confidence", title="Known and not known")
