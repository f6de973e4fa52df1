"""The batches of a training step: rows that processes read twice."""

from typing import Any, cast

import torch
from accelerate.state import GradientState
from transformers import TrainingArguments

from modeling_posgpt import PosGPTConfig


def blank_repeated_rows(
    batch: dict[str, torch.Tensor], state: GradientState, args: TrainingArguments
) -> dict[str, torch.Tensor]:
    """Turn into padding the rows that only fill up a dataset's last batches, which would count twice.

    Accelerate repeats rows until all processes have as many. `state` is of the batch that was read last, which is this one.
    """
    if args.world_size == 1 or not state.end_of_dataloader:
        return batch
    loader, size = cast(Any, state.active_dataloader), len(batch["labels"])
    # Accelerate does not know its own remainder in an epoch that is resumed.
    step = size * args.world_size
    rows = len(loader.dataset) % step or step
    own = min(max(rows - args.process_index * size, 0), size)
    batch["input_ids"][own:] = cast(int, PosGPTConfig.pad_token_id)
    batch["labels"][own:] = -100
    return batch
