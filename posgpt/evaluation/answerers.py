"""What answers questions: a model, or a constant that gives everyone the same answer; and a model's scores of every candidate."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from transformers import PreTrainedTokenizerBase

from data_scripts.errors import BadInput
from data_scripts.files import hash_file
from data_scripts.questions import Questions, describe_unknown_characters, locate_question
from data_scripts.relations import Relation, read_relations
from modeling_posgpt import Answer, PosGPTForCausalLM
from posgpt.evaluation.accuracy import describe_constant
from posgpt.evaluation.arguments import EvaluationArguments
from posgpt.evaluation.data import FICTIONAL, TEST, EvaluationData
from posgpt.evaluation.exact_match import match_exactly
from posgpt.training.run_record import list_training_files
from posgpt.training.saved_models import load_model


@dataclass(frozen=True)
class ConstantAnswer:
    """Gives everyone the same answer."""

    text: str
    #: What it can be asked; nothing is known of that.
    relations: ClassVar[tuple[Relation, ...]] = ()

    @property
    def name(self) -> str:
        """What the table of an evaluation calls it."""
        return describe_constant(self.text)

    def check_questions(self, data: EvaluationData) -> list[str]:
        """Return no warnings: it can answer everything."""
        return []

    def answer(self, texts: Sequence[str]) -> list[Answer]:
        """Give the answer to each question."""
        return [Answer(self.text, probability=1.0)] * len(texts)


@dataclass(frozen=True)
class AskedModel:
    """A model, its tokenizer, and how it is asked.

    Args:
        batch_size: Questions per batch.
        max_new_tokens: The most characters in an answer.
        training_files: The SHA-256 of the files that it was last trained on, as far as known.
    """

    #: What the table of an evaluation calls it.
    name: ClassVar[str] = "PosGPT"

    model: PosGPTForCausalLM
    tokenizer: PreTrainedTokenizerBase
    batch_size: int
    max_new_tokens: int
    training_files: Collection[str] = ()

    @property
    def relations(self) -> tuple[Relation, ...]:
        """What it was trained to be asked."""
        return tuple(read_relations(self.model.config.relations))

    def check_questions(self, data: EvaluationData) -> list[str]:
        """Check that the model can read every question; return warnings about those from files, one line each.

        Raises:
            BadInput: a question leaves no room for an answer.
        """
        warnings = []
        for group, questions in data.groups.items():
            texts, is_file = questions.texts, group != FICTIONAL
            rooms = list(map(self.model.count_free_positions, texts))
            if min(rooms) < 1:
                row = rooms.index(min(rooms))
                where = locate_question(row, questions.paths) if is_file else FICTIONAL
                fix = "shorten the question" if is_file else "give --fictional_people 0"
                raise BadInput(
                    f"{where}: the question has {len(texts[row])} characters, but the model's maximum sequence length is"
                    f" {self.model.config.max_position_embeddings}: no room for an answer; {fix} or pretrain with a larger"
                    " --block_size."
                )
            if is_file and (short := sum(room < self.max_new_tokens for room in rooms)):
                warnings.append(
                    f"{questions.path}: {short} of {len(texts)} questions leave fewer than {self.max_new_tokens} characters of the"
                    " model's maximum sequence length for their answer."
                )
        test = data.groups[TEST]
        warnings += [
            f"{path}: the model was trained on this file; its accuracy here says what it has memorized of it."
            for path in test.paths
            if hash_file(path) in self.training_files
        ]
        if cut := sum(len(answer) > self.max_new_tokens for answer in test.answers):
            warnings.append(
                f"{test.path}: {cut} of {len(test)} answers are longer than {self.max_new_tokens} characters, which is where the"
                " model's are cut; choose a larger --max_new_tokens."
            )
        wordings = set(chain.from_iterable(relation.wordings for relation in self.relations))
        warnings += [
            f"{test.path}: the model was never asked {relation.form!r}; it answers as it can."
            for relation in test.relations
            if wordings.isdisjoint(relation.wordings)
        ]
        unknown = describe_unknown_characters(test.texts, self.tokenizer, test.path)
        return [*warnings, unknown] if unknown else warnings

    def answer(self, texts: Sequence[str]) -> list[Answer]:
        """Answer each question (see `PosGPTForCausalLM.answer`)."""
        return self.model.answer(texts, self.tokenizer, self.batch_size, self.max_new_tokens)


Answerer = AskedModel | ConstantAnswer


def load_answerer(arguments: EvaluationArguments, device: Any) -> Answerer:
    """Return what is asked: the constant if one is given, else the model, loaded onto `device`.

    Raises:
        BadInput: see `load_model`.
    """
    if arguments.baseline is not None:
        return ConstantAnswer(arguments.baseline)
    model, tokenizer = load_model(str(arguments.model_name_or_path), dtype=arguments.dtype)
    model.to(device)
    longest = arguments.max_new_tokens or model.config.max_answer_length
    training_files = list_training_files(str(arguments.model_name_or_path))
    return AskedModel(model, tokenizer, arguments.per_device_eval_batch_size, longest, training_files)


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
        return match_exactly(self.answers, self.questions.answers)


def ask_groups(model: AskedModel, data: EvaluationData, test_answers: list[Answer]) -> dict[str, AskedGroup]:
    """Ask all groups of questions, and score each known answer and the model's own to every question.

    Args:
        test_answers: The model's answers to the group `TEST`, which has been asked already.
    """
    answers = {
        group: test_answers if group == TEST else model.answer(questions.texts)
        for group, questions in data.groups.items()
    }
    known = data.candidates
    invented = {answer.text for given in answers.values() for answer in given} - set(known)
    candidates = [*known, *sorted(invented)]
    number = {candidate: index for index, candidate in enumerate(candidates)}
    asked = {}
    for group, questions in data.groups.items():
        said = [answer.text for answer in answers[group]]
        rows, chosen = np.arange(len(said)), np.array([number[text] for text in said])
        # An answer to another question is not a candidate; the one given is, known or not, cut off or next to impossible.
        scores = np.full((len(said), len(candidates)), -np.inf)
        scores[:, : len(known)] = model.model.score_answers(questions.texts, known, model.tokenizer)
        scores[rows, chosen] = np.log([max(answer.probability, 1e-30) for answer in answers[group]])
        asked[group] = AskedGroup(questions, said, candidates, scores, chosen)
    return asked
