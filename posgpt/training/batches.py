"""The batches of a training step: rows that processes read twice, and what messages call the rows."""

import math
from itertools import islice
from typing import Any, cast

import torch
from accelerate.state import GradientState
from transformers import TrainingArguments

from data_scripts.epochs import EpochDataset
from modeling_posgpt import PosGPTConfig


def blank_repeated_rows(
    batch: dict[str, torch.Tensor], state: GradientState, args: TrainingArguments
) -> dict[str, torch.Tensor]:
    """Turn into padding the rows that only fill up a dataset's last batches, which would count twice.

    Accelerate repeats rows until all processes have as many. A row is one text, unless the collator says in
    `texts_of_rows` (rows,) how many texts each is. `state` is of the batch that was read last, which is this one.
    """
    texts = batch.pop("texts_of_rows", None)
    if args.world_size == 1 or not state.end_of_dataloader:
        return batch
    if texts is None:
        texts = torch.ones(len(batch["labels"]), dtype=torch.int64)
    loader: Any = state.active_dataloader
    # Accelerate does not know its own remainder in an epoch that is resumed.
    step = len(texts) * args.world_size
    rows = len(loader.dataset) % step or step
    own = min(max(rows - args.process_index * len(texts), 0), len(texts))
    repeated = slice(int(texts[:own].sum()), None)
    batch["input_ids"][repeated] = cast(int, PosGPTConfig.pad_token_id)
    batch["labels"][repeated] = -100
    return batch


def describe_batch(dataset: EpochDataset, loader: Any, step: int, accumulated: int) -> str:
    """Return which documents or examples this process reads in a training step (from 0) of `accumulated` batches."""
    epoch, step = divmod(step, math.ceil(len(loader) / accumulated))
    # The order is a function of the epoch.
    loader.set_epoch(epoch)
    batches = islice(loader.batch_sampler, step * accumulated, (step + 1) * accumulated)
    names = (dataset.name_document(item % len(dataset)) for batch in batches for item in batch)
    return f"{dataset.unit} {', '.join(dict.fromkeys(names))}"
