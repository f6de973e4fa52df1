"""Ask a model questions and grade its answers."""

from collections.abc import Sequence

import numpy as np
from accelerate import PartialState
from transformers import PreTrainedTokenizerBase

from modeling_posgpt import PosGPTForCausalLM
from posgpt.evaluation.exact_match import match_exactly
from posgpt.training.saved_models import load_model


def load_on_device(name_or_path: str) -> tuple[PosGPTForCausalLM, PreTrainedTokenizerBase]:
    """Load a model onto the accelerator, where there is one, and its tokenizer.

    Raises:
        BadInput: see `load_model`.
    """
    model, tokenizer = load_model(name_or_path)
    model.to(PartialState().device)
    return model, tokenizer


def grade_answers(
    model: PosGPTForCausalLM, tokenizer: PreTrainedTokenizerBase, questions: Sequence[str], references: Sequence[str]
) -> np.ndarray:
    """Return (questions,) booleans: whether each question is answered exactly with its reference."""
    return match_exactly([answer.text for answer in model.answer(questions, tokenizer)], references)
