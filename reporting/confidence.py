"""How far a model's confidence can be trusted: calibration, and answering only when sure.

A confidence is the probability of the given answer among all candidates, softmax(log P / T). The temperature T (Guo et al.
2017, arXiv 1706.04599) is fitted on people held out from training: on what was learnt by heart every model is sure.
"""

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import softmax
from scipy.stats import binomtest
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score


def wilson_interval(right: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927), 0 to 1."""
    interval = binomtest(right, total).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)


def mcnemar(right_a: np.ndarray, right_b: np.ndarray) -> float:
    """The p-value of two models being equally often right on the same questions (McNemar 1947, the exact test).

    Args:
        right_a, right_b: (questions,) booleans.
    """
    only_a, only_b = int((right_a & ~right_b).sum()), int((right_b & ~right_a).sum())
    return float(binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0


def confidences(scores: np.ndarray, chosen: np.ndarray, temperature: float = 1.0) -> dict[str, np.ndarray]:
    """Three measures of how sure the model is of each answer.

    Args:
        scores: (questions, candidates), log P of each candidate, -inf where it is impossible.
        chosen: (questions,) the index of the answer given.

    Returns:
        `probability`: of the answer among the candidates, 0 to 1; `margin`: how much it is above the best other
        candidate; `entropy` of all candidates in nats, least when surest. Each (questions,).
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
    """The temperature, 0.05 to 20, whose confidences are the likeliest, given which answers are right.

    Args:
        scores, chosen: As for `confidences`, on questions held out from training.
        right: (questions,) booleans.
    """

    def loss(log_temperature: float) -> float:
        return log_loss(
            right, confidences(scores, chosen, np.exp(log_temperature))["probability"], labels=[False, True]
        )

    return float(np.exp(minimize_scalar(loss, bounds=np.log([0.05, 20]), method="bounded").x))


def calibration(confidence: np.ndarray, right: np.ndarray, bins: int = 10) -> dict:
    """How well confidence says how often the answers are right.

    Returns:
        `brier`: the mean squared difference of confidence and outcome; `ece`: the expected calibration error, the mean
        over all answers of the difference of confidence and accuracy in each one's bin (Naeini et al. 2015); `bins`, with
        answers in them: mean `confidence`, `accuracy` and `count`.
    """
    which = np.minimum((confidence * bins).astype(int), bins - 1)
    table = [
        {
            "confidence": float(confidence[which == number].mean()),
            "accuracy": float(right[which == number].mean()),
            "count": int((which == number).sum()),
        }
        for number in np.unique(which)
    ]
    ece = sum(row["count"] * abs(row["confidence"] - row["accuracy"]) for row in table) / len(right)
    return {"brier": float(brier_score_loss(right, confidence)), "ece": ece, "bins": table}


def separation(confidence: np.ndarray, right: np.ndarray) -> float | None:
    """AUROC: how often a right answer has more confidence than a wrong one; None when all are right, or none is."""
    return float(roc_auc_score(right, confidence)) if 0 < right.sum() < len(right) else None


def risk_coverage(confidence: np.ndarray, right: np.ndarray) -> dict:
    """What is wrong of what is answered, when only the surest are (El-Yaniv and Wiener 2010).

    Answers of equal confidence are answered together.

    Returns:
        `coverage` and `risk`, lists that belong together, and `accuracy_at_half`, of the surest half.
    """
    order = np.argsort(-confidence, kind="stable")
    answered = np.arange(1, len(order) + 1)
    wrong = np.cumsum(~right[order])
    last_of_equals = np.append(np.diff(confidence[order]) != 0, True)
    coverage, risk = (answered / len(order))[last_of_equals], (wrong / answered)[last_of_equals]
    half = int(np.searchsorted(coverage, 0.5))
    return {"coverage": coverage.tolist(), "risk": risk.tolist(), "accuracy_at_half": float(1 - risk[half])}


def threshold_for(precision: float, confidence: np.ndarray, right: np.ndarray) -> float | None:
    """The least confidence from which on the share of right answers is at least `precision`; None when there is none."""
    order = np.argsort(-confidence, kind="stable")
    share = np.cumsum(right[order]) / np.arange(1, len(order) + 1)
    last_of_equals = np.append(np.diff(confidence[order]) != 0, True)
    enough = np.flatnonzero(last_of_equals & (share >= precision))
    return float(confidence[order[enough[-1]]]) if len(enough) else None
