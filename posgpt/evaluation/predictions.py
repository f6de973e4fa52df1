"""Predictions: one JSON Lines file of questions and their answers, whoever gave them."""

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from itertools import islice

from transformers import PreTrainedTokenizerBase

from data_scripts.errors import BadInput
from data_scripts.files import read_lines
from modeling_posgpt import PosGPTForCausalLM
from modeling_posgpt.answering_posgpt import Answer

# Why a question is asked: to measure accuracy; to fit confidences; because nobody can know the answer, of two kinds. Questions of the
# test in another wording have this wording, with `{title}`, as their group.
TEST, CALIBRATION, UNSEEN, FICTIONAL = "test", "calibration", "unseen", "fictional"
ALL = "all"
# Less counts as this: an answer that a model cannot write would have an infinite surprisal.
_LEAST = 2.0**-100


def is_wording(group: str) -> bool:
    """Return whether a group is the test in another wording, rather than other questions."""
    return "{title}" in group


@dataclass(frozen=True)
class Prediction:
    """A line of `predictions.jsonl`, where what is None is left out.

    Args:
        relation: What the question asks for; `ALL` where that is not told apart.
        title: Whom or what it asks about.
        probability: How probable whoever answered finds the answer, 0 to 1.
        reference: The correct answer, or several of which each is correct.
        group: Why it was asked: `TEST`, `CALIBRATION`, `UNSEEN`, `FICTIONAL` or another wording of the test, with `{title}`.
        surprisal: -log2 of the probability that whoever answered gives all references together, in bits.
        alternatives: Other answers and the probability of each, the likeliest first; None: they were not asked for.
    """

    question: str
    answer: str
    relation: str = ALL
    title: str | None = None
    probability: float | None = None
    reference: str | list[str] | None = None
    group: str = TEST
    surprisal: float | None = None
    alternatives: dict[str, float] | None = None

    @property
    def references(self) -> list[str]:
        """The answers that are right; none where that is not known."""
        if isinstance(self.reference, list):
            return list(dict.fromkeys(self.reference))
        return [] if self.reference is None else [self.reference]

    def check(self) -> None:
        """Raise ValueError for what a file may have that Python's own callers have not."""
        texts = [self.question, self.answer, self.group, self.relation, *self.references]
        texts += [] if self.title is None else [self.title]
        if not all(isinstance(text, str) for text in texts) or self.reference == []:
            raise ValueError(
                "question, answer, relation, title, reference and group are texts, reference may be a list"
            )
        if self.relation == "together":
            raise ValueError("the relation 'together' stands for all in results: choose another name")
        given = {} if self.alternatives is None else self.alternatives
        if not (isinstance(given, dict) and all(isinstance(each, int | float) for each in given.values())):
            raise ValueError("alternatives is an object of answers and their probabilities")
        numbers = int | float | None
        if not isinstance(self.probability, numbers) or not 0 <= (self.probability or 0) <= 1:
            raise ValueError(f"probability is {self.probability!r}, which is not a number from 0 to 1")
        if not isinstance(self.surprisal, numbers) or not 0 <= (self.surprisal or 0) < math.inf:
            raise ValueError(f"surprisal is {self.surprisal!r}, which is not a number of bits from 0")


def answer_questions(
    questions: Sequence[Prediction],
    model: PosGPTForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    num_alternatives: int = 0,
    *options: int,
) -> list[Prediction]:
    """Return questions with a model's answers, and with alternatives: this many, or as many as it has references.

    By default, only questions with several references have alternatives. A wider search finds others, so each question has the same
    alternatives whatever else is asked. With a number of them, answers are the likeliest that
    are found; character by character, a model may miss these. `options` are the others of `model.answer`.
    """
    keys = [(each.question, max(num_alternatives, len(each.references))) for each in questions]
    several = dict.fromkeys(key for key in keys if num_alternatives or key[1] > 1)
    best: dict[tuple[str, int], list[Answer]] = {}
    for number in sorted({number for _, number in several}):
        alike = [key for key in several if key[1] == number]
        # One of them may be the answer.
        found = model.list_answers([text for text, _ in alike], tokenizer, number + 1, *options)
        best |= zip(alike, found, strict=True)
    if num_alternatives:
        answers = [best[key][0] for key in keys]
    else:
        answers = model.answer([each.question for each in questions], tokenizer, *options)
    pairs = [(each.question, reference) for each in questions for reference in each.references]
    scores = model.compute_log_probs(
        [text for text, _ in pairs], [right for _, right in pairs], tokenizer, *options[:1]
    )
    probabilities = iter(scores.double().exp().tolist())
    answered = []
    for each, key, (text, probability) in zip(questions, keys, map(astuple, answers), strict=True):
        known = min(sum(islice(probabilities, len(each.references))), 1.0)
        surprisal = math.log2(1 / max(known, _LEAST)) if each.references else None
        others = [other for other in best.get(key, ()) if other.text != text][: key[1]]
        alternatives = {other.text: other.probability for other in others} if key in best else None
        own = {"answer": text, "probability": probability, "surprisal": surprisal, "alternatives": alternatives}
        answered.append(replace(each, **own))
    return answered


def read_predictions(path: str | os.PathLike) -> list[Prediction]:
    """Read predictions; what a line has besides the fields of `Prediction` is not read."""
    predictions = []
    for where, line in read_lines(path, "file of predictions, a JSON object a line"):
        try:
            row = json.loads(line)
            # An escape such as `\ud83d` alone stands for no character.
            json.dumps(row, ensure_ascii=False).encode()
            names = Prediction.__annotations__.keys() & row.keys()
            # Of what may be left out, `null` says that it is.
            given = {name: row[name] for name in names if row[name] is not None or name in ("question", "answer")}
            predictions.append(Prediction(**given))
            predictions[-1].check()
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            reason = str(error).removeprefix("Prediction.__init__() ")
            raise BadInput(
                f"{where}: no prediction: {reason}; give a JSON object such as"
                ' {"question": "…", "answer": "Rome", "reference": "Rome", "probability": 0.9}.'
            ) from None
    return predictions


def check_references(path: str | os.PathLike, predictions: Sequence[Prediction]) -> None:
    """Check that predictions, one a line, have what the test, its other wordings and the calibration compare them with."""
    for number, each in enumerate(predictions, start=1):
        if (each.group in (TEST, CALIBRATION) or is_wording(each.group)) and each.reference is None:
            raise BadInput(
                f"{path}, line {number}: no reference (the correct answer) to compare with; give questions that have answers."
            )
    if not any(each.group == TEST for each in predictions):
        raise BadInput(f"{path}: no line is of the group {TEST!r}; add some, without a group.")


def format_predictions(predictions: Iterable[Prediction]) -> str:
    """Return the lines of `predictions.jsonl`."""
    unsaid = {"group": TEST, "relation": ALL}
    rows = ({name: value for name, value in asdict(each).items() if value != unsaid.get(name)} for each in predictions)
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
