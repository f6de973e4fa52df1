"""Character span corruption: hide a span of a document and ask for it after the rest (T5, Raffel et al. 2020, 3.1.4).

A document is cut to a random length, a random span of it is taken out, and the example reads

    prefix ⁇ suffix ⁇ masked ⁇

so that a causal model sees both sides before it has to write what was between.
"""

import numpy as np
import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from data_scripts.epochs import EpochDataset
from data_scripts.text_files import BadInput

MIN_TRUNCATED_LENGTH = 4


def max_truncated_length(block_size: int) -> int:
    """The most characters of a document an example may hold: ⌊7/8 · block⌋, in a tiny block less to fit three `⁇`.

    Raises:
        BadInput: the block has no room for an example.
    """
    longest = min(block_size * 7 // 8, block_size - 3)
    if longest < MIN_TRUNCATED_LENGTH:
        raise BadInput(f"block_size is {block_size}; span corruption needs at least {MIN_TRUNCATED_LENGTH + 3}.")
    return longest


def cut_points(draws: np.ndarray, document_lengths: np.ndarray, block_size: int) -> np.ndarray:
    """Turn uniform numbers into where to cut each document.

    The length is uniform on 4..⌊7/8 · block⌋, but never beyond the document; the span's length is uniform on
    1..⌊length/2⌋ - 1, a quarter of the length on average; its place is uniform.

    Args:
        draws: (documents, 3) numbers in [0, 1).
        document_lengths: (documents,) in tokens, each at least 1.
        block_size: The model's block, in tokens.

    Returns:
        (documents, 3) integers: the truncated length, and the masked span's start and end within it.
    """
    choices = max_truncated_length(block_size) - MIN_TRUNCATED_LENGTH + 1
    lengths = np.minimum(MIN_TRUNCATED_LENGTH + (draws[:, 0] * choices).astype(np.int64), document_lengths)
    spans = 1 + (draws[:, 1] * np.maximum(lengths // 2 - 1, 1)).astype(np.int64)
    starts = (draws[:, 2] * (lengths - spans + 1)).astype(np.int64)
    return np.stack([lengths, starts, starts + spans], axis=1)


class SpanCorruptionDataset(EpochDataset):
    """Documents, each with the cuts that this epoch makes in it.

    Args:
        documents: A dataset with the columns `input_ids` and `length`, from `tokenize_corpus`.
        block_size: The model's block, in tokens.
        seed: What all draws follow from.
    """

    def __init__(self, documents: Dataset, block_size: int, seed: int):
        super().__init__(seed)
        self.documents = documents.with_format("numpy", columns=["input_ids"])
        self.document_lengths = np.asarray(documents["length"])
        self.block_size = block_size
        self._cuts = (-1, np.empty(0))

    def __len__(self) -> int:
        return len(self.documents)

    def cuts(self, epoch: int) -> np.ndarray:
        """(documents, 3) integers: see `cut_points`."""
        if self._cuts[0] != epoch:
            draws = np.random.default_rng([self.seed, epoch]).random((len(self), 3))
            self._cuts = (epoch, cut_points(draws, self.document_lengths, self.block_size))
        return self._cuts[1]

    def lengths(self, epoch: int) -> np.ndarray:
        """(documents,) integers: the truncated lengths."""
        return self.cuts(epoch)[:, 0]

    def __getitems__(self, items: list[int]) -> list[dict]:
        """Features of `SpanCorruptionCollator`: `input_ids` (tokens,) and `cuts` (3,)."""
        indices = [item % len(self) for item in items]
        documents = self.documents[indices]["input_ids"]
        return [
            {"input_ids": ids, "cuts": self.cuts(item // len(self))[index]}
            for item, index, ids in zip(items, indices, documents, strict=True)
        ]


class SpanCorruptionCollator:
    """Make a batch of `prefix⁇suffix⁇masked⁇` out of the features of a `SpanCorruptionDataset`.

    The loss covers all but padding (label -100). Rows are padded on the right, where a causal model needs no attention
    mask: no real token can see the padding.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self.pad_token_id = tokenizer.pad_token_id
        self.mask_token_id = tokenizer.mask_token_id

    def __call__(self, features: list[dict]) -> dict[str, torch.Tensor]:
        """Return `input_ids` and `labels`, each (batch, longest row)."""
        mask = [self.mask_token_id]
        rows = []
        for feature in features:
            ids, (length, start, end) = feature["input_ids"], feature["cuts"]
            rows.append(np.concatenate([ids[:start], mask, ids[end:length], mask, ids[start:end], mask]))
        input_ids = np.full((len(rows), max(map(len, rows))), self.pad_token_id)
        labels = np.full_like(input_ids, -100)
        for target_ids, target_labels, row in zip(input_ids, labels, rows, strict=True):
            target_ids[: len(row)] = target_labels[: len(row)] = row
        return {"input_ids": torch.from_numpy(input_ids), "labels": torch.from_numpy(labels)}
