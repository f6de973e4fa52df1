"""Causal language modeling: each character of a document is predicted from those before it.

It is what published figures on stored knowledge rest on (Allen-Zhu and Li 2023, arXiv 2309.14316), as a baseline for the other
objectives. Documents, each with `⁇` at its end, are packed into rows, in which each sees itself alone:

    Ada Ek. Born in Rome .⁇Bo Li. Ada's cousin .⁇Where was Ada Ek born?⁇Rome⁇

A document longer than a row is cut into pieces; each begins with the last character of the one before it. Training questions are
mixed in, with loss on their answers (mixed training: the same paper, sec. 3).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from data_scripts.collators import NameWindowsCollator
from data_scripts.documents import tokenize_corpus
from data_scripts.epochs import EpochDataset, draw_one
from data_scripts.errors import BadInput
from data_scripts.objective_config import ObjectiveConfig, TrainingData
from data_scripts.questions import Questions, encode_by_title
from data_scripts.relations import BIRTHPLACE
from data_scripts.titles import iterate_titles


@dataclass
class CausalLMConfig(ObjectiveConfig):
    """The options of causal language modeling: those that all objectives have."""

    name = "causal_lm"
    packs_texts = True

    def build(self, corpus, tokenizer, seed, questions=None, relations=(BIRTHPLACE,)) -> TrainingData:
        corpus, questions = self.edit(corpus, tokenizer, questions)
        titles = list(iterate_titles(corpus)) if questions else ()
        if tokenizer.model_max_length < 2:
            raise BadInput("block_size is 1, which leaves nothing to predict a character from; choose at least 2.")
        documents = tokenize_corpus(corpus, tokenizer)
        dataset = PackedDataset(documents, tokenizer, seed, self.question_share, titles, questions)
        return TrainingData(dataset, NameWindowsCollator(tokenizer), dataset.describe())

    def build_prompt(self, relation, title, text, start, end, max_length) -> str | None:
        return text[:start] if end <= max_length else None


def pack(sizes: np.ndarray, room: int) -> list[list[int]]:
    """Put texts of these sizes (texts,) into rows with `room` characters each: the longest first, each where it fits best.

    Returns:
        The numbers of the texts of each row.
    """
    rows: list[list[int]] = []
    # The rows that have so much room left.
    by_rest: list[list[list[int]]] = [[] for _ in range(room + 1)]
    for text in np.argsort(-sizes, kind="stable").tolist():
        size = int(sizes[text])
        rest = next((each for each in range(size, room) if by_rest[each]), room)
        if rest == room:
            rows.append([])
        row = by_rest[rest].pop() if rest < room else rows[-1]
        row.append(text)
        by_rest[rest - size].append(row)
    return rows


class PackedDataset(EpochDataset):
    """Rows of whole documents, or pieces of long ones, and of questions, which epochs draw; each keeps its row.

    Args:
        documents: From `tokenize_corpus`.
        question_share: How often a document comes with one of the questions about its title.
        titles: Those of the documents, if there are questions.
    """

    def __init__(
        self,
        documents: Dataset,
        tokenizer: PreTrainedTokenizerBase,
        seed: int,
        question_share: float = 0.0,
        titles: Sequence[str] = (),
        questions: Questions | None = None,
    ):
        super().__init__(seed)
        self.documents, self.question_share = documents.with_format("numpy"), question_share
        self.max_length, self.mask_token_id = tokenizer.model_max_length, tokenizer.mask_token_id
        # With `⁇`.
        lengths = documents.data.column("length").to_numpy() + 1
        pieces = np.maximum(-(-(lengths - 1) // (self.max_length - 1)), 1)
        # (texts,): the document of each piece, and where in it the piece begins.
        self.document_of = np.repeat(np.arange(len(lengths)), pieces)
        first = np.repeat(np.cumsum(pieces) - pieces, pieces)
        self.begin_of = (np.arange(len(first)) - first) * (self.max_length - 1)
        sizes = np.minimum(lengths[self.document_of] - self.begin_of, self.max_length)
        # A title's questions, which have the numbers behind the documents' pieces, one set for each of its documents.
        about = encode_by_title(questions, tokenizer) if questions else {}
        self.num_asked, alone = len(about), about.keys() - set(titles)
        self.asked = [about[title] for title in (*titles, *sorted(alone)) if title in about]
        longest = [max(len(each["input_ids"]) for each in own) for own in self.asked]
        sizes = np.append(sizes, np.array(longest, sizes.dtype))
        self.rows = pack(sizes, self.max_length)
        self.sizes = np.array([sizes[row].sum() for row in self.rows])
        self.num_characters = int(lengths.sum() - len(lengths))

    def __len__(self) -> int:
        return len(self.rows)

    def lengths(self, epoch: int) -> np.ndarray:
        """(rows,) integers: with all questions that may be drawn."""
        return self.sizes

    def describe(self) -> str:
        """Say what is read."""
        described = (
            f"{len(self.documents):,} documents, {self.num_characters:,} characters, in {len(self):,} rows of at most"
            f" {self.max_length:,}."
        )
        return described + (f" Questions about {self.num_asked:,} titles are mixed in." if self.asked else "")

    def __getitems__(self, items: list[int]) -> list[dict]:
        """Features of `NameWindowsCollator`; the first character of a text, which follows nothing, has no loss."""
        rows = [(item, self.rows[item % len(self)]) for item in items]
        numbers = {int(self.document_of[text]) for _, row in rows for text in row if text < len(self.document_of)}
        order = sorted(numbers)
        # Reading the documents of all rows at once takes less time than one by one.
        documents = dict(zip(order, self.documents[order]["input_ids"], strict=True)) if order else {}
        return [self._draw_row(item, row, documents) for item, row in rows]

    def _draw_row(self, item: int, row: list[int], documents: dict[int, np.ndarray]) -> dict:
        epoch, index = divmod(item, len(self))
        rng = np.random.default_rng([self.seed, epoch, 0, index])
        texts = []
        for text in row:
            if text < len(self.document_of):
                document, begin = documents[self.document_of[text]], self.begin_of[text]
                ids = document[begin : begin + self.max_length].tolist()
                if begin + self.max_length > len(document):
                    ids.append(self.mask_token_id)
                # The first character of a piece has its loss in the one before it.
                texts.append((ids, [-100, *ids[1:]]))
            else:
                own = self.asked[text - len(self.document_of)]
                drawn = draw_one(own, rng)
                if rng.random() < self.question_share:
                    texts.append((drawn["input_ids"], drawn["labels"]))
        # A row whose questions are all left out reads one without loss.
        texts = texts or [(drawn["input_ids"], [-100] * len(drawn["labels"]))]
        ids, labels = (list(chain(*parts)) for parts in zip(*texts, strict=True))
        return {"input_ids": ids, "labels": labels, "windows": [0, *(len(own) for own, _ in texts)]}
