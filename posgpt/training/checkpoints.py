"""Model folders and checkpoints: which are whole, which to resume from, who may write to a folder, and loading a model."""

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path

from filelock import FileLock, Timeout
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoTokenizer, PreTrainedTokenizerBase, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import sort_checkpoints

from data_scripts.errors import BadInput
from data_scripts.files import check_is_folder_or_new, hash_file, sync_file, write_atomically
from data_scripts.options import shorten_error
from data_scripts.relations import BIRTHPLACE
from modeling_posgpt import PosGPTConfig, PosGPTForCausalLM

WEIGHTS_FILE = "model.safetensors"
# In a checkpoint: the SHA-256 of every other file, empty until all of them are written.
CHECKSUMS_FILE = "checksums.json"
# The underscore keeps it from the hub.
LOCK_FILE = "_training.lock"


def open_checkpoint(checkpoint: Path) -> None:
    """Begin an empty checkpoint, in place of an earlier one of that step; until it is sealed, it counts as damaged."""
    if checkpoint.exists():
        shutil.rmtree(checkpoint)
    checkpoint.mkdir()
    (checkpoint / CHECKSUMS_FILE).touch()


def seal_checkpoint(checkpoint: Path) -> None:
    """Wait until a checkpoint's files are on the disk, then write down their SHA-256: from now on it is whole."""
    files = [file for file in sorted(checkpoint.rglob("*")) if file.is_file() and file.name != CHECKSUMS_FILE]
    for file in files:
        sync_file(file)
    with write_atomically(checkpoint / CHECKSUMS_FILE) as written:
        json.dump({file.relative_to(checkpoint).as_posix(): hash_file(file) for file in files}, written, indent=2)


def find_damage(checkpoint: Path) -> str | None:
    """Return what is wrong with a checkpoint, None if all its files are as they were sealed."""
    checksums = checkpoint / CHECKSUMS_FILE
    # Checkpoints of earlier versions have no checksums, but Trainer writes its state last.
    last = checksums if checksums.is_file() else checkpoint / TRAINER_STATE_NAME
    try:
        content = dict(json.loads(last.read_bytes()))
    except (OSError, ValueError, TypeError):
        return "was cut off while being saved"
    for name, checksum in content.items() if last == checksums else ():
        try:
            if hash_file(checkpoint / name) != checksum:
                return f"has another {name} than was saved"
        except OSError as error:
            return f"has no {name} that can be read ({error.strerror})"
    return None


def list_checkpoints(output_dir: Path) -> list[Path]:
    """Return a folder's checkpoints, whole or not, the newest first."""
    return [Path(folder) for folder in reversed(sort_checkpoints(str(output_dir)))]


def find_last_checkpoint(output_dir: Path) -> Path | None:
    """Return the newest whole checkpoint in a folder, None if there is none."""
    return next((folder for folder in list_checkpoints(output_dir) if find_damage(folder) is None), None)


@contextmanager
def claim_output_dir(training_args: TrainingArguments, overwrite_output_dir: bool) -> Iterator[str | None]:
    """Keep other trainings out of the output folder, and yield what `choose_checkpoint` returns.

    The first process holds the lock; it is the operating system's and ends with the process, however that ends.

    Raises:
        BadInput: another training is writing to the folder, it cannot be written to, or as `choose_checkpoint` does.
    """
    output_dir = check_is_folder_or_new(str(training_args.output_dir))
    if training_args.process_index > 0:
        yield choose_checkpoint(training_args, overwrite_output_dir)
        return
    is_new, lock = not output_dir.exists(), FileLock(output_dir / LOCK_FILE, timeout=0)
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise BadInput(
            f"{output_dir}: another training is writing there; wait until it has ended, or give another --output_dir."
        ) from None
    except OSError as error:
        raise BadInput(
            f"{output_dir}: cannot be written to: {shorten_error(error)}; give another --output_dir."
        ) from None
    try:
        yield choose_checkpoint(training_args, overwrite_output_dir)
    finally:
        # Windows removes the file itself, and refuses to while it is locked.
        with suppress(OSError):
            (output_dir / LOCK_FILE).unlink()
        lock.release()
        if is_new:
            with suppress(OSError):
                output_dir.rmdir()


