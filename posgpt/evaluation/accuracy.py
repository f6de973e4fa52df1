"""Accuracies of whoever answers and of the two baselines that give everyone the same answer."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import Any

from posgpt.evaluation.exact_match import match_exactly


def describe_constant(answer: str) -> str:
    """Return the name of the row in which everyone gets the same answer."""
    return f'"{answer}" for everyone'


def describe_majority(answer: str) -> str:
    """Return the name of the row in which everyone gets the most frequent training answer."""
    return f'"{answer}", the most frequent training answer'


def compute_accuracy(predictions: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """Return the exact-match `accuracy` of `predictions`, 0 to 1, and the counts `correct` and `total` behind it."""
    correct = int(match_exactly(predictions, references).sum())
    return {"accuracy": correct / len(references), "correct": correct, "total": len(references)}


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
        baseline: The accuracy of the relation's baseline, e.g. London, which is its `answer`; None if it has none.
        majority: The accuracy of the most frequent training answer, its `answer`; None without a training file.
    """

    given: dict[str, Any]
    baseline: dict[str, Any] | None
    majority: dict[str, Any] | None

    @property
    def baselines(self) -> dict[str, dict[str, Any]]:
        """The rows in which everyone gets the same answer, by their names."""
        rows = {}
        if self.baseline:
            rows[describe_constant(self.baseline["answer"])] = self.baseline
        if self.majority:
            rows[describe_majority(self.majority["answer"])] = self.majority
        return rows

    def list_rows(self, name: str = "PosGPT") -> dict[str, dict[str, Any]]:
        """Return the rows of the table that an evaluation prints; `name` is that of the model's row, or of the constant answer's.

        If that is the relation's baseline itself, it has one row.
        """
        return {name: self.given} | self.baselines

    def to_metrics(self) -> dict[str, Any]:
        """Return the entries of `metrics.json`."""
        metrics = describe_accuracy(self.given) | {"majority_accuracy": None}
        if self.baseline:
            metrics |= {"baseline": self.baseline["answer"], "baseline_accuracy": self.baseline["accuracy"]}
        if self.majority:
            metrics |= {"majority_accuracy": self.majority["accuracy"], "majority_answer": self.majority["answer"]}
        return metrics


def describe_accuracy(given: dict[str, Any]) -> dict[str, Any]:
    """Return what `compute_accuracy` returns with its 95 % interval, `accuracy_interval`."""
    return given | {"accuracy_interval": compute_wilson_interval(given["correct"], given["total"])}


def measure_accuracies(
    predictions: Sequence[str], references: Sequence[str], baseline: str, training_answers: Sequence[str]
) -> Accuracies:
    """Compare the answers that were given, and the baselines', with the right ones.

    Args:
        baseline: The relation's baseline; empty if it has none.
        training_answers: Empty without a training file.
    """

    def measure_answer(answer: str) -> dict[str, Any]:
        return {"answer": answer, **compute_accuracy([answer] * len(references), references)}

    most_frequent = Counter(training_answers).most_common(1)
    return Accuracies(
        given=compute_accuracy(predictions, references),
        baseline=measure_answer(baseline) if baseline else None,
        majority=measure_answer(most_frequent[0][0]) if most_frequent else None,
    )
