"""Checkpoints and finished models: saved whole or not at all, which to resume from, and who may write to a folder."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from torch import nn
from torch.distributed.checkpoint import CheckpointException
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, sort_checkpoints

from data_scripts.errors import BadInput, reraise_as_bad_input, shorten_error
from data_scripts.files import check_is_folder_or_new, hash_file, load_json, sync_file, write_file
from posgpt.training.arguments import PosGPTTrainingArguments

WEIGHTS_FILE = "model.safetensors"
# In a checkpoint: the SHA-256 of every other file, empty until all of them are written.
CHECKSUMS_FILE = "checksums.json"
# The underscore keeps it from the hub.
LOCK_FILE = "_training.lock"
# Where a finished model is written before it is moved.
STAGING = ".unfinished"


@contextmanager
def save_or_remove(folder: Path) -> Iterator[None]:
    """Remove `folder` and raise OSError where the block fails to save into it; torch and safetensors raise other exceptions."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError, CheckpointException) as error:
        shutil.rmtree(folder, ignore_errors=True)
        if not isinstance(error, OSError) and explain_stop(error):
            raise
        # torch's message about a failed write does not help.
        hint = " (is the disk full?)" if isinstance(error, RuntimeError) else ""
        raise OSError(f"{folder.name} could not be saved{hint}: {shorten_error(error)}") from error


def open_checkpoint(checkpoint: Path) -> None:
    """Begin an empty checkpoint, in place of a damaged one of that step; until it is sealed, it counts as damaged."""
    if checkpoint.exists():
        shutil.rmtree(checkpoint)
    checkpoint.mkdir()
    (checkpoint / CHECKSUMS_FILE).touch()


def seal_checkpoint(checkpoint: Path) -> None:
    """Wait until a checkpoint's files are on the disk, then write down their SHA-256: from now on it is whole."""
    files = [file for file in sorted(checkpoint.rglob("*")) if file.is_file() and file.name != CHECKSUMS_FILE]
    for file in files:
        sync_file(file)
    checksums = {file.relative_to(checkpoint).as_posix(): hash_file(file) for file in files}
    write_file(checkpoint / CHECKSUMS_FILE, json.dumps(checksums, indent=2))


def move_finished_model(staging: Path, output_dir: Path) -> None:
    """Move a model's files to their place, the weights last, so that a folder that has weights is finished."""
    for file in staging.iterdir():
        sync_file(file)
    # What is replaced would be weights beside another model's configuration.
    (output_dir / WEIGHTS_FILE).unlink(missing_ok=True)
    for file in sorted(staging.iterdir(), key=lambda file: file.name == WEIGHTS_FILE):
        os.replace(file, output_dir / file.name)
    staging.rmdir()


def delete_old_checkpoints(output_dir: Path, limit: int | None, best: str | None) -> None:
    """Keep the newest `limit` checkpoints, the best one among them, and the newest one anyway."""
    if limit and limit > 0:
        _, *older = list_checkpoints(output_dir)
        others = [folder for folder in older if folder != Path(best or "")]
        for folder in others[max(limit - 1 - (len(older) - len(others)), 0) :]:
            shutil.rmtree(folder, ignore_errors=True)


def find_damage(checkpoint: Path) -> str | None:
    """Return what is wrong with a checkpoint, None if all its files are as they were sealed."""
    checksums = checkpoint / CHECKSUMS_FILE
    name = ""
    try:
        # Checkpoints of earlier versions have no checksums, but Trainer writes its state last.
        content = load_json(checksums if checksums.exists() else checkpoint / TRAINER_STATE_NAME, "checkpoint")
        for name, checksum in content.items() if checksums.exists() else ():
            if hash_file(checkpoint / name) != checksum:
                return f"has another {name} than was saved"
    except (OSError, ValueError) as error:
        if name:
            return f"has no {name} that can be read ({getattr(error, 'strerror', error)})"
        return "was cut off while being saved" if checkpoint.is_dir() else "is not a folder"
    return None


