"""What makes an answer correct, and every metric of an evaluation: each is one function in the table `METRICS`.

A confidence is the probability that a model gives its answer, rescaled by a temperature (Guo et al. 2017, arXiv 1706.04599) that is
fitted on questions held out from training: every model is sure of what it has memorized. scikit-learn and scipy are imported where
they are used: an accuracy needs neither.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from posgpt.evaluation.evidence import normalize_answer
from posgpt.evaluation.predictions import Prediction
from posgpt.tables import format_table

# A threshold where even the surest answers fall short.
NEVER_SURE = 1.01


def match_exactly(predictions: Sequence[Any], references: Sequence[Any]) -> np.ndarray:
    """Return (predictions,) booleans: whether each is its reference, symbol for symbol, or one of a list of references.

    Args:
        predictions, references: Texts, or tuples of symbols.

    Raises:
        ValueError: there are not as many references as predictions.
    """
    pairs = zip(predictions, references, strict=True)
    return np.array([each in right if isinstance(right, list) else each == right for each, right in pairs], dtype=bool)


class Proportion(NamedTuple):
    """How many answers are correct.

    Args:
        total: All answers, at least 1.
    """

    correct: int
    total: int

    @property
    def accuracy(self) -> float:
        """The share of correct answers, 0 to 1."""
        return self.correct / self.total

    @property
    def interval(self) -> tuple[float, float]:
        """The accuracy's 95 % interval (Wilson 1927), 0 to 1."""
        z, wrong = NormalDist().inv_cdf(0.975), self.total - self.correct
        center, width = self.correct + z**2 / 2, z * sqrt(self.correct * wrong / self.total + z**2 / 4)
        low, high = (center - width) / (self.total + z**2), (center + width) / (self.total + z**2)
        # Where none or all are correct, it ends at the accuracy itself, which rounding may miss.
        return max(0.0, min(low, self.accuracy)), min(1.0, max(high, self.accuracy))

    def format_interval(self) -> str:
        """Return the interval such as `87.1% to 92.3%`."""
        return " to ".join(f"{end:.1%}" for end in self.interval)

    def to_metrics(self) -> dict[str, Any]:
        """Return the entries of `metrics.json`."""
        return self._asdict() | {"accuracy": self.accuracy, "accuracy_interval": list(self.interval)}


def count_correct(predictions: Sequence[Any], references: Sequence[Any]) -> Proportion:
    """Return how many of the predictions are exactly their references, of which there is at least one."""
    return Proportion(int(match_exactly(predictions, references).sum()), len(references))


def describe_constant(answer: str) -> str:
    """Return the name of the row in which everyone gets the same answer."""
    return f'"{answer}" for everyone'


def describe_majority(answer: str) -> str:
    """Return the name of the row in which everyone gets the most frequent training answer."""
    return f'"{answer}", the most frequent training answer'


class ConstantBaseline(NamedTuple):
    """An answer that is given to everyone, and what of it stands in `metrics.json` and in tables."""

    answer: str
    answer_key: str
    accuracy_key: str
    name: str


def list_baselines(answer: str = "", training_answers: Sequence[str] = ()) -> list[ConstantBaseline]:
    """Return a relation's baseline, unless it is empty, and the most frequent of the training answers, unless there are none."""
    frequent = Counter(training_answers).most_common(1)
    given = [ConstantBaseline(answer, "baseline", "baseline_accuracy", describe_constant(answer))] if answer else []
    return given + [
        ConstantBaseline(most, "majority_answer", "majority_accuracy", describe_majority(most)) for most, _ in frequent
    ]


def measure_accuracy(predictions: Sequence[Prediction], baselines: Sequence[ConstantBaseline] = ()) -> dict[str, Any]:
    """Return the accuracy of predictions with references, and of the baselines, as entries of `metrics.json`."""
    references = [each.references for each in predictions]
    metrics = count_correct([each.answer for each in predictions], references).to_metrics() | {
        "majority_accuracy": None
    }
    accuracies = {each: count_correct([each.answer] * len(references), references).accuracy for each in baselines}
    for each, accuracy in accuracies.items():
        metrics |= {each.answer_key: each.answer, each.accuracy_key: accuracy}
    return metrics | {"baselines": {each.name: accuracy for each, accuracy in accuracies.items()}}


