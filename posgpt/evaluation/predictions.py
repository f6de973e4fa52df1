"""What is right, how sure the model is of it, and what the corpus has to say."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from posgpt.evaluation.answerers import AskedGroup
from posgpt.evaluation.confidence import compute_worth, find_threshold, fit_temperature, measure_confidence
from posgpt.evaluation.evidence import (
    GROUPS,
    Document,
    choose_group,
    find_disagreement,
    has_mention,
    normalize_answer,
)

# A threshold where even the surest answers fall short.
_NEVER_SURE = 1.01
BEST = 5  # how many of the likeliest candidates are shown for each question


class Calibration(NamedTuple):
    """How scores become confidences, and how sure the model has to be to answer.

    Args:
        temperature: 1 when there was nothing to fit it on.
        abstain_below: The confidence below which the answer is `I don't know`; None: it always answers.
    """

    temperature: float = 1.0
    abstain_below: float | None = None


class Utility(NamedTuple):
    """What answers are worth: a right one 1, a wrong one `-wrong_costs`, none 0.

    Args:
        unseen_share: The share of names that the model cannot know among those that are asked about.
    """

    wrong_costs: float
    unseen_share: float

    def weigh(self, known: int, unseen: int) -> np.ndarray:
        """Return the weight of each known name and then of each unseen one, 1 in all, so that they are in this proportion."""
        shares = np.repeat([1 - self.unseen_share, self.unseen_share], [known, unseen])
        return shares / np.repeat([known, unseen], [known, unseen])

    def value(self, right: np.ndarray) -> np.ndarray:
        """Return what each answer is worth; `right` are (answers,) booleans."""
        return np.where(right, 1.0, -self.wrong_costs)


def calibrate(
    held_out: AskedGroup | None,
    abstain_below: float | None = None,
    target_precision: float | None = None,
    utility: Utility | None = None,
    taken_out: AskedGroup | None = None,
) -> Calibration:
    """Fit the temperature, and the threshold, on questions held out from training.

    Args:
        abstain_below: The threshold, if it is given.
        target_precision: The share of right answers that the threshold has to give.
        utility: The threshold has to give the greatest worth.
        taken_out: The names that the model cannot know, for `utility`.
    """
    if held_out is None:
        return Calibration(abstain_below=abstain_below)
    temperature = fit_temperature(held_out.scores, held_out.chosen, held_out.right)
    confidence = measure_confidence(held_out.scores, held_out.chosen, temperature)["probability"]
    if target_precision is not None:
        threshold = find_threshold(target_precision, confidence, held_out.right)
        abstain_below = _NEVER_SURE if threshold is None else threshold
    if utility is not None and taken_out is not None:
        unseen = measure_confidence(taken_out.scores, taken_out.chosen, temperature)["probability"]
        gains = utility.weigh(len(confidence), len(unseen)) * utility.value(np.append(held_out.right, taken_out.right))
        thresholds, worth = compute_worth(np.append(confidence, unseen), gains)
        abstain_below = min(float(thresholds[worth.argmax()]), _NEVER_SURE)
    return Calibration(temperature, abstain_below)


@dataclass(frozen=True)
class Prediction:
    """A line of `predictions.jsonl`, where what is None is left out.

    Args:
        name: Whom or what the question asks about.
        confidence, margin, entropy: See `measure_confidence`.
        best: The candidates with the best scores, and the probability of each.
        abstained: Whether the confidence is too low to answer.
        right_answer: The right answer, if it is known.
        right, right_leniently: Whether the answer is it, exactly or but for case, accents and punctuation.
        documents: The name's documents.
        answer_in_document: Whether one of them mentions the answer.
        documents_disagree: Whether one of them mentions the right answer, and another only other known ones.
        group: One of `GROUPS`.
    """

    name: str
    question: str
    answer: str
    confidence: float
    margin: float
    entropy: float
    best: list[tuple[str, float]]
    abstained: bool
    right_answer: str | None = None
    right: bool | None = None
    right_leniently: bool | None = None
    documents: list[Document] | None = None
    answer_in_document: bool | None = None
    documents_disagree: bool | None = None
    group: str | None = None


def build_predictions(
    asked: AskedGroup, calibration: Calibration, documents: dict[str, list[Document]] | None, known: re.Pattern
) -> list[Prediction]:
    """Describe each answer of a group: whether it is right, how sure the model is of it, and what the corpus says.

    Args:
        documents: By name; None: there is no corpus to look into.
        known: What matches the answers that are known from training, see `compile_mentions`.
    """
    sure = measure_confidence(asked.scores, asked.chosen, calibration.temperature)
    probabilities = softmax(asked.scores / calibration.temperature, axis=1)
    best = np.argsort(-asked.scores, axis=1, kind="stable")[:, :BEST]
    threshold = -np.inf if calibration.abstain_below is None else calibration.abstain_below
    questions, predictions = asked.questions, []
    all_expected: Sequence[str | None] = questions.answers or [None] * len(questions)
    rights = asked.right if questions.answers else all_expected
    rows = zip(questions.titles, questions.texts, asked.answers, all_expected, rights, strict=True)
    for row, (name, question, answer, expected, right) in enumerate(rows):
        own = None if documents is None else documents.get(name, [])
        mentions = (
            None if own is None or expected is None else [has_mention(document.text, expected) for document in own]
        )
        prediction = Prediction(
            name=name,
            question=question,
            answer=answer,
            confidence=float(sure["probability"][row]),
            margin=float(sure["margin"][row]),
            entropy=float(sure["entropy"][row]),
            best=[(asked.candidates[number], float(probabilities[row, number])) for number in best[row]],
            abstained=bool(sure["probability"][row] < threshold),
            right_answer=expected,
            right=None if expected is None else bool(right),
            right_leniently=None if expected is None else normalize_answer(answer) == normalize_answer(expected),
            documents=own,
            answer_in_document=None if own is None else any(has_mention(document.text, answer) for document in own),
            documents_disagree=None if mentions is None else find_disagreement(own or [], mentions, known),
            group=None if mentions is None else choose_group(mentions, bool(right)),
        )
        predictions.append(prediction)
    return predictions


def split_into_groups(predictions: Sequence[Prediction]) -> dict[str, list[Prediction]]:
    """Return the predictions of each of `GROUPS` that has any."""
    groups = {group: [prediction for prediction in predictions if prediction.group == group] for group in GROUPS}
    return {group: members for group, members in groups.items() if members}
