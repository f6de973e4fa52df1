"""What is right, how sure the model is of it, and what the corpus has to say."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from posgpt.evaluation.answerers import AskedGroup
from posgpt.evaluation.confidence import find_threshold, fit_temperature, measure_confidence
from posgpt.evaluation.evidence import GROUPS, Document, choose_group, has_mention, normalize_place

BEST = 5  # how many of the likeliest candidates are shown for each question


class Sureness(NamedTuple):
    """How scores become confidences, and how sure the model has to be to answer.

    Args:
        temperature: 1 when there was nothing to fit it on.
        abstain_below: The confidence below which the answer is `I don't know`; None: it always answers.
    """

    temperature: float = 1.0
    abstain_below: float | None = None


def fit_sureness(
    held_out: AskedGroup | None, abstain_below: float | None = None, target_precision: float | None = None
) -> Sureness:
    """Fit the temperature, and the threshold that gives `target_precision`, on people held out from training."""
    if held_out is None:
        return Sureness(abstain_below=abstain_below)
    temperature = fit_temperature(held_out.scores, held_out.chosen, held_out.right)
    if target_precision is not None:
        confidence = measure_confidence(held_out.scores, held_out.chosen, temperature)["probability"]
        threshold = find_threshold(target_precision, confidence, held_out.right)
        # Nothing is sure enough where even the surest answers fall short.
        abstain_below = 1.01 if threshold is None else threshold
    return Sureness(temperature, abstain_below)


@dataclass(frozen=True)
class Prediction:
    """A line of `predictions.jsonl`, where what is None is left out.

    Args:
        name: Whom or what the question asks about.
        confidence, margin, entropy: See `measure_confidence`.
        best: The candidates with the best scores, and the probability of each.
        abstained: Whether the confidence is too low to answer.
        place: The right answer.
        right, right_leniently: Whether the answer is it, exactly or but for case, accents and punctuation.
        documents: The person's documents.
        answer_in_document: Whether one of them mentions the answer.
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
    place: str | None = None
    right: bool | None = None
    right_leniently: bool | None = None
    documents: list[Document] | None = None
    answer_in_document: bool | None = None
    group: str | None = None


def judge_group(
    asked: AskedGroup, sureness: Sureness, documents: dict[str, list[Document]] | None
) -> list[Prediction]:
    """Judge each answer of a group.

    Args:
        documents: By name; None: there is no corpus to look into.
    """
    sure = measure_confidence(asked.scores, asked.chosen, sureness.temperature)
    probabilities = softmax(asked.scores / sureness.temperature, axis=1)
    best = np.argsort(-asked.scores, axis=1, kind="stable")[:, :BEST]
    threshold = -np.inf if sureness.abstain_below is None else sureness.abstain_below
    questions, predictions = asked.questions, []
    places: Sequence[str | None] = questions.answers or [None] * len(questions)
    rights = asked.right if questions.answers else places
    rows = zip(questions.titles, questions.texts, asked.answers, places, rights, strict=True)
    for row, (name, question, answer, place, right) in enumerate(rows):
        own = None if documents is None else documents.get(name, [])
        prediction = Prediction(
            name=name,
            question=question,
            answer=answer,
            confidence=float(sure["probability"][row]),
            margin=float(sure["margin"][row]),
            entropy=float(sure["entropy"][row]),
            best=[(asked.candidates[number], float(probabilities[row, number])) for number in best[row]],
            abstained=bool(sure["probability"][row] < threshold),
            place=place,
            right=None if place is None else bool(right),
            right_leniently=None if place is None else normalize_place(answer) == normalize_place(place),
            documents=own,
            answer_in_document=None if own is None else any(has_mention(document.text, answer) for document in own),
            group=None if own is None or place is None else choose_group(own, place, bool(right)),
        )
        predictions.append(prediction)
    return predictions


def split_into_groups(predictions: Sequence[Prediction]) -> dict[str, list[Prediction]]:
    """Return the predictions of each of `GROUPS` that has any."""
    groups = {group: [prediction for prediction in predictions if prediction.group == group] for group in GROUPS}
    return {group: members for group, members in groups.items() if members}
