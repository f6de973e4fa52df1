"""All figures of a report."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Any

import numpy as np
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import extractOne

from posgpt.evaluation.accuracy import Accuracies, count_right
from posgpt.evaluation.answerers import AskedGroup
from posgpt.evaluation.confidence import (
    compute_auroc,
    compute_calibration,
    compute_risk_coverage,
    count_answered,
    measure_confidence,
)
from posgpt.evaluation.data import EvaluationData
from posgpt.evaluation.predictions import Calibration, Prediction, Utility, split_into_groups

COMMONEST = 5  # how many of the commonest training answers a guess may fall on
MOST_ANSWERS = 50  # how many right answers have a row of their own


def compute_figures(
    test: AskedGroup,
    predictions: Sequence[Prediction],
    unseen: dict[str, list[Prediction]],
    calibration: Calibration,
    data: EvaluationData,
    accuracies: Accuracies,
) -> dict[str, Any]:
    """Compute what a report adds to `metrics.json`. Shares, confidences and AUROCs are from 0 to 1.

    Args:
        test: The test questions, with answers.
        predictions: From `build_predictions(test, …)`.
        unseen: Predictions about names that the model cannot know, by what they are.
        data: With the questions of training.
        accuracies: On the test questions.
    """
    right, expected = test.right, test.questions.answers
    sure = measure_confidence(test.scores, test.chosen, calibration.temperature)
    unscaled = measure_confidence(test.scores, test.chosen)["probability"]
    commonest = [answer for answer, _ in Counter(data.training_answers).most_common(COMMONEST)]
    # Without a corpus, all names that are asked about.
    seen = [prediction.confidence for prediction in predictions if prediction.group != "unseen name"]
    return {
        **accuracies.given.to_metrics(),
        "lenient_accuracy": _average(bool(prediction.right_leniently) for prediction in predictions),
        "baselines": list_baselines(accuracies, test.questions.titles, expected, data.known),
        "right_answers": count_answers(expected, test.answers, right),
        "temperature": calibration.temperature,
        "calibration": {
            "before": compute_calibration(unscaled, right),
            "after": compute_calibration(sure["probability"], right),
        },
        # The entropy is lowest when the model is surest.
        "auroc": {name: compute_auroc(-sure[name] if name == "entropy" else sure[name], right) for name in sure},
        "selective": compute_risk_coverage(sure["probability"], right)
        | describe_abstention(predictions, right, calibration.abstain_below),
        "groups": describe_groups(predictions),
        "documents_disagree": sum(bool(prediction.documents_disagree) for prediction in predictions),
        "unseen": {kind: describe_unseen(asked, seen, commonest) for kind, asked in unseen.items()},
    }


def predict_from_nearest_names(names: Iterable[str], known: dict[str, str]) -> list[str]:
    """For each name, return the answer of the known name with the least edit distance (Levenshtein 1966), ties: the first."""
    known_names = list(known)
    return [known[extractOne(name, known_names, scorer=Levenshtein.distance)[0]] for name in names]


def list_baselines(
    accuracies: Accuracies, names: Sequence[str], expected: Sequence[str], known: dict[str, str]
) -> dict[str, float]:
    """Return the accuracy of each baseline by its description."""
    nearest = count_right(predict_from_nearest_names(names, known), expected)
    rows = accuracies.baselines | {"the answer of the nearest training name": nearest}
    return {name: share.accuracy for name, share in rows.items()}


def count_answers(expected: Sequence[str], answers: Sequence[str], right: np.ndarray) -> list[dict[str, Any]]:
    """For the commonest right answers, count how often each is right, how often it is said, and how often rightly."""
    said, rightly = Counter(answers), Counter(compress(expected, right))
    return [
        {"answer": answer, "true": count, "said": said[answer], "right": rightly[answer]}
        for answer, count in Counter(expected).most_common(MOST_ANSWERS)
    ]


def describe_abstention(
    predictions: Sequence[Prediction], right: np.ndarray, abstain_below: float | None
) -> dict[str, float | None]:
    """Return the threshold, the share of questions answered at it, and how much of that is right."""
    answered = np.array([not prediction.abstained for prediction in predictions])
    precision = float(right[answered].mean()) if answered.any() else None
    return {"abstain_below": abstain_below, "answered": float(answered.mean()), "precision": precision}


def describe_worth(
    predictions: Sequence[Prediction], unseen: Sequence[Prediction], abstain_below: float | None, utility: Utility
) -> dict[str, Any]:
    """Return what the answers are worth per question, when `utility.unseen_share` of the names asked about are unseen.

    Returns:
        `at_threshold` and `always`, the worth of the answers that are sure enough and of all; `attainable`, that of exactly
        the right ones; `share`, what the first is of the last; `coverage` and `risk`, as from `compute_risk_coverage`, for
        this mix.
    """
    everything = [*predictions, *unseen]
    right = np.array([bool(prediction.right) for prediction in everything])
    confidence = np.array([prediction.confidence for prediction in everything])
    weights = utility.weigh(len(predictions), len(unseen))
    gains = weights * utility.value(right)
    answered = confidence >= (-np.inf if abstain_below is None else abstain_below)
    _, _, coverage = count_answered(confidence, weights)
    _, _, wrong = count_answered(confidence, weights * ~right)
    # At a share of 0 or 1, the surest may be names that nobody asks about.
    asked = coverage > 0
    attainable = float(gains[right].sum())
    at_threshold = float(gains[answered].sum())
    return {
        "wrong_costs": utility.wrong_costs,
        "unseen_share": utility.unseen_share,
        "at_threshold": at_threshold,
        "always": float(gains.sum()),
        "attainable": attainable,
        "share": at_threshold / attainable if attainable else None,
        "coverage": coverage[asked].tolist(),
        "risk": (wrong[asked] / coverage[asked]).tolist(),
    }


def describe_groups(predictions: Sequence[Prediction]) -> dict[str, dict[str, Any]]:
    """Return the figures of each group that is not empty."""
    return {
        group: {
            "count": len(of_group),
            "confidence": _average(prediction.confidence for prediction in of_group),
            "answer_in_document": _average(bool(prediction.answer_in_document) for prediction in of_group),
            "abstained": _average(prediction.abstained for prediction in of_group),
        }
        for group, of_group in split_into_groups(predictions).items()
    }


def describe_unseen(predictions: Sequence[Prediction], seen: list[float], commonest: list[str]) -> dict[str, Any]:
    """Return the figures of answers about names that the model cannot know.

    Args:
        seen: Confidences of the answers about the other names.
        commonest: The commonest training answers.
    """
    unseen = [prediction.confidence for prediction in predictions]
    is_seen = np.array([True] * len(seen) + [False] * len(unseen))
    figures = {
        "count": len(predictions),
        "confidence": _average(unseen),
        "share_on_commonest": _average(prediction.answer in commonest for prediction in predictions),
        "commonest": commonest,
        "said_most": Counter(prediction.answer for prediction in predictions).most_common(COMMONEST),
        "abstained": _average(prediction.abstained for prediction in predictions),
        "auroc": compute_auroc(np.array(seen + unseen), is_seen),
    }
    if predictions[0].right is not None:
        figures["accuracy"] = _average(bool(prediction.right) for prediction in predictions)
    return figures


def _average(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
