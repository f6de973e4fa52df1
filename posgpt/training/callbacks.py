"""What happens around Trainer's steps: figures on the progress bar, how long it takes, what the loss means, and resuming."""

import math
import shutil
import time
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm
from transformers import ProgressCallback, TrainerCallback
from transformers.utils import logging

from data_scripts.errors import BadInput
from posgpt.training import hardware

# Training that ends with a logged loss this far above the lowest one, in nats per character, says so.
RISE = 0.3
# Facts are being learned below this share of the loss without any (docs/results.md).
FACTS_SHARE = 0.85
# How many steps, and seconds, are timed at least; the first step is not, which also allocates memory.
TIMED_STEPS, TIMED_SECONDS = 2, 1
# Steps after which freed memory is returned. That takes half a second at most; until then, a step may take 30 MB more.
RETURN_EVERY = 100

logger = logging.get_logger(__name__)


class FiguresProgressCallback(ProgressCallback):
    """Transformers' progress bar with the newest figures on it instead of a new line of figures at every log."""

    def on_log(self, args, state, control, logs=None, **kwargs):
        if self.training_bar is not None and logs:
            shown = ("epoch", "loss", "learning_rate", "eval_loss", "eval_accuracy")
            self.training_bar.set_postfix({name: f"{float(logs[name]):.4g}" for name in shown if name in logs})


def describe_length(steps: int, seconds: float, device: torch.device) -> str:
    """Return a line on how long training takes, at so many seconds per step, and how much memory it has taken until now."""
    minutes = steps * seconds / 60
    duration = f"{60 * minutes:.0f} seconds" if minutes < 2 else f"{minutes:,.0f} minutes"
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else hardware.measure_peak_memory() * 2**20
    said = f"About {steps:,} training steps, {duration} ({seconds:.2g} s per step, measured), {peak / 1e9:.1f} GB."
    shorter = " --minutes 60, a smaller model or a GPU would shorten it."
    return said + shorter * (minutes > 60)


class TimingCallback(TrainerCallback):
    """Times the first steps, and says once how long training takes; a trial ends then instead."""

    def __init__(self, is_trial: bool = False) -> None:
        self.is_trial, self.is_known, self.seconds = is_trial, False, 0.0

    def on_train_begin(self, args, state, control, **kwargs):
        self.begin, self.first_step = time.perf_counter(), state.global_step

    def on_step_end(self, args, state, control, **kwargs):
        if self.is_known:
            return
        steps, passed = state.global_step - self.first_step, time.perf_counter() - self.begin
        self.seconds = passed / max(steps - 1, 1)
        if steps == 1:
            self.begin += passed
        # Several processes have to end a trial after the same step.
        self.is_known = steps > TIMED_STEPS and (passed >= TIMED_SECONDS or args.world_size > 1)
        if self.is_known and self.is_trial:
            control.should_training_stop = True
        elif self.is_known and state.is_world_process_zero:
            # Above the progress bar.
            tqdm.write(describe_length(state.max_steps - self.first_step, self.seconds, args.device))


class MemoryCallback(TrainerCallback):
    """Returns freed memory to the system now and then, which training on a CPU otherwise keeps (`hardware.keep_freed_memory`)."""

    def on_step_end(self, args, state, control, **kwargs):
        if args.device.type == "cpu" and state.global_step % RETURN_EVERY == 0:
            hardware.return_freed_memory()


class LossCallback(TrainerCallback):
    """Says once that the loss shows facts, and warns of a training that ends with a far higher loss than it once had.

    Before, it may stay nearly the same for long while few questions are answered. A training that diverges has finite figures.
    """

    without_facts: float | None = None

    def on_train_begin(self, args, state, control, train_dataloader=None, **kwargs):
        self.without_facts = train_dataloader.dataset.loss_without_facts

    def on_log(self, args, state, control, logs=None, **kwargs):
        loss = logs.get("loss", math.inf)
        if self.without_facts and loss < FACTS_SHARE * self.without_facts and state.is_world_process_zero:
            tqdm.write(f"Step {state.global_step:,}: the loss is {loss:.2f}, so facts are being learned.")
            self.without_facts = None

    def on_train_end(self, args, state, control, **kwargs):
        # A step that grades nothing has a loss of 0.
        logged = [(entry["loss"], entry["step"]) for entry in state.log_history if entry.get("loss")]
        if not (logged and state.is_world_process_zero):
            return
        (lowest, step), (last, _) = min(logged), logged[-1]
        if last > lowest + RISE:
            logger.warning(
                f"{args.output_dir}: the loss is {last:.2f} at the end of training, and was {lowest:.2f} after step {step:,}."
                " Unless the data became harder in between (--first_shares), training has diverged; most often a lower"
                " --learning_rate helps."
            )


class ResumeCallback(TrainerCallback):
    """Checks the state that Trainer has loaded before the first step, and gives this run's options to it.

    Attributes:
        own: The optimizer's groups of parameters, before a checkpoint's state is loaded.
        later: Checkpoints that the run is to replace.
        has_begun: Whether the first step has begun.
    """

    def __init__(self) -> None:
        self.own: list[dict[str, Any]] = []
        self.later: list[Path] = []
        self.has_begun = False

    def on_train_begin(self, args, state, control, optimizer=None, lr_scheduler=None, **kwargs):
        if state.global_step > state.max_steps:
            raise BadInput(
                f"{args.output_dir}: the checkpoint is of step {state.global_step:,}, but training is to end after step"
                f" {state.max_steps:,}; choose a larger --max_steps or --num_train_epochs."
            )
        # The checkpoint's would go on.
        state.compute_steps(args, state.max_steps)
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
        # They would be kept as the newest when older ones are deleted.
        for folder in self.later:
            shutil.rmtree(folder)

    def on_step_begin(self, args, state, control, **kwargs):
        self.has_begun = True
