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


class NameWindowsCollator(RightPaddingCollator):
    """Make a batch of rows in which each window sees the row's beginning and itself.

    A feature without `windows`, such as an encoded question, is one window without a beginning.
    """

    def __call__(self, features: list[dict]) -> dict[str, torch.Tensor]:
        """Return `input_ids`, `labels` and `position_ids`, each (batch, longest row), and the boolean `attention_mask`
        (batch, 1, longest row, longest row), true where a position is seen.
        """
        positions, windows = [], []
        for feature in features:
            beginning, *sizes = feature.get("windows", [0, len(feature["input_ids"])])
            # The positions of each window continue those of the row's beginning, as if the window stood alone.
            alone = [np.arange(beginning, beginning + size) for size in sizes]
            positions.append(np.concatenate([np.arange(beginning), *alone]))
            windows.append(np.repeat(np.arange(1 + len(sizes)), [beginning, *sizes]))
        # Padding is a window of its own: it sees itself, and nothing else sees it.
        window = pad_right(windows, -1)
        seen = (window[:, None, :] == 0) | (window[:, None, :] == window[:, :, None])
        batch = super().__call__(features)
        return batch | {"position_ids": pad_right(positions, 0), "attention_mask": seen.tril()[:, None]}
