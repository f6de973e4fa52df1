"""A model that is asked, and what it can be asked."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from data_scripts.errors import BadInput
from data_scripts.files import hash_file
from data_scripts.questions import describe_unknown_characters, locate_question
from data_scripts.relations import Relation, read_relations
from modeling_posgpt import Answer, PosGPTForCausalLM
from posgpt.evaluation.arguments import EvaluationArguments
from posgpt.evaluation.data import FICTIONAL, TEST, EvaluationData
from posgpt.training.run_record import list_training_files
from posgpt.training.saved_models import load_model


@dataclass(frozen=True)
class ModelPredictor:
    """A model, its tokenizer, and how it is asked.

    Args:
        path: Its folder, or its name on the hub.
        batch_size: Questions per batch.
        max_new_tokens: The most characters in an answer.
        training_files: The SHA-256 of the files that it was last trained on, as far as known.
    """

    model: PosGPTForCausalLM
    tokenizer: PreTrainedTokenizerBase
    path: str
    batch_size: int
    max_new_tokens: int
    training_files: Collection[str] = ()

    @property
    def relations(self) -> tuple[Relation, ...]:
        """What it was trained to be asked."""
        return tuple(read_relations(self.model.config.relations))

    def describe(self, paths: Sequence[str]) -> dict[str, str]:
        """Return what a report says of the model, and of the files that it is asked from."""
        names = ", ".join(Path(path).name for path in paths)
        positions = self.model.config.position_embedding_type
        return {"model": self.path, "position_embedding_type": positions, "test_file": names}

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


def load_predictor(arguments: EvaluationArguments, device: Any) -> ModelPredictor:
    """Load the model that is asked onto `device`.

    Raises:
        BadInput: see `load_model`.
    """
    path = str(arguments.model_name_or_path)
    model, tokenizer = load_model(path, dtype=arguments.dtype)
    longest = arguments.max_new_tokens or model.config.max_answer_length
    size, training_files = arguments.per_device_eval_batch_size, list_training_files(path)
    return ModelPredictor(model.to(device), tokenizer, path, size, longest, training_files)
