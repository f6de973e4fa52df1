"""What a training that goes on from a checkpoint checks of it, and which of its options it brings along."""

from contextlib import AbstractContextManager
from copy import deepcopy
from typing import Any

from torch.distributed.checkpoint import CheckpointException
from transformers import TrainerCallback

from data_scripts.errors import BadInput
from posgpt.training.errors import reraise_as_bad_input


def refuse_checkpoint(checkpoint: str) -> AbstractContextManager[None]:
    """Say in one line that a checkpoint is of another model or optimizer; its readers may raise almost any exception."""
    problem = f"{checkpoint}: cannot be resumed from with these options"
    fix = "give those that it was saved with, or another checkpoint."
    return reraise_as_bad_input(problem, fix, BadInput, Exception, CheckpointException)


def list_settings(optimizer: Any) -> list[dict[str, Any]]:
    """Return the settings of an optimizer's groups of parameters."""
    return deepcopy([{**group, "params": None} for group in optimizer.param_groups])


class ResumeCallback(TrainerCallback):
    """Checks the state that Trainer has loaded before the first step, and gives this run's options to it.

    Attributes:
        own: From `list_settings`, before a checkpoint's state is loaded.
        has_begun: Whether the first step has begun.
    """

    def __init__(self) -> None:
        self.own: list[dict[str, Any]] = []
        self.has_begun = False

    def on_train_begin(self, args, state, control, optimizer=None, lr_scheduler=None, **kwargs):
        if state.global_step > state.max_steps:
            raise BadInput(
                f"{args.output_dir}: the checkpoint is of step {state.global_step:,}, but training is to end after step"
                f" {state.max_steps:,}; choose a larger --max_steps or --num_train_epochs."
            )
        for group, own in zip(optimizer.param_groups, self.own, strict=True):
            if other := own.keys() - group.keys():
                raise ValueError(f"its optimizer has no {', '.join(sorted(other))}")
            # Multiplying by 1 would not change a bit, but a peak rate of 0 cannot be scaled.
            if group.get("initial_lr") and own["initial_lr"] != group["initial_lr"]:
                group["lr"] *= own["initial_lr"] / group["initial_lr"]
            group |= {name: own[name] for name in ("initial_lr", "weight_decay", "betas", "eps") if name in own}
        if hasattr(lr_scheduler, "base_lrs"):
            lr_scheduler.base_lrs = [group["initial_lr"] for group in self.own]
            lr_scheduler._last_lr = [group["lr"] for group in optimizer.param_groups]

    def on_step_begin(self, args, state, control, **kwargs):
        self.has_begun = True
