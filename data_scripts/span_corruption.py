"""Character span corruption: hide a span of a document and ask for it after the rest (T5, Raffel et al. 2020, 3.1.4).

A document is cut to a random length, a random span of it is taken out, and the example reads

    prefix ⁇ suffix ⁇ masked ⁇

so that a causal model sees both sides before it has to write what was between. On request the span is a salient one
(REALM, Guu et al. 2020, arXiv 2002.08909), there is loss on it alone, and training questions are mixed in (Allen-Zhu and
Li 2023, arXiv 2309.14316); the course's own recipe does none of these.
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
    """Documents, each with the cuts that this epoch makes in it, or its person's training question instead.

    Args:
        documents: A dataset with the columns `input_ids` and `length`, from `tokenize_corpus`; for salient spans also
            `spans`, and for questions `title`, from `keyed_documents`.
        block_size: The model's block, in tokens.
        seed: What all draws follow from.
        salient_share: How often, 0 to 1, the span is one of the document's `spans` that lie within the cut.
        questions: By title: encoded questions, each with `input_ids` and `labels`.
        question_share: How often, 0 to 1, a document with questions is one of them instead.
    """

    def __init__(
        self,
        documents: Dataset,
        block_size: int,
        seed: int,
        salient_share: float = 0.0,
        questions: dict[str, list[dict]] | None = None,
        question_share: float = 0.0,
    ):
        super().__init__(seed)
        self.documents = documents.with_format("numpy", columns=["input_ids"])
        self.document_lengths = np.asarray(documents["length"])
        self.block_size = block_size
        self.salient_share = salient_share
        self.spans = documents.select_columns("spans") if salient_share else None
        self.questions = questions or {}
        self.question_share = question_share
        self.titles = documents.select_columns("title") if self.questions else None
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
        """Features of `SpanCorruptionCollator`: `input_ids` (tokens,) and `cuts` (3,), or an encoded question."""
        indices = [item % len(self) for item in items]
        documents = self.documents[indices]["input_ids"]
        features = [
            {"input_ids": ids, "cuts": self.cuts(item // len(self))[index]}
            for item, index, ids in zip(items, indices, documents, strict=True)
        ]
        if self.spans is None and self.titles is None:
            return features
        spans = self.spans[indices]["spans"] if self.spans is not None else [()] * len(items)
        titles = self.titles[indices]["title"] if self.titles is not None else [""] * len(items)
        for place, (item, index) in enumerate(zip(items, indices, strict=True)):
            rng = np.random.default_rng([self.seed, item // len(self), 0, index])
            length = features[place]["cuts"][0]
            within = [span for span in spans[place] if span[1] <= length]
            questions = self.questions.get(titles[place])
            if questions and rng.random() < self.question_share:
                features[place] = questions[rng.integers(len(questions))]
            elif within and rng.random() < self.salient_share:
                features[place]["cuts"] = np.array([length, *within[rng.integers(len(within))]])
        return features


class SpanCorruptionCollator:
    """Make a batch of `prefix⁇suffix⁇masked⁇` out of the features of a `SpanCorruptionDataset`.

    The loss covers all but padding (label -100), or with `loss_on_span` the masked characters and the `⁇` after them; an
    encoded question keeps its own labels. Rows are padded on the right, where a causal model needs no attention mask: no
    real token can see the padding.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, loss_on_span: bool = False):
        self.loss_on_span = loss_on_span
        self.pad_token_id = tokenizer.pad_token_id
        self.mask_token_id = tokenizer.mask_token_id

    def __call__(self, features: list[dict]) -> dict[str, torch.Tensor]:
        """Return `input_ids` and `labels`, each (batch, longest row)."""
        mask = [self.mask_token_id]
        rows, graded = [], []
        for feature in features:
            if "labels" in feature:
                rows.append(feature["input_ids"])
                graded.append(feature["labels"])
                continue
            ids, (length, start, end) = feature["input_ids"], feature["cuts"]
            rows.append(np.concatenate([ids[:start], mask, ids[end:length], mask, ids[start:end], mask]))
            graded.append(rows[-1].copy())
            if self.loss_on_span:
                graded[-1][: length - (end - start) + 2] = -100
        input_ids = np.full((len(rows), max(map(len, rows))), self.pad_token_id)
        labels = np.full_like(input_ids, -100)
        for number, (row, label) in enumerate(zip(rows, graded, strict=True)):
            input_ids[number, : len(row)] = row
            labels[number, : len(row)] = label
        return {"input_ids": torch.from_numpy(input_ids), "labels": torch.from_numpy(labels)}
