"""Character span corruption: hide a span of a document and ask for it after the rest (T5, Raffel et al. 2020, 3.1.4).

A document is cut to a random length, a random span of it is taken out, and the example reads

    prefix ⁇ suffix ⁇ masked ⁇

so that a causal model sees both sides before it has to write what was between. Optionally, the last mask is left out (as in the
course's recipe), the span is a salient one (REALM, Guu et al. 2020, arXiv 2002.08909), there is loss on the span alone, and
training questions are mixed in (Allen-Zhu and Li 2023, arXiv 2309.14316).
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from data_scripts.collators import RightPaddingCollator
from data_scripts.documents import tokenize_corpus
from data_scripts.epochs import EpochDataset, draw_one
from data_scripts.errors import BadInput
from data_scripts.objective_config import ObjectiveConfig, TrainingData
from data_scripts.options import Range, option
from data_scripts.questions import Questions, encode_by_title
from data_scripts.relations import BIRTHPLACE
from data_scripts.salient_spans import add_titles_and_spans
from modeling_posgpt import MASK_TOKEN

MIN_TRUNCATED_LENGTH = 4
# Documents whose cuts are drawn at a time.
_BLOCK = 100_000


def compute_longest_cut(max_length: int) -> int:
    """Return the maximum number of a document's characters in an example: 7/8 of `max_length`, less if that leaves no room for
    three `⁇`; raise BadInput where there is no room for an example.
    """
    longest = min(max_length * 7 // 8, max_length - 3)
    if longest < MIN_TRUNCATED_LENGTH:
        raise BadInput(f"block_size is {max_length}; span corruption needs at least {MIN_TRUNCATED_LENGTH + 3}.")
    return longest


def draw_cuts(draws: np.ndarray, document_lengths: np.ndarray, max_length: int) -> np.ndarray:
    """Turn uniform random numbers, (documents, 3) in [0, 1), into the places to cut each document at.

    The length is uniform on 4..⌊7/8 · max_length⌋, but never beyond the document; the span's length is uniform on
    1..⌊length/2⌋ - 1, a quarter of the length on average; its place is uniform.

    Returns:
        (documents, 3) integers: the truncated length, and the masked span's start and end within it.
    """
    choices = compute_longest_cut(max_length) - MIN_TRUNCATED_LENGTH + 1
    lengths = np.minimum(MIN_TRUNCATED_LENGTH + (draws[:, 0] * choices).astype(np.int64), document_lengths)
    spans = 1 + (draws[:, 1] * np.maximum(lengths // 2 - 1, 1)).astype(np.int64)
    starts = (draws[:, 2] * (lengths - spans + 1)).astype(np.int64)
    return np.stack([lengths, starts, starts + spans], axis=1)


@dataclass
class SpanCorruptionConfig(ObjectiveConfig):
    """The options of span corruption; the course's recipe only leaves out the closing mask, and mixes in no questions."""

    name = "span_corruption"

    salient_share: Annotated[float, Range(0, 1)] = option(
        "How often the masked span is a name, place or date.", default=0.0
    )
    loss_on_span: bool = option("Whether there is loss on the masked span alone.", default=False)
    closing_mask: bool = option("Whether the mask follows the span, as it follows an answer.", default=True)

    def build(self, corpus, tokenizer, seed, questions=None, relations=(BIRTHPLACE,)) -> TrainingData:
        corpus, questions = self.edit(corpus, tokenizer, questions)
        if questions or self.salient_share:
            corpus = add_titles_and_spans(corpus, self.ask_dates)
        max_length = tokenizer.model_max_length
        documents = tokenize_corpus(corpus, tokenizer, compute_longest_cut(max_length))
        dataset = SpanCorruptionDataset(documents, tokenizer, seed, self, questions)
        collator = SpanCorruptionCollator(tokenizer, self.loss_on_span, self.closing_mask)
        return TrainingData(dataset, collator, dataset.describe())

    def build_prompt(self, relation, title, text, start, end, max_length) -> str | None:
        longest = compute_longest_cut(max_length)
        return f"{text[:start]}{MASK_TOKEN}{text[end:longest]}" if end <= longest else None


