"""Whom an evaluation asks about, and what the model answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from data_scripts.errors import BadInput
from data_scripts.files import find_line_number
from data_scripts.questions import Questions, describe_unknown_characters, load_questions
from data_scripts.synthetic_world import fictional_names
from modeling_posgpt import MASK_TOKEN, Answer, PosGPTForCausalLM
from posgpt.evaluation.arguments import EvaluationArguments
from posgpt.evaluation.evidence import Document, find_documents
from posgpt.evaluation.exact_match import match_exactly

TEST, TRAINING, HELD_OUT = "test", "training", "held out"
TAKEN_OUT, FICTIONAL = "people taken out of the corpus", "fictional people"


@dataclass(frozen=True)
class Inquiry:
    """All that an evaluation reads.

    Args:
        groups: Questions by the name of their group; `TEST` is always there.
        training: The questions of training with their answers, if their file was given.
        documents: The people's documents by name; None: no corpus was given.
    """

    groups: dict[str, Questions]
    training: Questions | None = None
    documents: dict[str, list[Document]] | None = None

    @property
    def training_answers(self) -> list[str]:
        """The answers of training; none without its file."""
        return (self.training.answers or []) if self.training is not None else []

    @property
    def known(self) -> dict[str, str]:
        """The answer of training by the name that was asked about."""
        return dict(zip(self.training.titles, self.training_answers, strict=True)) if self.training is not None else {}

    @property
    def places(self) -> list[str]:
        """The answers that are known from training, each once."""
        return sorted(set(self.known.values()))


def load_inquiry(test: Questions, arguments: EvaluationArguments) -> Inquiry:
    """Read all files besides the test questions', each once, before anything is asked.

    Raises:
        BadInput: a file is not what it should be, calibration questions were trained on, or the corpus is another one.
    """
    paths = {TRAINING: arguments.train_file, HELD_OUT: arguments.calibration_file, TAKEN_OUT: arguments.unseen_file}
    groups = {TEST: test} | {group: load_questions(path, answers=True) for group, path in paths.items() if path}
    names = {name for questions in groups.values() for name in questions.titles}
    training = groups.pop(TRAINING, None)
    if training is not None and HELD_OUT in groups:
        check_held_out(groups[HELD_OUT], training)
    people, documents = arguments.fictional_people if arguments.report else 0, None
    if arguments.corpus_file:
        # Twice as many as are asked about: some may have a document, as a namesake of a real person.
        documents = find_documents(arguments.corpus_file, names | set(islice(fictional_names(), 2 * people)))
        if documents.keys().isdisjoint(test.titles):
            raise BadInput(
                f"{arguments.corpus_file}: has no document about anyone in {test.path}; give the corpus that the model has"
                " read, or leave --corpus_file out."
            )
    if people:
        taken = names | set(documents or ())
        strangers = islice((name for name in fictional_names() if name not in taken), people)
        rows = Dataset.from_dict({"question": [test.relation.ask(name) for name in strangers]})
        groups[FICTIONAL] = Questions(FICTIONAL, test.relation, rows)
    return Inquiry(groups, training, documents)


def check_held_out(held_out: Questions, training: Questions) -> None:
    """Check that no question for calibration was trained on.

    Raises:
        BadInput: one was.
    """
    overlap = sorted(set(held_out.texts) & set(training.texts))
    if overlap:
        raise BadInput(
            f"{held_out.path}: {len(overlap)} of its questions are in {training.path} too, first {overlap[0]!r}; a model"
            " is sure of what it was trained on, so these cannot calibrate it. Hold pairs out with posgpt hold-out."
        )


class AskedModel(NamedTuple):
    """A model, its tokenizer, and how it is asked: the questions per batch and the most characters in an answer."""

    model: PosGPTForCausalLM
    tokenizer: PreTrainedTokenizerBase
    batch_size: int
    max_new_tokens: int

    def answer(self, texts: Sequence[str]) -> list[Answer]:
        """Answer each question (see `PosGPTForCausalLM.answer`)."""
        return self.model.answer(texts, self.tokenizer, self.batch_size, self.max_new_tokens)


def check_questions(inquiry: Inquiry, asked: AskedModel) -> list[str]:
    """Check that the model can read every question from a file; return warnings, one line each.

    Raises:
        BadInput: a question leaves no room for an answer.
    """
    max_length, max_new_tokens = asked.model.config.max_position_embeddings, asked.max_new_tokens
    warnings = []
    for questions in (inquiry.groups[group] for group in inquiry.groups if group != FICTIONAL):
        texts, path = questions.texts, questions.path
        rooms = [max_length - len(question) - len(MASK_TOKEN) for question in texts]
        if min(rooms) < 1:
            row = rooms.index(min(rooms))
            raise BadInput(
                f"{path}, line {find_line_number(row, path)}: the question has {len(texts[row])} characters, but the"
                f" model's maximum sequence length is {max_length}: no room for an answer; shorten the question or"
                " pretrain with a larger --block_size."
            )
        if short := sum(room < max_new_tokens for room in rooms):
            warnings.append(
                f"{path}: {short} of {len(texts)} questions leave fewer than {max_new_tokens} characters of the model's"
                " maximum sequence length for their answer."
            )
    test = inquiry.groups[TEST]
    unknown = describe_unknown_characters(test.texts, asked.tokenizer, test.path)
    return [*warnings, unknown] if unknown else warnings


@dataclass(frozen=True)
class AskedGroup:
    """Questions, a model's answers to them, and its scores of every candidate answer.

    Args:
        candidates: The known answers, and what the model said besides in any group.
        scores: (questions, candidates), log P of each candidate.
        chosen: (questions,) the index of the answer among the candidates.
    """

    questions: Questions
    answers: list[str]
    candidates: list[str]
    scores: np.ndarray
    chosen: np.ndarray

    @property
    def right(self) -> np.ndarray:
        """(questions,) booleans; the questions need answers."""
        return match_exactly(self.answers, self.questions.answers or [])


def ask_groups(model: AskedModel, inquiry: Inquiry, test_answers: list[Answer]) -> dict[str, AskedGroup]:
    """Ask all groups of questions, and score each known answer and the model's own to every question.

    Args:
        test_answers: The model's answers to the group `TEST`, which has been asked already.
    """
    answers = {
        group: test_answers if group == TEST else model.answer(questions.texts)
        for group, questions in inquiry.groups.items()
    }
    known = inquiry.places
    invented = {answer.text for given in answers.values() for answer in given} - set(known)
    candidates = [*known, *sorted(invented)]
    number = {candidate: index for index, candidate in enumerate(candidates)}
    asked = {}
    for group, questions in inquiry.groups.items():
        said = [answer.text for answer in answers[group]]
        rows, chosen = np.arange(len(said)), np.array([number[text] for text in said])
        # An answer to another question is no candidate; the one given is, known or not, cut off or next to impossible.
        scores = np.full((len(said), len(candidates)), -np.inf)
        scores[:, : len(known)] = model.model.score_answers(questions.texts, known, model.tokenizer)
        scores[rows, chosen] = np.log([max(answer.probability, 1e-30) for answer in answers[group]])
        asked[group] = AskedGroup(questions, said, candidates, scores, chosen)
    return asked
