"""How far a model's confidence can be trusted: calibration, and answering only when sure.

A confidence is the probability of the given answer among all candidates, softmax(log P / T). The temperature T (Guo et al.
2017, arXiv 1706.04599) is fitted on questions held out from training: every model is sure of what it has memorized.
"""

from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import softmax
from scipy.stats import binomtest
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score


def compare_paired(right_a: np.ndarray, right_b: np.ndarray) -> float:
    """Return the p-value of two models being right equally often on the same questions (McNemar 1947, the exact test).

    Args:
        right_a, right_b: (questions,) booleans.
    """
    only_a, only_b = int((right_a & ~right_b).sum()), int((right_b & ~right_a).sum())
    return float(binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0


def measure_confidence(scores: np.ndarray, chosen: np.ndarray, temperature: float = 1.0) -> dict[str, np.ndarray]:
    """Measure how sure the model is of each answer.

    Args:
        scores: (questions, candidates), log P of each candidate, -inf where it is impossible.
        chosen: (questions,) the index of the answer given.

    Returns:
        Three measures, each (questions,): the `probability` of the answer among the candidates, 0 to 1; the `margin`, how
        much that is above the probability of the best other candidate; the `entropy` of the probabilities of all
        candidates, in nats, lowest when surest.
    """
    probabilities = softmax(scores / temperature, axis=1)
    rows = np.arange(len(scores))
    others = probabilities.copy()
    others[rows, chosen] = 0
    logs = np.log(probabilities, out=np.zeros_like(probabilities), where=probabilities > 0)
    return {
        "probability": probabilities[rows, chosen],
        "margin": probabilities[rows, chosen] - others.max(axis=1),
        "entropy": -(probabilities * logs).sum(axis=1),
    }


def fit_temperature(scores: np.ndarray, chosen: np.ndarray, right: np.ndarray) -> float:
    """Return the temperature, 0.05 to 20, at which the confidences give these outcomes the highest likelihood.

    Args:
        scores, chosen: As for `measure_confidence`, on questions held out from training.
        right: (questions,) booleans.
    """

    def compute_loss(log_temperature: float) -> float:
        confidence = measure_confidence(scores, chosen, np.exp(log_temperature))["probability"]
        return log_loss(right, confidence, labels=[False, True])

    return float(np.exp(minimize_scalar(compute_loss, bounds=np.log([0.05, 20]), method="bounded").x))


def compute_calibration(confidence: np.ndarray, right: np.ndarray, bins: int = 10) -> dict[str, Any]:
    """Compare confidence, (answers,) from 0 to 1, with which answers are right, (answers,) booleans.

    Returns:
        `brier`, the mean squared difference of confidence and outcome (Brier 1950); `bins` of equal width that have
        answers in them: mean `confidence`, `accuracy` and `count`; `ece`, the expected calibration error (Naeini et al.
        2015): the difference of a bin's confidence and accuracy, averaged over all answers.
    """
    which = np.minimum((confidence * bins).astype(int), bins - 1)
    table = []
    for number in np.unique(which):
        sure, correct = confidence[which == number], right[which == number]
        table.append({"confidence": float(sure.mean()), "accuracy": float(correct.mean()), "count": len(sure)})
    ece = sum(row["count"] * abs(row["confidence"] - row["accuracy"]) for row in table) / len(right)
    return {"brier": float(brier_score_loss(right, confidence)), "ece": ece, "bins": table}


def compute_auroc(confidence: np.ndarray, right: np.ndarray) -> float | None:
    """Return how often a right answer has more confidence than a wrong one; None when all are right, or none is."""
    return float(roc_auc_score(right, confidence)) if 0 < right.sum() < len(right) else None


def count_answered(confidence: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Count the answers at and above each confidence that occurs, the highest first.

    Args:
        right: (answers,) booleans, or what each answer is worth.

    Returns:
        The confidences, how many answers have at least that confidence, and how many of these are right or what they are
        worth together.
    """
    order = np.argsort(-confidence, kind="stable")
    last_of_equals = np.append(np.diff(confidence[order]) != 0, True)
    answered = np.arange(1, len(order) + 1)
    return confidence[order][last_of_equals], answered[last_of_equals], np.cumsum(right[order])[last_of_equals]


def compute_risk_coverage(confidence: np.ndarray, right: np.ndarray) -> dict[str, Any]:
    """Compute the share of wrong answers when only the surest are given (El-Yaniv and Wiener 2010), equals together.

    Returns:
        The points of the curve, `coverage`, the share answered, and `risk`, the share of these that is wrong; and
        `accuracy_at_half`, the share of right answers among the surest half.
    """
    _, answered, correct = count_answered(confidence, right)
    coverage, risk = answered / len(right), (answered - correct) / answered
    half = int(np.searchsorted(coverage, 0.5))
    return {"coverage": coverage.tolist(), "risk": risk.tolist(), "accuracy_at_half": float(1 - risk[half])}


def compute_worth(confidence: np.ndarray, gains: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sum what answering brings at and above each confidence that occurs, the highest first.

    Args:
        gains: (answers,) what each answer is worth: positive if it is right, negative if it is wrong.

    Returns:
        The thresholds and the sum at each; the first threshold is infinite, where nothing is answered.
    """
    thresholds, _, sums = count_answered(confidence, gains)
    return np.append(np.inf, thresholds), np.append(0.0, sums)


def find_threshold(precision: float, confidence: np.ndarray, right: np.ndarray) -> float | None:
    """Return the lowest confidence at and above which the share of right answers is at least `precision`, None if none is."""
    thresholds, answered, correct = count_answered(confidence, right)
    precise = np.flatnonzero(correct / answered >= precision)
    return float(thresholds[precise[-1]]) if len(precise) else None
