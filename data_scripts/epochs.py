"""Training data that is drawn again in each epoch, as a function of (seed, epoch, example), and in which order it is read."""

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Sampler


class EpochDataset(torch.utils.data.Dataset):
    """Examples that are drawn again in each epoch; of a document there may be one, or several.

    What is drawn is a function of (seed, epoch, example): not of the number of workers, of processes or of the order in
    which examples are read, so that a resumed run reads exactly what the uninterrupted one would have. Items are numbered
    `epoch * len(self) + example`, so that the number tells a data worker the epoch even if it lives through many. (Passes
    over some documents at the beginning of training, see `EpochSampler`, count as epochs here.)

    Subclasses give `__len__`, `lengths` and `__getitems__`.
    """

    # How many spans of a document a relation asks for, at most; 0: they are not counted.
    max_spans = 0
    # How often an epoch reads what it is to store, on average: here, each example once.
    exposures_per_epoch: Any = 1.0
    # The loss of a model that knows what is asked for and how often, but not of which document; None: unknown.
    loss_without_facts: Any = None

    def __init__(self, seed: int):
        self.seed = seed
        self.epoch = 0

    def __len__(self) -> int:
        raise NotImplementedError

    def lengths(self, epoch: int) -> np.ndarray:
        """(examples,) integers: the length of each example in an epoch, for batches of similar length."""
        raise NotImplementedError

    def __getitems__(self, items: list[int]) -> list[dict]:
        raise NotImplementedError

    def __getitem__(self, item: int) -> dict:
        return self.__getitems__([item])[0]

    def list_asked(self, titles: Collection[str]) -> dict[str, list[str]]:
        """Return what is asked for of documents, by their titles; nothing where it is drawn anew in each epoch."""
        return {}

    def read_fewer_spans(self, share: float) -> "EpochDataset":
        """Return what asks for about this share of the spans of each document; here, the dataset itself."""
        return self

    def choose_examples(self, share: float) -> np.ndarray:
        """(examples,) integers: those of a share of the documents, at least one, the same ones whenever asked."""
        return self._choose(len(self), share)

    def _choose(self, count: int, share: float) -> np.ndarray:
        return np.random.default_rng([self.seed, 2]).permutation(count)[: max(round(share * count), 1)]

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass; Trainer calls it."""
        self.epoch = epoch


class EpochSampler(Sampler):
    """The order of one epoch, a function of (seed, epoch).

    Args:
        dataset: What is read.
        batch_size: Rows per training step, in all its batches and on all processes: however a step is divided, it reads
            the same documents.
        strategy: One of `STRATEGIES`: in random order; in the dataset's own; or in steps of similar length, by sorting
            within groups of `GROUP` steps and then shuffling the steps, so that chance still mixes documents.
        sort_steps: Whether the examples of a step are sorted by length: divided into batches, the step computes the same,
            with less padding. With group_by_length they are anyway.
        first_shares: Training begins with a pass over each of these shares of the documents, the smaller within the larger
            (Zucchet et al. 2025, arXiv 2503.21676: how long it takes until a model learns facts at all grows with their number).
            They take the place of as many examples of the first epochs; an epoch has as many examples as the dataset.
    """

    STRATEGIES = ("random", "sequential", "group_by_length")
    GROUP = 50
    CHUNK = 10_000

    def __init__(
        self,
        dataset: EpochDataset,
        batch_size: int,
        strategy: str,
        sort_steps: bool = False,
        first_shares: Sequence[float] = (),
    ):
        self.dataset, self.batch_size, self.strategy = dataset, batch_size, strategy
        self.sort_steps, self.first_shares = sort_steps, first_shares

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[int]:
        for number, order in self._list_passes():
            # A list of all items would take ten times the array's memory.
            for begin in range(0, len(order), self.CHUNK):
                yield from (order[begin : begin + self.CHUNK].astype(np.int64) + number * len(self.dataset)).tolist()

    def _list_passes(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield what the epoch reads of each pass: the number of the pass, of all epochs, and its examples in their order."""
        size = left = len(self.dataset)
        # How many examples of the first passes earlier epochs have read, in whole steps.
        read = self.dataset.epoch * math.ceil(size / self.batch_size) * self.batch_size
        examples_of = {share: self.dataset.choose_examples(share) for share in set(self.first_shares)}
        for number, share in enumerate(self.first_shares):
            length = math.ceil(len(examples_of[share]) / self.batch_size) * self.batch_size
            if read < length and left:
                # All examples are an epoch, whose last step may be smaller, if they begin one; else some are read again to fill it.
                filled = size if length >= size == left and not read else length
                order = self._order(np.resize(examples_of[share], filled), number)[read:][:left]
                left -= len(order)
                yield number, order
            read = max(read - length, 0)
        if left:
            # One to four bytes for an example, where a permutation has eight.
            everything = np.arange(size, dtype=np.min_scalar_type(size))
            number = self.dataset.epoch + len(self.first_shares)
            yield number, self._order(everything, number)[:left]

    def _order(self, examples: np.ndarray, number: int) -> np.ndarray:
        """Return these examples (examples,) in the order of the pass of this number; shuffles `examples` in place."""
        rng, size = np.random.default_rng([self.dataset.seed, number, 1]), len(examples)
        if self.strategy == "sequential":
            examples.sort()
        else:
            rng.shuffle(examples)
        if self.strategy == "group_by_length":
            order = self._sort_groups(examples, number, self.batch_size * self.GROUP)
            steps = [order[start : start + self.batch_size] for start in range(0, size, self.batch_size)]
            # The smaller last step has to stay last: the order is cut every `batch_size` items.
            shuffled = rng.permutation(len(steps) - 1)
            return np.concatenate([*(steps[i] for i in shuffled), steps[-1]])
        return self._sort_groups(examples, number, self.batch_size) if self.sort_steps else examples

    def _sort_groups(self, order: np.ndarray, number: int, group: int) -> np.ndarray:
        """Sort each run of `group` examples by length."""
        lengths = self.dataset.lengths(number)
        groups = (order[start : start + group] for start in range(0, len(order), group))
        return np.concatenate([part[np.argsort(lengths[part], kind="stable")] for part in groups])


def draw_one(values: Sequence, rng: np.random.Generator) -> Any:
    """Draw one of several values; a single one takes no random number."""
    return values[int(rng.integers(len(values)))]


class FixedDataset(EpochDataset):
    """Examples that are the same in every epoch, such as encoded questions; only their order is drawn."""

    def __init__(self, examples: Sequence[dict], seed: int):
        super().__init__(seed)
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def lengths(self, epoch: int) -> np.ndarray:
        """(examples,) integers: their lengths."""
        return np.array([len(example["input_ids"]) for example in self.examples])

    def __getitems__(self, items: list[int]) -> list[dict]:
        """The examples' own features."""
        return [self.examples[item % len(self)] for item in items]
