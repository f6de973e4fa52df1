"""Ask a model questions and grade its answers."""

from collections.abc import Sequence

import numpy as np
from transformers import PreTrainedTokenizerBase

from modeling_posgpt import PosGPTForCausalLM
from posgpt.evaluation.exact_match import match_exactly


def grade_answers(
    model: PosGPTForCausalLM, tokenizer: PreTrainedTokenizerBase, questions: Sequence[str], references: Sequence[str]
) -> np.ndarray:
    """Return (questions,) booleans: whether each question is answered exactly with its reference."""
    return match_exactly([answer.text for answer in model.answer(questions, tokenizer)], references)