def list_accuracies(metrics: Mapping[str, Any], name: str) -> dict[str, Proportion]:
    """Return the rows of one relation in tables and charts.

    Args:
        metrics: From `measure_accuracy`.
        name: What the row of the given answers is called; a baseline of the same name has that row.
    """
    total = metrics["total"]
    return {name: Proportion(metrics["correct"], total)} | {
        row: Proportion(round(accuracy * total), total) for row, accuracy in metrics["baselines"].items()
    }


def format_accuracies(relations: Mapping[str, Mapping[str, Any]], name: str) -> str:
    """Return the Markdown table of an evaluation.

    Args:
        relations: From `measure_accuracy`, by relation.
        name: What the rows of the given answers are called.
    """
    rows = [
        (relation, row_name, f"{share.accuracy:.1%}", share.format_interval(), f"{share.correct} of {share.total}")
        for relation, metrics in relations.items()
        for row_name, share in list_accuracies(metrics, name).items()
    ]
    return format_table(("relation", "answers by", "accuracy", "95 % interval", "right"), rows)


@dataclass(frozen=True)
class ScoredQuestions:
    """Predictions, how sure of each their model is, and whether that is enough to answer.

    Args:
        predictions: `correct` needs a reference in each, `confidence` a probability.
        temperature: 1 where there was nothing to fit it on.
        abstain_below: The confidence below which the answer is `I don't know`; None: it always answers.
        wrong_costs: What a wrong answer costs, where a correct one earns 1.
    """

    predictions: list[Prediction]
    temperature: float = 1.0
    abstain_below: float | None = None
    wrong_costs: float = 1.0

    def __len__(self) -> int:
        return len(self.predictions)

    @cached_property
    def correct(self) -> np.ndarray:
        """(predictions,) booleans."""
        return match_exactly(
            [each.answer for each in self.predictions], [each.references for each in self.predictions]
        )

    @cached_property
    def confidence(self) -> np.ndarray:
        """(predictions,), 0 to 1."""
        return rescale(np.array([each.probability for each in self.predictions], dtype=float), self.temperature)

    @property
    def has_confidence(self) -> bool:
        """Whether all probabilities are known."""
        return all(each.probability is not None for each in self.predictions)

    @property
    def is_sure(self) -> np.ndarray:
        """(predictions,) booleans: whether the confidence is enough to answer."""
        if self.abstain_below is None:
            return np.ones(len(self), dtype=bool)
        return self.confidence >= self.abstain_below


def rescale(probability: np.ndarray, temperature: float) -> np.ndarray:
    """Divide the log-odds of probabilities by a temperature."""
    if temperature == 1:
        return probability
    from scipy.special import expit, logit

    return expit(logit(probability.clip(1e-12, 1 - 1e-7)) / temperature)


def fit_temperature(probability: np.ndarray, correct: np.ndarray) -> float:
    """Return the temperature, 0.05 to 20, at which the confidences give these outcomes the highest likelihood.

    Args:
        probability: (questions,), 0 to 1, of answers to questions held out from training.
        correct: (questions,) booleans.
    """
    from scipy.optimize import minimize_scalar
    from sklearn.metrics import log_loss

    def compute_loss(log_temperature: float) -> float:
        return log_loss(correct, rescale(probability, np.exp(log_temperature)), labels=[False, True])

    return float(np.exp(minimize_scalar(compute_loss, bounds=np.log([0.05, 20]), method="bounded").x))