def choose_checkpoint(training_args: TrainingArguments, overwrite_output_dir: bool) -> str | None:
    """Return the checkpoint to resume from, None to start from scratch; see `PosGPTTrainingArguments`.

    Ends the program with status 0 where `auto` finds a finished model.

    Raises:
        BadInput: the folder holds a finished model or an unfinished run and no option says what to do with it, or there
            is no whole checkpoint to resume from.
    """
    output_dir, resume = Path(str(training_args.output_dir)), str(training_args.resume_from_checkpoint or "")
    is_auto = resume.lower() == "auto"
    if (output_dir / WEIGHTS_FILE).exists() and not overwrite_output_dir:
        if is_auto:
            if training_args.should_log:
                print(f"{output_dir}: already holds a finished model; there is nothing to resume.")
            sys.exit(0)
        raise BadInput(
            f"{output_dir}: already holds a finished model; give another --output_dir, or --overwrite_output_dir to"
            " replace it."
        )
    if is_auto or resume.lower() in ("last", "true"):
        checkpoint = find_last_checkpoint(output_dir)
        newer = takewhile(lambda folder: folder != checkpoint, list_checkpoints(output_dir))
        skipped = ", ".join(f"{folder.name} {find_damage(folder)}" for folder in newer)
        if checkpoint is None and not is_auto:
            raise BadInput(
                f"{output_dir}: no whole checkpoint to resume from{skipped and f' ({skipped})'}; with"
                " --resume_from_checkpoint auto, training starts from scratch."
            )
        if skipped and training_args.should_log:
            print(f"{output_dir}: {skipped}; training resumes from {checkpoint.name if checkpoint else 'the start'}.")
        return str(checkpoint) if checkpoint else None
    if resume:
        if damage := find_damage(Path(resume)):
            raise BadInput(
                f"{resume}: no whole checkpoint to resume from ({damage}); give a folder named checkpoint-STEP, or"
                " `last` for the newest whole one."
            )
        return resume
    if any(output_dir.glob("checkpoint-*")) and not overwrite_output_dir:
        raise BadInput(
            f"{output_dir}: holds an unfinished run; --resume_from_checkpoint last continues it,"
            " --overwrite_output_dir starts from scratch."
        )
    return None


def load_model(name_or_path: str, **from_pretrained_arguments) -> tuple[PosGPTForCausalLM, PreTrainedTokenizerBase]:
    """Load a saved PosGPT and its tokenizer from a folder or the hub.

    Raises:
        BadInput: there is no such model, or it is not a PosGPT.
    """
    folder = Path(name_or_path)
    if folder.exists():
        config_file = folder / "config.json"
        try:
            model_type = json.loads(config_file.read_text(encoding="utf-8")).get("model_type")
        except (OSError, ValueError, AttributeError):
            raise BadInput(
                f"{folder}: not a model folder (no readable config.json); give a folder that training wrote."
            ) from None
        if model_type != PosGPTConfig.model_type:
            raise BadInput(f"{folder}: holds a {model_type!r} model, not a PosGPT; give a folder that training wrote.")
    try:
        model = PosGPTForCausalLM.from_pretrained(name_or_path, **from_pretrained_arguments)
        tokenizer = AutoTokenizer.from_pretrained(name_or_path)
    except (OSError, ValueError, RuntimeError, ImportError, SafetensorError, StrictDataclassError) as error:
        reason = shorten_error(error.__cause__ or error)
        raise BadInput(f"{name_or_path}: no PosGPT could be loaded from there: {reason}") from None
    if model.config.relations is None:
        # Saved before models kept how they are asked.
        model.config.relations = BIRTHPLACE.to_config()
    return model, tokenizer
