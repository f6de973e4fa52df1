"""The chart of a report."""

import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np

from posgpt.evaluation.predictions import is_wording
from posgpt.evaluation.scoring import ScoredQuestions, compute_bins, count_answered, list_accuracies, measure
from posgpt.plots import BLUE, GREY, LIGHT_BLUE, ORANGE, make_figure

# Whoever gave the answers.
MODEL = "the model"


def draw_chart(
    test: ScoredQuestions, confidences: Mapping[str, np.ndarray], relations: Mapping[str, Mapping[str, Any]]
) -> Any:
    """Return a figure: accuracies, and where probabilities are known reliability, risk and coverage, and confidences."""
    if not test.has_confidence:
        figure, bars = make_figure(5.5, 3.8)
        draw_accuracies(bars, relations)
        return figure
    figure, ((bars, reliability), (selective, known)) = make_figure(11, 7.6, rows=2, columns=2)
    draw_accuracies(bars, relations)

    reliability.plot([0, 1], [0, 1], color=GREY, linestyle="--")
    for temperature in dict.fromkeys([1.0, test.temperature]):
        curve, color = ScoredQuestions(test.predictions, temperature), ORANGE if temperature == 1 else BLUE
        confidence, accuracy, count = compute_bins(curve)
        label = f"temperature {temperature:.2f}: ECE {measure(curve)['ece']:.3f}"
        reliability.plot(confidence, accuracy, color=color, label=label)
        reliability.scatter(confidence, accuracy, s=4 + 200 * count / len(test), color=color, clip_on=False)
    reliability.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="confidence", ylabel="share correct", title="Reliability")
    reliability.legend(loc="lower right", fontsize="small")

    # Risk over coverage (El-Yaniv and Wiener 2010), and the threshold.
    answered, correct = count_answered(test)
    selective.plot(answered / len(test), 100 * (1 - correct / answered), color=BLUE, drawstyle="steps-post")
    if test.abstain_below is not None:
        selective.axvline(test.is_sure.mean(), color=ORANGE, linestyle="--")
        selective.annotate(
            f"“I don’t know” below {test.abstain_below:.2f}", (test.is_sure.mean(), 0.97),
            xycoords=("data", "axes fraction"), ha="right", va="top", rotation=90, color=ORANGE,
        )  # fmt: skip
    selective.set(xlim=(0, 1), ylim=(0, None), xlabel="share of the questions answered, the surest first")
    selective.set(ylabel="of which wrong (%)", title="Answering only when sure")

    labels = [textwrap.fill(f"{group} ({len(confidence)})", 22) for group, confidence in confidences.items()]
    known.boxplot(
        list(confidences.values()), tick_labels=labels, orientation="horizontal", patch_artist=True, widths=0.6,
        boxprops={"facecolor": LIGHT_BLUE}, flierprops={"markersize": 2},
    )  # fmt: skip
    known.invert_yaxis()
    known.set(xlim=(0, 1.02), xlabel="confidence", title="Known and not known")
    return figure


def draw_accuracies(axes: Any, relations: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw accuracies with their intervals: of one relation beside other wordings and baselines, of several beside each other."""
    of_each = {relation: list_accuracies(metrics, MODEL, asked="{1}") for relation, metrics in relations.items()}
    rows = next(iter(of_each.values()))
    if len(of_each) > 1:
        rows = {relation: shares[MODEL] for relation, shares in of_each.items()}
    percent = 100 * np.array([share.accuracy for share in rows.values()])
    low, high = 100 * np.array([share.interval for share in rows.values()]).T
    colors = BLUE if len(relations) > 1 else [BLUE if row == MODEL or is_wording(row) else GREY for row in rows]
    has_room = len(rows) <= 4
    labels = [textwrap.fill(row, 22) if has_room else row if len(row) <= 45 else f"{row[:44]}…" for row in rows]
    errors = [percent - low, high - percent]
    # Rows may be labelled alike.
    bars = axes.barh(range(len(rows)), percent, xerr=errors, capsize=3, color=colors)
    axes.set_yticks(range(len(rows)), labels)
    axes.bar_label(bars, [f"{value:.1f} %" for value in percent], padding=3)
    axes.tick_params(axis="y", labelsize="medium" if has_room else "small")
    axes.invert_yaxis()
    total = list(relations.values())[-1]["total"]
    axes.set(xlim=(0, 118), xlabel=f"accuracy on {total} questions (%)", title="Correct answers")
