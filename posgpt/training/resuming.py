"""Whether a checkpoint's state fits the training that is to go on from it, and which options that training brings."""

import math
from contextlib import AbstractContextManager
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import CheckpointException
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback, TrainerState
from transformers.trainer import TRAINER_STATE_NAME

from data_scripts.errors import BadInput
from modeling_posgpt import PosGPTConfig
from posgpt.training.checkpoints import WEIGHTS_FILE
from posgpt.training.errors import reraise_as_bad_input
from posgpt.training.muon import MuonWithAdamW
from posgpt.training.saved_models import load_pickle, load_weights


def refuse_checkpoint(checkpoint: str) -> AbstractContextManager[None]:
    """Say in one line that a checkpoint's state is malformed, or of another model or optimizer.

    A malformed file can make its reader raise almost any exception; torch unpickles without running code.
    """
    problem = f"{checkpoint}: cannot be resumed from with these options"
    fix = "give those that it was saved with, or another checkpoint."
    return reraise_as_bad_input(problem, fix, BadInput, Exception, CheckpointException)


def check_files(checkpoint: Path, config: PosGPTConfig, own: TrainerState) -> None:
    """Check what Trainer would take from a checkpoint's files as it finds it.

    Args:
        own: The state of a training that has not begun.

    Raises:
        Exception: a file is not as training saves it; almost any exception can be the sign of it.
    """
    state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
    counted = dict.fromkeys(("epoch", "total_flos", "logging_steps", "eval_steps", "save_steps"), 0.0)
    check_alike(vars(state) | {"log_history": []}, vars(TrainerState(train_batch_size=1)) | counted, "state")
    for entry in state.log_history:
        if not all(isinstance(entry.get(name, 0.0), float | int) for name in ("loss", "eval_accuracy")):
            raise ValueError("its log is not as training saves it")
    if not isinstance(state.best_model_checkpoint, str | None):
        raise ValueError("its best_model_checkpoint is not a folder")
    if missing := set(own.stateful_callbacks or ()) - set(state.stateful_callbacks or ()):
        raise ValueError(f"its stateful_callbacks lack {', '.join(map(str, missing))}")
    if not any(checkpoint.glob("optimizer*")):
        raise ValueError("it has weights alone (save_only_model)")
    for file in checkpoint.glob("*.pt"):
        load_pickle(file)
    # Trainer would leave weights as they are for which the file has none.
    if (weights := checkpoint / WEIGHTS_FILE).is_file():
        load_weights(weights, config)


def check_alike(saved: Any, own: Any, name: str) -> None:
    """Check that what a checkpoint holds has the keys, lengths and types of what this training holds.

    None in this training stands for anything but a container; a dictionary may hold more.

    Raises:
        ValueError: it does not.
    """
    if own is None:
        is_alike = not isinstance(saved, list | tuple | dict)
    elif isinstance(own, dict):
        is_alike = isinstance(saved, dict) and own.keys() <= saved.keys()
    elif isinstance(own, list | tuple):
        is_alike = isinstance(saved, list | tuple) and len(saved) == len(own)
    elif isinstance(own, float):
        # A schedule may begin with infinity.
        is_alike = isinstance(saved, int | float) and (math.isfinite(saved) or not math.isfinite(own))
    else:
        is_alike = type(saved) is type(own)
    if not is_alike:
        raise ValueError(f"its {name} is not as training saves it")
    if isinstance(own, dict | list | tuple):
        for key in own if isinstance(own, dict) else range(len(own)):
            check_alike(saved[key], own[key], f"{name} {key}")


def check_optimizer_state(optimizer: torch.optim.Optimizer) -> None:
    """Check that what an optimizer keeps of each parameter has the parameter's shape, or is one number.

    Raises:
        ValueError: it does not.
    """
    for group in optimizer.param_groups:
        states = {each: optimizer.state[each] for each in group["params"] if each in optimizer.state}
        if len({frozenset(state) for state in states.values()}) > 1:
            raise ValueError("its optimizer keeps different things of its parameters")
        for parameter, state in states.items():
            for name, value in state.items():
                is_number = isinstance(value, torch.Tensor) and value.is_floating_point() and value.isfinite().all()
                if not is_number or value.shape not in (parameter.shape, ()):
                    raise ValueError(f"its optimizer's {name} is not as training saves it")


def list_settings(optimizer: Any, scheduler: Any) -> list[Any]:
    """Return what optimizer and schedule keep besides their states of parameters."""
    return deepcopy([[{**group, "params": None} for group in optimizer.param_groups], scheduler.state_dict()])


class ResumeCallback(TrainerCallback):
    """Checks the state that Trainer has loaded before the first step, and gives this run's options to it.

    Attributes:
        own: From `list_settings`, before a checkpoint's state is loaded.
        has_begun: Whether the first step has begun.
    """

    def __init__(self) -> None:
        self.own: list[Any] = []
        self.has_begun = False

    def on_train_begin(self, args, state, control, optimizer=None, lr_scheduler=None, **kwargs):
        if state.global_step > state.max_steps:
            raise BadInput(
                f"{args.output_dir}: the checkpoint is of step {state.global_step:,}, but training is to end after step"
                f" {state.max_steps:,}; choose a larger --max_steps or --num_train_epochs."
            )
        check_alike(list_settings(optimizer, lr_scheduler), self.own, "optimizer's or scheduler's state")
        inner = getattr(optimizer, "optimizer", optimizer)
        # Others keep more than tensors like their parameters, and shards only parts of them.
        is_sharded = any(isinstance(each, DTensor) for group in inner.param_groups for each in group["params"])
        if isinstance(inner, torch.optim.AdamW | MuonWithAdamW) and not is_sharded:
            check_optimizer_state(inner)
        groups, schedule = self.own
        for group, own in zip(optimizer.param_groups, groups, strict=True):
            # Multiplying by 1 would not change a bit, but a peak rate of 0 cannot be scaled.
            if group.get("initial_lr") and own["initial_lr"] != group["initial_lr"]:
                group["lr"] *= own["initial_lr"] / group["initial_lr"]
            group |= {name: own[name] for name in ("initial_lr", "weight_decay", "betas", "eps") if name in own}
        if "base_lrs" in schedule:
            lr_scheduler.base_lrs = schedule["base_lrs"]
            lr_scheduler._last_lr = [group["lr"] for group in optimizer.param_groups]

    def on_step_begin(self, args, state, control, **kwargs):
        self.has_begun = True