def count_answered(confidence: np.ndarray, correct: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the confidences that occur, the highest first, and how many answers have at least that, and are correct of these."""
    order = np.argsort(-confidence, kind="stable")
    last_of_equals = np.append(np.diff(confidence[order]) != 0, True)
    answered = np.arange(1, len(order) + 1)
    return confidence[order][last_of_equals], answered[last_of_equals], np.cumsum(correct[order])[last_of_equals]


def find_threshold(precision: float, confidence: np.ndarray, correct: np.ndarray) -> float:
    """Return the lowest confidence at and above which the share of correct answers is at least `precision`, or `NEVER_SURE`."""
    thresholds, answered, correct_so_far = count_answered(confidence, correct)
    precise = np.flatnonzero(correct_so_far / answered >= precision)
    return float(thresholds[precise[-1]]) if len(precise) else NEVER_SURE


def compute_bins(scored: ScoredQuestions, bins: int = 10) -> list[dict[str, float]]:
    """Return mean `confidence`, `accuracy` and `count` of those of `bins` equal ranges of confidence that have answers in them."""
    which = np.minimum((scored.confidence * bins).astype(int), bins - 1)
    return [
        {
            "confidence": float(scored.confidence[which == number].mean()),
            "accuracy": float(scored.correct[which == number].mean()),
            "count": int((which == number).sum()),
        }
        for number in np.unique(which)
    ]


def compare_paired(correct_a: np.ndarray, correct_b: np.ndarray) -> float:
    """Return the p-value of two models being correct equally often on the same questions (McNemar 1947, the exact test).

    Args:
        correct_a, correct_b: (questions,) booleans.
    """
    from scipy.stats import binomtest

    only_a, only_b = int((correct_a & ~correct_b).sum()), int((correct_b & ~correct_a).sum())
    return float(binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0


def _lenient_accuracy(scored: ScoredQuestions) -> float:
    answers = [normalize_answer(each.answer) for each in scored.predictions]
    return float(
        match_exactly(answers, [list(map(normalize_answer, each.references)) for each in scored.predictions]).mean()
    )


def compute_auroc(confidence: np.ndarray, correct: np.ndarray) -> float | None:
    """Return how often a correct answer has more confidence than a wrong one; None when all are correct, or none is."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(correct, confidence)) if 0 < correct.sum() < len(correct) else None


def _calibration_error(scored: ScoredQuestions) -> float:
    """Naeini et al. 2015: the difference of a bin's confidence and accuracy, averaged over all answers."""
    return sum(row["count"] * abs(row["confidence"] - row["accuracy"]) for row in compute_bins(scored)) / len(scored)


def _brier_score(scored: ScoredQuestions) -> float:
    """Brier 1950: the mean squared difference of confidence and outcome."""
    return float(((scored.confidence - scored.correct) ** 2).mean())


def _accuracy_at_half_coverage(scored: ScoredQuestions) -> float:
    """El-Yaniv and Wiener 2010: of the surest half of the answers; equals are answered together."""
    _, answered, correct = count_answered(scored.confidence, scored.correct)
    half = int(np.searchsorted(answered / len(scored), 0.5))
    return float(correct[half] / answered[half])


def _share_answered(scored: ScoredQuestions) -> float | None:
    return None if scored.abstain_below is None else float(scored.is_sure.mean())


def _accuracy_of_answered(scored: ScoredQuestions) -> float | None:
    has_some = scored.abstain_below is not None and scored.is_sure.any()
    return float(scored.correct[scored.is_sure].mean()) if has_some else None


def _utility(scored: ScoredQuestions) -> float:
    return float(np.where(scored.correct, 1.0, -scored.wrong_costs)[scored.is_sure].sum() / len(scored))


class Metric(NamedTuple):
    """A metric of a report: what tables call it, how they show it, and its function, which may find that it has no value."""

    label: str
    form: str
    compute: Callable[[ScoredQuestions], float | None]
    needs_confidence: bool = True


#: By their names in `metrics.json`. An entry here is all that a new metric needs.
METRICS = {
    "accuracy": Metric("accuracy", ".1%", lambda scored: float(scored.correct.mean()), needs_confidence=False),
    "lenient_accuracy": Metric("accuracy but for spelling", ".1%", _lenient_accuracy, needs_confidence=False),
    "auroc": Metric("AUROC", ".3f", lambda scored: compute_auroc(scored.confidence, scored.correct)),
    "ece": Metric("calibration error", ".3f", _calibration_error),
    "brier": Metric("Brier score", ".3f", _brier_score),
    "accuracy_at_50_coverage": Metric("accuracy at 50 % coverage", ".1%", _accuracy_at_half_coverage),
    "answered": Metric("answered", ".1%", _share_answered),
    "precision": Metric("accuracy of the answered", ".1%", _accuracy_of_answered),
    "utility": Metric("utility per question", ".3f", _utility),
}


def measure(scored: ScoredQuestions) -> dict[str, float | None]:
    """Return the value of each of `METRICS`; None for those of confidence where there are no probabilities."""
    known = {name: metric for name, metric in METRICS.items() if scored.has_confidence or not metric.needs_confidence}
    return dict.fromkeys(METRICS) | {name: metric.compute(scored) for name, metric in known.items()}


def format_metrics(scored: ScoredQuestions) -> dict[str, str]:
    """Return those of `METRICS` that have a value, as tables show them, by their labels."""
    shown = {name: value for name, value in measure(scored).items() if value is not None}
    return {METRICS[name].label: format(value, METRICS[name].form) for name, value in shown.items()}
