"""Data that is drawn anew every epoch, as a function of (seed, epoch, document) alone."""

from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import Sampler


class EpochDataset(torch.utils.data.Dataset):
    """Documents, each turned into the example that this epoch draws from it.

    What is drawn is a function of (seed, epoch, document): not of the number of workers, of processes or of the order in
    which documents are read, so that a resumed run reads just what the uninterrupted one would have. Items are numbered
    `epoch * len(self) + document`: the number says the epoch even to a worker that lives through many.

    Subclasses give `__len__`, `lengths` and `__getitems__`.

    Args:
        seed: What all draws follow from.
    """

    def __init__(self, seed: int):
        self.seed = seed
        self.epoch = 0

    def __len__(self) -> int:
        raise NotImplementedError

    def lengths(self, epoch: int) -> np.ndarray:
        """(documents,) integers: how long each document's example of this epoch is, for batches of like length."""
        raise NotImplementedError

    def __getitems__(self, items: list[int]) -> list[dict]:
        raise NotImplementedError

    def __getitem__(self, item: int) -> dict:
        return self.__getitems__([item])[0]

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next pass is; Trainer calls it."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[dict]:
        """This epoch's examples in the documents' order. Without it, iteration would run on into all later epochs."""
        return (self[self.epoch * len(self) + document] for document in range(len(self)))


class EpochSampler(Sampler):
    """The order of one epoch, a function of (seed, epoch); with `group_by_length`, batches of like length.

    Grouping sorts within groups of `GROUP` batches, then shuffles the batches, so that chance still mixes documents.
    """

    GROUP = 50

    def __init__(self, dataset: EpochDataset, batch_size: int, group_by_length: bool):
        self.dataset = dataset
        self.batch_size = batch_size
        self.group_by_length = group_by_length

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[int]:
        epoch, size = self.dataset.epoch, len(self.dataset)
        rng = np.random.default_rng([self.dataset.seed, epoch, 1])
        order = rng.permutation(size)
        if self.group_by_length:
            lengths = self.dataset.lengths(epoch)
            group = self.batch_size * self.GROUP
            groups = (order[start : start + group] for start in range(0, size, group))
            order = np.concatenate([part[np.argsort(lengths[part], kind="stable")] for part in groups])
            batches = [order[start : start + self.batch_size] for start in range(0, size, self.batch_size)]
            # The smaller last batch has to stay last: BatchSampler cuts the order every `batch_size` items.
            shuffled = rng.permutation(len(batches) - 1)
            order = np.concatenate([*(batches[number] for number in shuffled), batches[-1]])
        return iter((epoch * size + order).tolist())