def list_checkpoints(output_dir: str | Path) -> list[Path]:
    """Return a folder's checkpoints, whole or not, the newest first."""
    folders = [Path(folder) for folder in reversed(sort_checkpoints(str(output_dir)))]
    # `checkpoint-500-best` is somebody's copy, which is neither resumed from nor deleted.
    return [folder for folder in folders if re.fullmatch(rf"{PREFIX_CHECKPOINT_DIR}-\d+", folder.name)]


def list_later_checkpoints(output_dir: str | Path, checkpoint: str | Path | None) -> list[Path]:
    """Return a folder's checkpoints, whole or not, of later steps than a whole one; None: all of them."""
    # A copy may have any name.
    step = read_state(checkpoint)["global_step"] if checkpoint else -1
    return [folder for folder in list_checkpoints(output_dir) if read_step(folder) > step]


def read_state(folder: str | Path) -> dict[str, Any]:
    """Return what Trainer says of a training, in the folder of its model or of a checkpoint."""
    return load_json(Path(folder, TRAINER_STATE_NAME), "state of a training")


def read_step(checkpoint: str | Path) -> int:
    """Return the step in the name of one of a folder's checkpoints."""
    return int(Path(checkpoint).name.rpartition("-")[2])


def find_last_checkpoint(output_dir: Path) -> Path | None:
    """Return the newest whole checkpoint in a folder, None if there is none."""
    return next((folder for folder in list_checkpoints(output_dir) if find_damage(folder) is None), None)


def describe_last(output_dir: str) -> str:
    """Return where work can go on, for messages."""
    checkpoint = find_last_checkpoint(Path(output_dir))
    return f"the last whole checkpoint is {checkpoint}" if checkpoint else "no checkpoint was saved before"


def refuse_checkpoint(checkpoint: str) -> AbstractContextManager[None]:
    """Say in one line that a checkpoint is of another model or optimizer; its readers may raise almost any exception."""
    problem = f"{checkpoint}: cannot be resumed from with these options"
    fix = "give those that it was saved with, or another checkpoint."
    return reraise_as_bad_input(problem, fix, BadInput, Exception, CheckpointException)


def check_weights(model: nn.Module, step: int, output_dir: str) -> None:
    """Raise BadInput where weights are not finite: a step that went wrong would show in the next one's loss alone."""
    if not all(parameter.isfinite().all() for parameter in model.parameters()):
        raise BadInput(
            f"step {step}: the weights are not finite after it; {describe_last(output_dir)}. Most often a lower"
            " --learning_rate helps."
        )


