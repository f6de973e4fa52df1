"""Batches of rows of different lengths, padded on the right."""

from collections.abc import Sequence

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase


def pad_right(rows: Sequence[Sequence[int] | np.ndarray], value: int) -> torch.Tensor:
    """Stack rows of integers into (rows, longest row) of int64; `value` fills what is missing on the right."""
    padded = np.full((len(rows), max(map(len, rows))), value)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return torch.from_numpy(padded)


class RightPaddingCollator:
    """Pad examples that have `input_ids` and `labels`, such as encoded questions.

    No attention mask is needed: in a causal model no real token can see padding on the right, and padding is not graded.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self.pad_token_id = tokenizer.pad_token_id

    def __call__(self, features: list[dict]) -> dict[str, torch.Tensor]:
        """Return `input_ids` and `labels`, each (batch, longest row); labels of padding are -100."""
        return {
            "input_ids": pad_right([row["input_ids"] for row in features], self.pad_token_id),
            "labels": pad_right([row["labels"] for row in features], -100),
        }
