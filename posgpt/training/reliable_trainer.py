"""A Trainer that loses no work: what it saves is whole or not there, and it stops before a weight becomes NaN or infinite."""

import json
import math
import os
import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from itertools import islice
from pathlib import Path
from typing import Any, cast

import torch
from accelerate.utils import broadcast_object_list
from safetensors import SafetensorError
from torch import nn
from torch.distributed.checkpoint import CheckpointException
from transformers import Trainer, TrainerCallback, TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from transformers.utils import logging

from data_scripts.errors import BadInput
from data_scripts.options import shorten_error
from posgpt.training.checkpoints import (
    WEIGHTS_FILE,
    find_last_checkpoint,
    list_checkpoints,
    open_checkpoint,
    seal_checkpoint,
)
from posgpt.training.muon import MuonWithAdamW
from posgpt.training.saved_models import load_pickle, load_weights

# A logged loss above SPIKE times the median of the SPIKE_WINDOW before it is marked in the log.
SPIKE, SPIKE_WINDOW = 2.0, 20
# Training that ends with a logged loss this far above the lowest one, in nats per character, says so.
RISE = 0.3

# The variable with the name of a process's file for torch's launcher.
LAUNCHER_REPORT = "TORCHELASTIC_ERROR_FILE"

logger = logging.get_logger(__name__)


@contextmanager
def remove_if_unsaved(folder: Path) -> Iterator[None]:
    """Remove `folder` where the block fails to save into it.

    Raises:
        OSError: it failed; torch and safetensors have other exceptions for that.
    """
    try:
        yield
    except (OSError, RuntimeError, SafetensorError, CheckpointException) as error:
        shutil.rmtree(folder, ignore_errors=True)
        # torch's message about a failed write does not help.
        hint = " (is the disk full?)" if isinstance(error, RuntimeError) else ""
        raise OSError(f"{folder.name} could not be saved{hint}: {shorten_error(error)}") from error


@contextmanager
def name_checkpoint(checkpoint: str | None) -> Iterator[None]:
    """Name the checkpoint where its state is refused: it is malformed, or of another model or optimizer.

    A malformed file can make its reader raise almost any exception; torch unpickles without running code.

    Raises:
        BadInput: it was.
    """
    try:
        yield
    except (Exception, CheckpointException) as error:
        raise BadInput(
            f"{checkpoint}: cannot be resumed from with these options: {shorten_error(error)}; give those that it was"
            " saved with, or another checkpoint."
        ) from None


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


class EndCheck(TrainerCallback):
    """Refuses to resume a training that is to end before its checkpoint, which Trainer would call finished.

    And warns of one that ends with a far higher loss than it once had, which would look like any other: all its figures are
    finite.
    """

    def on_train_begin(self, args, state, control, **kwargs):
        if state.global_step > state.max_steps:
            raise BadInput(
                f"{args.output_dir}: the checkpoint is of step {state.global_step:,}, but training is to end after step"
                f" {state.max_steps:,}; choose a larger --max_steps or --num_train_epochs."
            )

    def on_train_end(self, args, state, control, **kwargs):
        logged = [(entry["loss"], entry["step"]) for entry in state.log_history if "loss" in entry]
        if not (logged and state.is_world_process_zero):
            return
        (lowest, step), (last, _) = min(logged), logged[-1]
        if last > lowest + RISE:
            logger.warning(
                f"{args.output_dir}: the loss is {last:.2f} at the end of training, and was {lowest:.2f} after step {step:,}."
                " Unless the data became harder in between (--first_shares), training has diverged; most often a lower"
                " --learning_rate helps."
            )