def explain_stop(error: BaseException) -> str | None:
    """Return why training stopped, if it was not by a mistake of the program."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, torch.OutOfMemoryError):
        return (
            "the accelerator is out of memory; double --gradient_accumulation_steps and halve --per_device_train_batch_size"
            " (if it is given), which trains the same, or halve --per_device_eval_batch_size if this was an evaluation"
        )
    # gloo has no exception class of its own for a process that has ended.
    if isinstance(error, torch.distributed.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error)):
        return f"another process cannot be reached: {shorten_error(error)}"
    return shorten_error(error) if isinstance(error, OSError) else None


@contextmanager
def claim_output_dir(training_args: PosGPTTrainingArguments) -> Iterator[str | None]:
    """Keep other trainings out of the output folder, and yield what `choose_checkpoint` returns.

    The first process holds the lock; it is the operating system's and ends with the process, however that ends.
    """
    if not training_args.output_dir:
        raise BadInput("there is no folder to save the model to; give one with --output_dir.")
    output_dir = check_is_folder_or_new(str(training_args.output_dir))
    is_new, lock = not output_dir.exists(), FileLock(output_dir / LOCK_FILE, timeout=0)
    try:
        if training_args.process_index == 0:
            output_dir.mkdir(parents=True, exist_ok=True)
            lock.acquire()
    except OSError as error:
        reason = f"cannot be written to: {shorten_error(error)};"
        if isinstance(error, Timeout):
            reason = "another run is writing there; wait until it has ended, or"
        raise BadInput(f"{output_dir}: {reason} give another --output_dir.") from None
    try:
        yield choose_checkpoint(training_args)
    finally:
        if lock.is_locked:
            # Windows removes the file itself, and refuses to while it is locked.
            with suppress(OSError):
                (output_dir / LOCK_FILE).unlink()
            lock.release()
            with suppress(OSError):
                if is_new:
                    output_dir.rmdir()


class FinishedModel(Exception):
    """There is nothing left to train."""


def choose_checkpoint(training_args: PosGPTTrainingArguments) -> str | None:
    """Return the checkpoint to resume from, None to start from scratch; see `PosGPTTrainingArguments`.

    Says which newer ones are not whole. Raises FinishedModel where `auto` finds one.
    """
    output_dir, resume = Path(str(training_args.output_dir)), str(training_args.resume_from_checkpoint or "")
    # YAML and Python say it so.
    resume = "" if resume.lower() in ("no", "false") else resume
    weights, is_auto = output_dir / WEIGHTS_FILE, resume.lower() == "auto"
    overwrites = training_args.overwrite_output_dir
    if weights.exists() and not overwrites:
        problem = f"{output_dir}: already holds a finished model" + ("; there is nothing to resume" if resume else "")
        if is_auto:
            if training_args.should_log:
                print(f"{problem}.")
            raise FinishedModel
        raise BadInput(f"{problem}; give another --output_dir, or --overwrite_output_dir to replace it.")
    # A run that was ended while its model was moved there may have left these itself.
    is_own = list_checkpoints(output_dir) or (output_dir / STAGING).exists()
    saved = {"README.md", "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}
    saved |= {"task.json", "run.json", TRAINER_STATE_NAME}
    # A model brings its code, with the files of encodings of one's own.
    found = [file for file in sorted(output_dir.glob("*")) if file.suffix == ".py" or file.name in saved]
    if found and not overwrites and not is_own:
        problem = f"{found[0]}: is there, and saving a model may replace it"
        raise BadInput(f"{problem}; give another --output_dir, or --overwrite_output_dir to replace it.")
    if not resume:
        if overwrites or not list_checkpoints(output_dir):
            return None
        continues = "--resume_from_checkpoint last continues it, --overwrite_output_dir starts from scratch"
        raise BadInput(f"{output_dir}: holds an unfinished run; {continues}.")
    fix = "give a folder named checkpoint-STEP, `last` for the newest whole one, or `auto`, which may start from scratch."
    if resume.lower() not in ("auto", "last", "true"):
        if damage := find_damage(Path(resume)):
            raise BadInput(f"{resume}: no whole checkpoint to resume from ({damage}); {fix}")
        later = [folder.name for folder in list_later_checkpoints(output_dir, resume)]
        if later and not overwrites:
            raise BadInput(
                f"{output_dir}: holds later checkpoints ({', '.join(later)}), which `last` would resume from the next time;"
                " give another --output_dir, or --overwrite_output_dir to remove them."
            )
        return resume
    checkpoint = find_last_checkpoint(output_dir)
    if is_auto and checkpoint and weights.exists() and checkpoint.stat().st_mtime < weights.stat().st_mtime:
        # It is of the finished model that --overwrite_output_dir has replaced.
        return None
    newer = list_later_checkpoints(output_dir, checkpoint)
    skipped = ", ".join(f"{folder.name} {find_damage(folder)}" for folder in newer)
    if checkpoint is None and not is_auto:
        raise BadInput(f"{output_dir}: no whole checkpoint to resume from{skipped and f' ({skipped})'}; {fix}")
    if skipped and training_args.should_log:
        print(f"{output_dir}: {skipped}; training resumes from {checkpoint.name if checkpoint else 'the start'}.")
    return str(checkpoint) if checkpoint else None
