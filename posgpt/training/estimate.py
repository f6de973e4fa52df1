"""How long training is to be, where that follows from the data or from this machine, and how long it takes."""

import math
from copy import copy, deepcopy
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from accelerate.utils import broadcast_object_list
from transformers.trainer_utils import IntervalStrategy

from data_scripts.errors import BadInput
from posgpt.training.callbacks import TimingCallback
from posgpt.training.checkpoints import read_state

# However small a corpus is, `exposures` are at least as many training steps (docs/results.md has figures for all of these).
LEAST_STEPS = 600
# How often spans are read in the best runs, and until facts are learned at all, at the latest; with 0.8 million parameters or more. Where
# `minutes` read them less often than `FEW`, fewer spans are asked for. `SOONER` of that is enough where few documents come first.
ENOUGH, MORE_THAN_ENOUGH, FLAT, FEW, SOONER = 100, 150, 35, 50, 0.38
# The share of `minutes` that is planned, and the fewest steps that are worth a training.
PLANNED_SHARE, FEWEST_STEPS = 0.95, 10


class Plan(NamedTuple):
    """How long a training is, and how often it reads each span. `seconds` are those of a step, NaN where none was timed."""

    steps: int
    exposures: float
    seconds: float
    description: str


def time_steps(trainer: Any) -> float:
    """Train a copy of the model for a few steps, as `trainer` would begin; return how many seconds a step takes.

    Random numbers drawn afterwards are those that would have been drawn without it.
    """
    args, timing = copy(trainer.args), TimingCallback(is_trial=True)
    parts = {name: getattr(trainer, name) for name in ("train_dataset", "data_collator", "processing_class")}
    with TemporaryDirectory() as folder, torch.random.fork_rng():
        vars(args).update(output_dir=folder, eval_strategy=IntervalStrategy.NO, eval_on_start=False, push_to_hub=False)
        trial = type(trainer)(deepcopy(trainer.model), args, **parts)
        # Without the others, nothing is shown, logged or saved.
        trial.callback_handler.callbacks = [timing]
        trial.train()
    # All processes have to make the same number of steps.
    return broadcast_object_list([timing.seconds])[0]


def plan_training(trainer: Any, checkpoint: str | None = None, is_timed: bool = False) -> Plan:
    """Set how long a training is, where that follows from the data or this machine; a resumed one keeps its steps.

    Steps are timed where `minutes` ask for it, or with `is_timed`. Where `minutes` are too short for all spans, the trainer gets a
    dataset with fewer of them.
    """
    args, seconds = trainer.args, math.nan
    share = SOONER if args.first_shares else 1
    dataset = full = trainer.train_dataset
    if is_timed or (args.minutes and not checkpoint):
        seconds = time_steps(trainer)
    if args.minutes and checkpoint:
        args.max_steps = read_state(checkpoint)["max_steps"]
    elif args.minutes:
        args.max_steps = int(PLANNED_SHARE * 60 * args.minutes / seconds)
        if args.max_steps < FEWEST_STEPS:
            takes = f"a training step takes {seconds:.2g} s here, and that is too short for {FEWEST_STEPS}"
            raise BadInput(f"minutes is {args.minutes:g}, but {takes}; choose more.")
    if args.minutes:
        # A step takes as long with fewer spans. The steps alone decide, so that a resumed training has the same.
        exposures = args.max_steps * args.rows_per_step / len(full) * full.exposures_per_epoch
        if exposures < FEW * share:
            trainer.train_dataset = dataset = full.read_fewer_spans(exposures / (ENOUGH * share))
    steps_per_epoch, per_epoch = math.ceil(len(dataset) / args.rows_per_step), dataset.exposures_per_epoch
    if args.exposures:
        args.num_train_epochs = math.ceil(max(args.exposures / per_epoch, LEAST_STEPS / steps_per_epoch))
    steps = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * steps_per_epoch)
    exposures = steps / steps_per_epoch * per_epoch
    # "1,000 times", not the "1e+03" of the format g with three digits.
    times = float(f"{steps / steps_per_epoch:.3g}")
    said = f"{steps:,} training steps, {times:,g} times all {len(dataset):,} rows"
    # How soon facts are learned where few documents come first is known of one corpus alone.
    level = None if args.first_shares else dataset.loss_without_facts
    if dataset.loss_without_facts is not None:
        said += f", read each span about {exposures:.0f} times"
    if level is not None:
        said += (
            f"; {ENOUGH} to {MORE_THAN_ENOUGH} were enough for models of 0.8 million parameters or more."
            f" Until each has been read about {FLAT} times, around step {FLAT / per_epoch * steps_per_epoch:,.0f},"
            f" the loss may stay near {level:.2f} and accuracy near the most frequent answer's: that is normal"
        )
    if dataset is not full:
        said += f". To read each often enough, it asks for fewer spans, as with --max_spans {dataset.max_spans}"
    if level is not None and exposures < FLAT:
        said += ". This training ends before that, so it stores few facts: choose more minutes, steps or --exposures"
        said += ", or fewer spans (--max_spans 1)" if dataset.max_spans > 1 else ""
    first = [math.ceil(len(dataset.choose_examples(each)) / args.rows_per_step) for each in args.first_shares]
    if first and steps <= sum(first):
        said += f". The passes over --first_shares take {sum(first):,} steps: only {max(args.first_shares):.0%} of the documents"
        said += " are read. Choose more steps, or recipe windows"
    return Plan(steps, exposures, seconds, f"{said}.")
