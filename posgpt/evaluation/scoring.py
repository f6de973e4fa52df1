"""What makes an answer correct, and every metric of an evaluation: each is one function in the table `METRICS`.

A confidence is the probability that a model gives its answer, rescaled by a temperature (Guo et al. 2017, arXiv 1706.04599) that is
fitted on questions held out from training: every model is sure of what it has memorized. scikit-learn and scipy are imported where
they are used: an accuracy needs neither.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, log2, sqrt
from statistics import NormalDist, fmean
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from posgpt.evaluation.evidence import normalize_answer
from posgpt.evaluation.predictions import Prediction
from posgpt.tables import format_table

# Answers that everyone gets, by their names in `metrics.json`, and what their rows in tables are called.
BASELINES = {"baseline": '"{}" for everyone', "majority_answer": '"{}", the most frequent training answer'}


def match_exactly(predictions: Sequence[Any], references: Sequence[Any]) -> np.ndarray:
    """Return (predictions,) booleans: whether each text, or tuple, is its reference, or one of several."""
    pairs = zip(predictions, references, strict=True)
    return np.array([each in right if isinstance(right, list) else each == right for each, right in pairs], dtype=bool)


class Proportion(NamedTuple):
    """How many answers are correct, of `total`, at least 1, and how many titles these are about."""

    correct: int
    total: int
    titles: int

    @property
    def accuracy(self) -> float:
        """The share of correct answers, 0 to 1."""
        return self.correct / self.total

    @property
    def interval(self) -> tuple[float, float]:
        """The accuracy's 95 % interval (Wilson 1927), 0 to 1: over titles, for what is known of one goes together."""
        # scipy's takes whole numbers of correct titles alone.
        z = NormalDist().inv_cdf(0.975)

        def find_lower_end(share: float) -> float:
            spread = z * sqrt(z * z + 4 * self.titles * share * (1 - share))
            return (2 * self.titles * share + z * z - spread) / (2 * (self.titles + z * z))

        return find_lower_end(self.accuracy), 1 - find_lower_end(1 - self.accuracy)

    def format_interval(self) -> str:
        """Return the interval such as `87.1% to 92.3%`."""
        return " to ".join(f"{end:.1%}" for end in self.interval)


def find_title(prediction: Prediction) -> str:
    """Return whom or what a question asks about: itself, where that is not known."""
    return prediction.question if prediction.title is None else prediction.title


def match_references(predictions: Sequence[Prediction]) -> np.ndarray:
    """Return (predictions,) booleans: whether each answer is exactly one of its references."""
    return match_exactly([each.answer for each in predictions], [each.references for each in predictions])


def count_correct(predictions: Sequence[Prediction]) -> Proportion:
    """Return how many of the predictions, of which there is at least one, are correct."""
    correct = match_references(predictions)
    return Proportion(int(correct.sum()), len(correct), len(set(map(find_title, predictions))))


def find_baselines(answer: str = "", training_answers: Sequence[str] = ()) -> dict[str, str]:
    """Return a relation's own answer, unless it is empty, and the most frequent of training, unless there is none."""
    frequent, _ = next(iter(Counter(training_answers).most_common(1)), ("", 0))
    return {name: each for name, each in zip(BASELINES, (answer, frequent), strict=True) if each}


def compute_recall(predictions: Sequence[Prediction]) -> float | None:
    """Return the share of a question's references among as many of the likeliest answers, averaged over questions with several."""
    shares = []
    for each in predictions:
        right = set(each.references)
        if len(right) > 1 and each.alternatives is not None:
            known = each.alternatives | {each.answer: inf if each.probability is None else each.probability}
            likeliest = sorted(known, key=known.__getitem__, reverse=True)[: len(right)]
            shares.append(len(right.intersection(likeliest)) / len(right))
    return fmean(shares) if shares else None


