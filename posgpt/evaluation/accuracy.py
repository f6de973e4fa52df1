"""Accuracies of whoever answers and of the two baselines that give everyone the same answer."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import sqrt
from statistics import NormalDist
from typing import Any

import evaluate

from data_scripts.relations import BIRTHPLACE

METRIC = files("posgpt") / "evaluation" / "metrics" / "birthplace_accuracy"


def describe_constant(answer: str) -> str:
    """Return the name of the row in which everyone gets the same answer."""
    return f'"{answer}" for everyone'


def describe_majority(answer: str) -> str:
    """Return the name of the row in which everyone gets the most frequent training answer."""
    return f'"{answer}", the most frequent training answer'


def compute_accuracy(predictions: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """Return the exact-match `accuracy` of `predictions`, 0 to 1, and the counts `correct` and `total` behind it."""
    return evaluate.load(str(METRIC)).compute(predictions=predictions, references=references)


def compute_wilson_interval(right: int, total: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson 1927), 0 to 1."""
    z, share = NormalDist().inv_cdf(0.975), right / total
    center, width = right + z**2 / 2, z * sqrt(right * (total - right) / total + z**2 / 4)
    low, high = (center - width) / (total + z**2), (center + width) / (total + z**2)
    # Where none or all are right, it ends at the share itself, which rounding may miss.
    return max(0.0, min(low, share)), min(1.0, max(high, share))


def format_share(row: dict[str, Any]) -> tuple[str, str, str]:
    """Return accuracy, 95 % interval and counts, of what `compute_accuracy` returns, as cells of a table."""
    low, high = compute_wilson_interval(row["correct"], row["total"])
    return f"{row['accuracy']:.1%}", f"{low:.1%} to {high:.1%}", f"{row['correct']} of {row['total']}"


@dataclass(frozen=True)
class Accuracies:
    """Accuracies on the same questions, as `compute_accuracy` returns them.

    Args:
        given: The accuracy of the answers that were given.
        usual: The accuracy of the relation's baseline, e.g. London, which is its `answer`; None if it has none.
        majority: The accuracy of the most frequent training answer, its `answer`; None without a training file.
    """

    given: dict[str, Any]
    usual: dict[str, Any] | None
    majority: dict[str, Any] | None

    def list_rows(self, name: str = "PosGPT") -> dict[str, dict[str, Any]]:
        """Return the rows of the table that an evaluation prints, `name` being who answered.

        If that is the relation's baseline itself, it has one row.
        """
        rows = {name: self.given}
        if self.usual:
            rows[describe_constant(self.usual["answer"])] = self.usual
        if self.majority:
            rows[describe_majority(self.majority["answer"])] = self.majority
        return rows

    def to_metrics(self) -> dict[str, Any]:
        """Return the entries of `metrics.json`."""
        metrics = {**self.given, "majority_accuracy": None}
        if self.usual:
            metrics |= {"baseline": self.usual["answer"], "baseline_accuracy": self.usual["accuracy"]}
            if self.usual["answer"] == BIRTHPLACE.baseline:
                metrics["london_accuracy"] = self.usual["accuracy"]
        if self.majority:
            metrics |= {"majority_accuracy": self.majority["accuracy"], "majority_answer": self.majority["answer"]}
        return metrics


def measure_accuracies(
    predictions: Sequence[str], references: Sequence[str], usual_answer: str, training_answers: Sequence[str]
) -> Accuracies:
    """Compare the answers that were given, and the baselines', with the right ones.

    Args:
        usual_answer: The relation's baseline; empty if it has none.
        training_answers: Empty without a training file.
    """

    def measure_baseline(answer: str) -> dict[str, Any]:
        return {"answer": answer, **compute_accuracy([answer] * len(references), references)}

    given = compute_accuracy(predictions, references)
    usual = measure_baseline(usual_answer) if usual_answer else None
    most_frequent = Counter(training_answers).most_common(1)
    return Accuracies(given, usual, measure_baseline(most_frequent[0][0]) if most_frequent else None)