class ReliableTrainer(Trainer):
    """Trainer with checkpoints that are sealed when they are whole (see `find_damage`), resumed exactly.

    It stops at a loss or gradient that is not finite, before a weight changes.
    """

    args: Any

    def __init__(self, model: nn.Module, args: TrainingArguments, **kwargs):
        # It would put earlier losses in place of NaN, and ask an accelerator for the loss twice in every forward pass.
        args.logging_nan_inf_filter = False
        super().__init__(model, args, **kwargs)
        self.add_callback(EndCheck())

    def evaluate(self, *args, **kwargs) -> dict[str, float]:
        """Evaluate, and leave the random numbers of training as they are.

        A data loader draws one as it starts. A run that is resumed at the end of an epoch does not evaluate that again.
        """
        with torch.random.fork_rng(devices=[]):
            return super().evaluate(*args, **kwargs)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log, with `loss_spike` for a loss far above the ones before: how many times their median it is."""
        losses = [entry["loss"] for entry in self.state.log_history if "loss" in entry][-SPIKE_WINDOW:]
        if "loss" in logs and len(losses) == SPIKE_WINDOW and logs["loss"] > SPIKE * statistics.median(losses):
            logs["loss_spike"] = logs["loss"] / statistics.median(losses)
        super().log(logs, start_time)

    def _get_grad_norm(self, model: nn.Module, grad_norm: torch.Tensor | None = None) -> torch.Tensor:
        """Return the gradient's norm. Trainer calls this in every training step, before the optimizer changes a weight.

        Raises:
            BadInput: the norm, or the sum of the losses since the last log, is not finite. An accelerator is waited for
                once, where Trainer's own filter of losses waits twice in every forward pass.
        """
        norm = super()._get_grad_norm(model, grad_norm)
        # Gradients in fp16 may overflow: their scaler leaves such a step out.
        checked = self._tr_loss if self.accelerator.scaler else self._tr_loss + norm
        if not torch.isfinite(checked):
            what = "gradient" if torch.isfinite(self._tr_loss) else "loss"
            raise BadInput(
                f"step {self.state.global_step + 1}: the {what} is {checked.item()}, at a learning rate of"
                f" {self._get_learning_rate():.4g} and in a batch of the {self._describe_batch()};"
                f" {self._describe_last_checkpoint()}. Most often a lower --learning_rate helps."
            )
        return norm

    def _describe_batch(self) -> str:
        """Return which documents or examples this process reads in the current training step."""
        dataset, loader = cast(Any, self.train_dataset), cast(Any, self.callback_handler.train_dataloader)
        accumulated = self.args.gradient_accumulation_steps
        epoch, step = divmod(self.state.global_step, math.ceil(len(loader) / accumulated))
        # The order is a function of the epoch.
        loader.set_epoch(epoch)
        batches = islice(loader.batch_sampler, step * accumulated, (step + 1) * accumulated)
        names = (dataset.name_document(item % len(dataset)) for batch in batches for item in batch)
        return f"{dataset.unit} {', '.join(dict.fromkeys(names))}"

    def _check_weights(self) -> None:
        # A step that went wrong would show in the next one's loss, when its weights are the newest checkpoint.
        if not all(parameter.isfinite().all() for parameter in cast(nn.Module, self.model).parameters()):
            raise BadInput(
                f"step {self.state.global_step}: the weights are not finite after it; {self._describe_last_checkpoint()}."
                " Most often a lower --learning_rate helps."
            )

    def _describe_last_checkpoint(self) -> str:
        checkpoint = find_last_checkpoint(Path(self.args.output_dir))
        if checkpoint:
            return f"the last whole checkpoint is {checkpoint}"
        if self.args.save_strategy == "steps":
            return f"no checkpoint was saved before (--save_steps {self.state.save_steps or self.args.save_steps:g})"
        return "no checkpoint was saved before"

    def _tell_launcher(self, last_checkpoint: str) -> None:
        """Leave what torch's launcher reports if this process is killed while it trains.

        The file and its form are those of torch.distributed.elastic.multiprocessing.errors. The launcher takes the process
        with the earliest report for the cause, and the first that ended where they are of the same time.
        """
        (now,) = broadcast_object_list([int(time.time())])
        if file := os.environ.get(LAUNCHER_REPORT):
            message = f"{self.args.output_dir}: killed while training; {last_checkpoint}."
            report = {"message": message, "extraInfo": {"timestamp": str(now)}}
            Path(file).write_text(json.dumps({"message": report}), encoding="utf-8")

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        # Trainer would take one step more than `max_steps` when it is resumed from the last.
        if self.state.global_step < self.state.max_steps:
            super()._run_epoch(*args, **kwargs)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Save and seal a checkpoint, and only then delete older ones.

        Raises:
            BadInput: a weight is not finite.
        """
        self._check_weights()
        output_dir, limit = Path(self.args.output_dir), self.args.save_total_limit
        folder = output_dir / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        with remove_if_unsaved(folder):
            if self.args.should_save:
                open_checkpoint(folder)
            self.accelerator.wait_for_everyone()
            # Trainer would delete older ones while this one is not on the disk yet.
            self.args.save_total_limit = None
            try:
                super()._save_checkpoint(model, trial)
            finally:
                self.args.save_total_limit = limit
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                seal_checkpoint(folder)
        self._tell_launcher(f"the last whole checkpoint is {folder}")
        if self.args.should_save:
            self._delete_old_checkpoints()

    def _delete_old_checkpoints(self) -> None:
        """Keep the newest `save_total_limit` checkpoints, the best one among them, and the newest one anyway."""
        limit, best = self.args.save_total_limit, Path(self.state.best_model_checkpoint or "")
        if limit is None or limit <= 0:
            return
        _, *older = list_checkpoints(Path(self.args.output_dir))
        older.sort(key=lambda folder: folder != best)
        for folder in older[limit - 1 :]:
            if folder != best:
                shutil.rmtree(folder, ignore_errors=True)

    def _finalize_training(self, *args: Any, **kwargs: Any) -> Any:
        # Trainer would delete all but the best checkpoint, somebody's copies as well.
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            return super()._finalize_training(*args, **kwargs)
        finally:
            self.args.save_total_limit = limit

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        with name_checkpoint(resume_from_checkpoint):
            state = TrainerState.load_from_json(str(Path(resume_from_checkpoint, TRAINER_STATE_NAME)))
            counted = dict.fromkeys(("epoch", "total_flos", "logging_steps", "eval_steps", "save_steps"), 0.0)
            check_alike(vars(state) | {"log_history": []}, vars(TrainerState(train_batch_size=1)) | counted, "state")
            for entry in state.log_history:
                if not all(isinstance(entry.get(name, 0.0), float | int) for name in ("loss", "eval_accuracy")):
                    raise ValueError("its log is not as training saves it")
            if not isinstance(state.best_model_checkpoint, str | None):
                raise ValueError("its best_model_checkpoint is not a folder")
            if missing := set(self.state.stateful_callbacks or ()) - set(state.stateful_callbacks or ()):
                raise ValueError(f"its stateful_callbacks lack {', '.join(map(str, missing))}")
            # Trainer would leave weights as they are for which the file has none.
            if (weights := Path(resume_from_checkpoint, WEIGHTS_FILE)).is_file():
                load_weights(weights, cast(Any, self.model).config)
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        own = self._list_settings()
        with name_checkpoint(checkpoint):
            if not any(Path(checkpoint).glob("optimizer*")):
                raise ValueError("it has weights alone (save_only_model)")
            for file in Path(checkpoint).glob("*.pt"):
                load_pickle(file)
            super()._load_optimizer_and_scheduler(checkpoint)
            check_alike(self._list_settings(), own, "optimizer's or scheduler's state")
            optimizer = getattr(self.optimizer, "optimizer", self.optimizer)
            # Others keep more than tensors like their parameters, and shards only parts of them.
            if isinstance(optimizer, torch.optim.AdamW | MuonWithAdamW) and not self.is_fsdp_enabled:
                check_optimizer_state(optimizer)
        self._apply_options(*own)

    def _apply_options(self, groups: list[dict[str, Any]], schedule: dict[str, Any]) -> None:
        """Give this run's options to a state that was loaded with those of the run that saved it.

        Args:
            groups, schedule: From `_list_settings`, before the state was loaded.
        """
        loaded, scheduler = cast(Any, self.optimizer).param_groups, cast(Any, self.lr_scheduler)
        for group, own in zip(loaded, groups, strict=True):
            # Multiplying by 1 would not change a bit, but a peak rate of 0 cannot be scaled.
            if group.get("initial_lr") and own["initial_lr"] != group["initial_lr"]:
                group["lr"] *= own["initial_lr"] / group["initial_lr"]
            group |= {name: own[name] for name in ("initial_lr", "weight_decay", "betas", "eps") if name in own}
        if "base_lrs" in schedule:
            scheduler.base_lrs, scheduler._last_lr = schedule["base_lrs"], [group["lr"] for group in loaded]

    def _list_settings(self) -> list[Any]:
        """Return what optimizer and schedule keep besides their states of parameters."""
        groups = [{**group, "params": None} for group in cast(Any, self.optimizer).param_groups]
        return deepcopy([groups, cast(Any, self.lr_scheduler).state_dict()])

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with name_checkpoint(checkpoint):
            super()._load_rng_state(checkpoint)
