"""How long training is to be, where that follows from the data or from this machine, and how long it takes."""

import math
from collections.abc import Iterator
from copy import copy, deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from transformers import PrinterCallback
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import IntervalStrategy, SaveStrategy

from data_scripts.epochs import EpochDataset
from data_scripts.errors import BadInput
from data_scripts.files import load_json
from posgpt.training import hardware
from posgpt.training.arguments import PosGPTTrainingArguments
from posgpt.training.callbacks import TimingCallback, describe_length
from posgpt.training.trainer import PosGPTTrainer

# However small a corpus is, `exposures` are at least as many training steps (docs/results.md has figures for all of these).
LEAST_STEPS = 600
# How often spans are read in the best runs, and until facts are learned at all, at the latest.
ENOUGH, FLAT = "100 to 150", 35
# The share of `minutes` that is planned, and the fewest steps that are worth a training.
PLANNED_SHARE, FEWEST_STEPS = 0.95, 10


def count_steps(args: PosGPTTrainingArguments, dataset: EpochDataset) -> int:
    """Return how many training steps the arguments ask for."""
    epoch = math.ceil(len(dataset) / args.rows_per_step)
    return args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * epoch)


def time_steps(model: Any, args: PosGPTTrainingArguments, **parts: Any) -> float:
    """Train for a few steps, as a training with these arguments would begin; return how many seconds a step takes.

    The weights of `model` change; random numbers drawn afterwards are those that would have been drawn without it.
    """
    trial = copy(args)
    with TemporaryDirectory() as folder, torch.random.fork_rng():
        off: dict[str, Any] = dict.fromkeys(("push_to_hub", "eval_on_start", "load_best_model_at_end"), False)
        off |= {"report_to": [], "eval_strategy": IntervalStrategy.NO, "save_strategy": SaveStrategy.NO}
        vars(trial).update(off, output_dir=folder, disable_tqdm=True)
        trainer = PosGPTTrainer(model, trial, **parts)
        trainer.remove_callback(PrinterCallback)
        timing: Any = trainer.pop_callback(TimingCallback)
        timing.is_trial = True
        trainer.add_callback(timing)
        if args.device.type == "cpu":
            hardware.keep_freed_memory()
        trainer.train()
    return timing.seconds


def choose_length(args: PosGPTTrainingArguments, dataset: EpochDataset, seconds: float) -> str:
    """Set the steps that fit into `minutes`, or the epochs that `exposures` ask for; return what training then reads."""
    steps_per_epoch, per_epoch = math.ceil(len(dataset) / args.rows_per_step), dataset.count_exposures()
    if args.minutes:
        args.max_steps = int(PLANNED_SHARE * 60 * args.minutes / seconds)
        if args.max_steps < FEWEST_STEPS:
            takes = f"a training step takes {seconds:.2g} s here, and that is too short for {FEWEST_STEPS}"
            raise BadInput(f"minutes is {args.minutes:g}, but {takes}; choose more.")
    elif args.exposures:
        args.num_train_epochs = math.ceil(max(args.exposures / per_epoch, LEAST_STEPS / steps_per_epoch))
    steps = count_steps(args, dataset)
    epochs = steps / steps_per_epoch
    said = f"{steps:,} training steps, {epochs:.3g} times all {len(dataset):,} rows"
    level = dataset.measure_loss_without_facts()
    if level is None:
        return f"{said}."
    return (
        f"{said}, read each span about {epochs * per_epoch:.0f} times; {ENOUGH} were enough wherever that was measured."
        f" Until each has been read about {FLAT} times, around step {FLAT / per_epoch * steps_per_epoch:,.0f}, the loss may"
        f" stay near {level:.2f} and accuracy near 0: that is normal."
    )


def describe_plan(model: Any, tokenizer: Any, args: Any, dataset: EpochDataset, collator: Any) -> Iterator[str]:
    """Yield how long a training would be, how long it would take here and how much memory; `model` is trained for a few steps."""
    seconds = time_steps(model, args, train_dataset=dataset, data_collator=collator, processing_class=tokenizer)
    yield choose_length(args, dataset, seconds)
    yield describe_length(count_steps(args, dataset), seconds, args.device)


def plan_training(trainer: PosGPTTrainer, checkpoint: str | None) -> None:
    """Set how long a training is, where that follows from the data or this machine, and say it; a resumed one keeps its steps."""
    args, dataset, seconds = trainer.args, trainer.train_dataset, 0.0
    if args.minutes and checkpoint:
        args.max_steps = load_json(Path(checkpoint, TRAINER_STATE_NAME), "state of a training")["max_steps"]
        args.minutes = None
    if args.minutes:
        model, parts = deepcopy(trainer.model), {"processing_class": trainer.processing_class}
        parts |= {"train_dataset": dataset, "data_collator": trainer.data_collator}
        # All processes make the same number of steps.
        (seconds,) = broadcast_object_list([time_steps(model, args, **parts)])
    said = choose_length(args, dataset, seconds)
    trainer.options |= {name: getattr(args, name) for name in ("max_steps", "num_train_epochs")}
    if args.should_log:
        print(said)
