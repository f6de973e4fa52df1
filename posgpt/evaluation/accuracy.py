"""Accuracies of whoever answers and of the two baselines that give everyone the same answer."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import Any, NamedTuple

from posgpt.evaluation.exact_match import match_exactly
from posgpt.tables import format_table


class Share(NamedTuple):
    """How many answers are right.

    Args:
        correct: The right answers.
        total: All answers, at least 1.
    """

    correct: int
    total: int

    @property
    def accuracy(self) -> float:
        """The share of right answers, 0 to 1."""
        return self.correct / self.total

    @property
    def interval(self) -> tuple[float, float]:
        """The accuracy's 95 % interval (Wilson 1927), 0 to 1."""
        z, wrong = NormalDist().inv_cdf(0.975), self.total - self.correct
        center, width = self.correct + z**2 / 2, z * sqrt(self.correct * wrong / self.total + z**2 / 4)
        low, high = (center - width) / (self.total + z**2), (center + width) / (self.total + z**2)
        # Where none or all are right, it ends at the accuracy itself, which rounding may miss.
        return max(0.0, min(low, self.accuracy)), min(1.0, max(high, self.accuracy))

    def format_interval(self) -> str:
        """Return the interval such as `87.1% to 92.3%`."""
        low, high = self.interval
        return f"{low:.1%} to {high:.1%}"

    def to_metrics(self) -> dict[str, Any]:
        """Return the entries of `metrics.json`."""
        return {
            "accuracy": self.accuracy,
            "correct": self.correct,
            "total": self.total,
            "accuracy_interval": self.interval,
        }


def count_right(predictions: Sequence[str], references: Sequence[str]) -> Share:
    """Return how many of the predictions are exactly their references, of which there is at least one."""
    return Share(int(match_exactly(predictions, references).sum()), len(references))


class SameAnswer(NamedTuple):
    """An answer that is given to everyone, and how often it is right."""

    answer: str
    share: Share


def describe_constant(answer: str) -> str:
    """Return the name of the row in which everyone gets the same answer."""
    return f'"{answer}" for everyone'


def describe_majority(answer: str) -> str:
    """Return the name of the row in which everyone gets the most frequent training answer."""
    return f'"{answer}", the most frequent training answer'


@dataclass(frozen=True)
class Accuracies:
    """Accuracies on the same questions.

    Args:
        given: Of the answers that were given.
        baseline: Of the relation's baseline, e.g. London; None if it has none.
        majority: Of the most frequent training answer; None without a training file.
    """

    given: Share
    baseline: SameAnswer | None
    majority: SameAnswer | None

    @property
    def baselines(self) -> dict[str, Share]:
        """The rows in which everyone gets the same answer, by their names."""
        rows = {}
        if self.baseline:
            rows[describe_constant(self.baseline.answer)] = self.baseline.share
        if self.majority:
            rows[describe_majority(self.majority.answer)] = self.majority.share
        return rows

    def list_rows(self, name: str) -> dict[str, Share]:
        """Return the rows of the table of an evaluation; `name` is that of the model's row, or of the constant answer's.

        If that is the relation's baseline itself, it has one row.
        """
        return {name: self.given} | self.baselines

    def to_metrics(self) -> dict[str, Any]:
        """Return the entries of `metrics.json`."""
        metrics = self.given.to_metrics() | {"majority_accuracy": None}
        if self.baseline:
            metrics |= {"baseline": self.baseline.answer, "baseline_accuracy": self.baseline.share.accuracy}
        if self.majority:
            metrics |= {"majority_accuracy": self.majority.share.accuracy, "majority_answer": self.majority.answer}
        return metrics


def format_accuracies(accuracies: Mapping[str, Accuracies], name: str) -> str:
    """Return the Markdown table of an evaluation.

    Args:
        accuracies: By relation.
        name: What the rows of the given answers are called.
    """
    rows = [
        (relation, row_name, f"{share.accuracy:.1%}", share.format_interval(), f"{share.correct} of {share.total}")
        for relation, measured in accuracies.items()
        for row_name, share in measured.list_rows(name).items()
    ]
    return format_table(("relation", "answers by", "accuracy", "95 % interval", "right"), rows)


def measure_accuracies(
    predictions: Sequence[str], references: Sequence[str], baseline: str, training_answers: Sequence[str]
) -> Accuracies:
    """Compare the answers that were given, and the baselines', with the right ones.

    Args:
        baseline: The relation's baseline; empty if it has none.
        training_answers: Empty without a training file.
    """

    def measure_answer(answer: str) -> SameAnswer:
        return SameAnswer(answer, count_right([answer] * len(references), references))

    most_frequent = Counter(training_answers).most_common(1)
    return Accuracies(
        given=count_right(predictions, references),
        baseline=measure_answer(baseline) if baseline else None,
        majority=measure_answer(most_frequent[0][0]) if most_frequent else None,
    )