def measure_accuracy(
    predictions: Sequence[Prediction], baselines: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the accuracy of predictions with references, and of `BASELINES`' answers, as entries of `metrics.json`."""
    references = [each.references for each in predictions]
    share = count_correct(predictions)
    metrics = share._asdict() | {"accuracy": share.accuracy, "accuracy_interval": list(share.interval)}
    metrics |= {"majority_accuracy": None, "recall": compute_recall(predictions), "wordings": {}, "baselines": {}}
    for name, answer in baselines.items():
        accuracy = float(match_exactly([answer] * len(references), references).mean())
        metrics |= {name: answer, f"{name.removesuffix('_answer')}_accuracy": accuracy}
        metrics["baselines"][BASELINES[name].format(answer)] = accuracy
    return metrics


def list_accuracies(metrics: Mapping[str, Any], name: str, asked: str = "{}, asked {}") -> dict[str, Proportion]:
    """Return a relation's rows in tables and charts, other wordings as `asked` says; a baseline of the same name has the answers' row."""
    shares = {name: metrics} | {asked.format(name, wording): share for wording, share in metrics["wordings"].items()}
    rows = {row: Proportion(share["correct"], share["total"], share["titles"]) for row, share in shares.items()}
    total, titles = metrics["total"], metrics["titles"]
    for row, accuracy in metrics["baselines"].items():
        rows[row] = Proportion(round(accuracy * total), total, titles)
    return rows


def format_accuracies(relations: Mapping[str, Mapping[str, Any]], name: str) -> str:
    """Return the Markdown table of an evaluation: `list_accuracies` of each relation."""
    rows = [
        (relation, row_name, f"{share.accuracy:.1%}", share.format_interval(), f"{share.correct} of {share.total}")
        for relation, metrics in relations.items()
        for row_name, share in list_accuracies(metrics, name).items()
    ]
    return format_table(("relation", "answers by", "accuracy", "95 % interval", "correct"), rows)


@dataclass(frozen=True)
class ScoredQuestions:
    """Predictions, how sure of each their model is, and whether that is enough to answer.

    Args:
        predictions: `correct` needs a reference in each, `confidence` a probability.
        temperature: 1 where there was nothing to fit it on.
        abstain_below: The confidence below which the answer is `I don't know`; None: it always answers.
    """

    predictions: list[Prediction]
    temperature: float = 1.0
    abstain_below: float | None = None

    def __len__(self) -> int:
        return len(self.predictions)

    @cached_property
    def correct(self) -> np.ndarray:
        """(predictions,) booleans."""
        return match_references(self.predictions)

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
    """Return the temperature, 0.05 to 20, at which the confidences give these outcomes the highest likelihood."""
    from scipy.optimize import minimize_scalar
    from sklearn.metrics import log_loss

    def compute_loss(log_temperature: float) -> float:
        return log_loss(correct, rescale(probability, np.exp(log_temperature)), labels=[False, True])

    return float(np.exp(minimize_scalar(compute_loss, bounds=np.log([0.05, 20]), method="bounded").x))


def count_answered(scored: ScoredQuestions) -> tuple[np.ndarray, np.ndarray]:
    """Return how many answers have at least each confidence that occurs, the highest first, and how many of these are correct."""
    order = np.argsort(-scored.confidence, kind="stable")
    last_of_equals = np.append(np.diff(scored.confidence[order]) != 0, True)
    return np.arange(1, len(order) + 1)[last_of_equals], np.cumsum(scored.correct[order])[last_of_equals]


def compute_bins(scored: ScoredQuestions, bins: int = 10) -> np.ndarray:
    """Return (3, those of `bins` equal ranges of confidence that have answers): mean confidence, accuracy and number of answers."""
    which = np.minimum((scored.confidence * bins).astype(int), bins - 1)
    members = [which == number for number in np.unique(which)]
    return np.array([(scored.confidence[each].mean(), scored.correct[each].mean(), each.sum()) for each in members]).T


def compare_paired(one: ScoredQuestions, other: ScoredQuestions) -> float:
    """Return the p-value of two models being correct on the same questions equally often.

    It is the exact sign test over titles, of which each is the first's, the second's or nobody's, by more correct answers. Where each
    is asked about once, this is McNemar's (1947).
    """
    from scipy.stats import binomtest

    _, number = np.unique([*map(find_title, one.predictions)], return_inverse=True)
    more = np.bincount(number, one.correct.astype(int) - other.correct)
    ahead, behind = int((more > 0).sum()), int((more < 0).sum())
    return float(binomtest(ahead, ahead + behind).pvalue) if ahead + behind else 1.0


def _lenient_accuracy(scored: ScoredQuestions) -> float:
    answers = [normalize_answer(each.answer) for each in scored.predictions]
    references = [list(map(normalize_answer, each.references)) for each in scored.predictions]
    return float(match_exactly(answers, references).mean())


def compute_auroc(confidence: np.ndarray, correct: np.ndarray) -> float | None:
    """Return how often a correct answer has more confidence than a wrong one; None when all are correct, or none is."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(correct, confidence)) if 0 < correct.sum() < len(correct) else None


def _calibration_error(scored: ScoredQuestions) -> float:
    """Naeini et al. 2015: the difference of a bin's confidence and accuracy, averaged over all answers."""
    confidence, accuracy, count = compute_bins(scored)
    return float((count * abs(confidence - accuracy)).sum() / len(scored))


def _accuracy_at_half_coverage(scored: ScoredQuestions) -> float:
    """El-Yaniv and Wiener 2010: of the surest half of the answers; equals are answered together."""
    answered, correct = count_answered(scored)
    half = int(np.searchsorted(answered / len(scored), 0.5))
    return float(correct[half] / answered[half])


def _accuracy_of_answered(scored: ScoredQuestions) -> float | None:
    has_some = scored.abstain_below is not None and scored.is_sure.any()
    return float(scored.correct[scored.is_sure].mean()) if has_some else None


def _stored_bits(scored: ScoredQuestions) -> float | None:
    """How many bits fewer the references surprise a model than one that knows a relation's answers by their frequency alone.

    It is the bound of Allen-Zhu and Li 2024 (arXiv 2404.05405, def. 4.3) for one value, with these frequencies as its prior.
    """
    # Of several references, each counts as a part of an answer.
    counts: Counter[tuple[str, str]] = Counter()
    for each in scored.predictions:
        counts.update({(each.relation, answer): 1 / len(each.references) for answer in each.references})
    totals = Counter(each.relation for each in scored.predictions)
    bits = []
    for each in scored.predictions:
        if each.surprisal is None:
            return None
        prior = sum(counts[each.relation, answer] for answer in set(each.references)) / totals[each.relation]
        bits.append(-log2(prior) - each.surprisal)
    return fmean(bits)


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
    "recall": Metric(
        "recall of all correct answers",
        ".1%",
        lambda scored: compute_recall(scored.predictions),
        needs_confidence=False,
    ),
    "stored_bits": Metric("bits stored per answer", ".2f", _stored_bits, needs_confidence=False),
    "auroc": Metric("AUROC", ".3f", lambda scored: compute_auroc(scored.confidence, scored.correct)),
    "ece": Metric("calibration error", ".3f", _calibration_error),
    # Brier 1950: the mean squared difference of confidence and outcome.
    "brier": Metric("Brier score", ".3f", lambda scored: float(((scored.confidence - scored.correct) ** 2).mean())),
    "accuracy_at_50_coverage": Metric("accuracy at 50 % coverage", ".1%", _accuracy_at_half_coverage),
    "answered": Metric(
        "answered", ".1%", lambda scored: None if scored.abstain_below is None else float(scored.is_sure.mean())
    ),
    "precision": Metric("accuracy of the answered", ".1%", _accuracy_of_answered),
}


def measure(scored: ScoredQuestions) -> dict[str, float | None]:
    """Return the value of each of `METRICS`; None for those of confidence where there are no probabilities."""
    known = {name: metric for name, metric in METRICS.items() if scored.has_confidence or not metric.needs_confidence}
    return dict.fromkeys(METRICS) | {name: metric.compute(scored) for name, metric in known.items()}


def format_metrics(scored: ScoredQuestions) -> dict[str, str]:
    """Return those of `METRICS` that have a value, as tables show them, by their labels."""
    shown = {name: value for name, value in measure(scored).items() if value is not None}
    return {METRICS[name].label: format(value, METRICS[name].form) for name, value in shown.items()}