class SpanCorruptionDataset(EpochDataset):
    """Documents, each with the cuts that an epoch makes in it, or a training question about its title instead.

    The documents are from `tokenize_corpus`; for salient spans and questions they have the columns of `add_titles_and_spans`.
    """

    def __init__(
        self,
        documents: Dataset,
        tokenizer: PreTrainedTokenizerBase,
        seed: int,
        config: SpanCorruptionConfig | None = None,
        questions: Questions | None = None,
    ):
        super().__init__(seed)
        self.config = config or SpanCorruptionConfig()
        self.documents = documents.with_format("numpy", columns=["input_ids"], output_all_columns=True)
        self.document_lengths = documents.data.column("length").to_numpy()
        self.max_length = tokenizer.model_max_length
        # By title, encoded.
        self.questions = encode_by_title(questions, tokenizer) if questions else {}
        self._cuts: tuple[int, np.ndarray] = (-1, np.empty(0))

    def __len__(self) -> int:
        return len(self.documents)

    def describe(self) -> str:
        """Say what is read, and what is left out."""
        longer, longest = int((self.document_lengths > self.max_length).sum()), compute_longest_cut(self.max_length)
        described = (
            f"{len(self):,} documents, {self.document_lengths.sum():,} characters. {longer:,} documents are longer than the maximum"
            f" sequence length of {self.max_length}: span corruption reads at most the first {longest} characters of a document."
        )
        if self.questions:
            without = len(self.questions.keys() - self.documents.unique("title"))
            described += f" Questions about {len(self.questions) - without:,} titles are mixed in."
            if without:
                described += f" Those about {without:,} others, which no document has, are left out."
        return described

    def cuts(self, epoch: int) -> np.ndarray:
        """(documents, 3) integers: see `draw_cuts`."""
        if self._cuts[0] != epoch:
            rng, cuts = np.random.default_rng([self.seed, epoch]), np.empty((len(self), 3), np.int32)
            # Drawn for some documents after others, the numbers are the same, and few of them are in memory.
            for start in range(0, len(self), _BLOCK):
                lengths = self.document_lengths[start : start + _BLOCK]
                cuts[start : start + _BLOCK] = draw_cuts(rng.random((len(lengths), 3)), lengths, self.max_length)
            self._cuts = (epoch, cuts)
        return self._cuts[1]

    def lengths(self, epoch: int) -> np.ndarray:
        """(documents,) integers: the truncated lengths."""
        return self.cuts(epoch)[:, 0]

    def __getitems__(self, items: list[int]) -> list[dict]:
        """Features of `SpanCorruptionCollator`: `input_ids` (tokens,) and `cuts` (3,), or an encoded question."""
        indices = [item % len(self) for item in items]
        batch = self.documents[indices]
        features = [
            {"input_ids": ids, "cuts": self.cuts(item // len(self))[index]}
            for item, index, ids in zip(items, indices, batch["input_ids"], strict=True)
        ]
        if not (self.config.salient_share or self.questions):
            return features
        for place, (item, index) in enumerate(zip(items, indices, strict=True)):
            rng = np.random.default_rng([self.seed, item // len(self), 0, index])
            length = features[place]["cuts"][0]
            within = [span for span in batch["spans"][place] if span[1] <= length] if self.config.salient_share else []
            questions = self.questions.get(batch["title"][place]) if self.questions else None
            if questions and rng.random() < self.config.question_share:
                features[place] = draw_one(questions, rng)
            elif within and rng.random() < self.config.salient_share:
                features[place]["cuts"] = np.array([length, *draw_one(within, rng)])
        return features


class SpanCorruptionCollator(RightPaddingCollator):
    """Make a batch of `prefix⁇suffix⁇masked⁇` out of the features of a `SpanCorruptionDataset`.

    The loss covers all but padding, or with `loss_on_span` the masked characters and the `⁇` after them; an encoded
    question keeps its own labels. Without `closing_mask` the last `⁇` is missing.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, loss_on_span: bool = False, closing_mask: bool = True):
        super().__init__(tokenizer)
        self.loss_on_span = loss_on_span
        self.closing_mask = closing_mask
        self.mask_token_id = tokenizer.mask_token_id

    def __call__(self, features: list[dict]) -> dict[str, torch.Tensor]:
        """Return `input_ids` and `labels`, each (batch, longest row)."""
        return super().__call__([feature if "labels" in feature else self._corrupt(**feature) for feature in features])

    def _corrupt(self, input_ids: np.ndarray, cuts: np.ndarray) -> dict[str, np.ndarray]:
        mask = [self.mask_token_id]
        length, start, end = cuts
        prefix, suffix, masked = input_ids[:start], input_ids[end:length], input_ids[start:end]
        row = np.concatenate([prefix, mask, suffix, mask, masked, *([mask] if self.closing_mask else [])])
        labels = row.copy()
        if self.loss_on_span:
            labels[: len(prefix) + len(suffix) + 2] = -100
        return {"input_ids": row, "labels": labels}
