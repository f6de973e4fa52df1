"""The training runs of a study: each is one command, kept while its arguments and files stay the same, or resumed."""

import json
import math
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformers import TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME

from data_scripts.errors import BadInput
from data_scripts.files import hash_file, load_json, write_atomically
from posgpt.recipe_parser import read_section
from posgpt.training.checkpoints import WEIGHTS_FILE, find_last_checkpoint, list_checkpoints, read_step

Record = dict[str, Any]
# To be raised when a change of the code changes what a training or a measurement gives: what was kept is then refused.
VERSION = 1
# Says, beside a training's key, which step it was last started from.
LAUNCH_FILE = "launch.json"
# The command that reads each section of a recipe.
MODULES = {
    "pretrain": "posgpt.pretrain",
    "generate_questions": "posgpt.generate_questions",
    "finetune": "posgpt.finetune",
    "finetune_from_scratch": "posgpt.finetune",
}
TIMED_STEPS = 8


def keep_result(path: Path, key: Record, compute: Callable[[], Record], folder: Path | None = None) -> Record:
    """Return the result that is kept under `key`, or else what `compute` returns, which is then kept.

    Args:
        path: The JSON file for the key and the result.
        key: What the result depends on, besides VERSION, such as arguments and hashes of files; JSON values.
        compute: Called if there is no result yet; JSON values.
        folder: Where `compute` leaves what it can resume from, and `path` lies. Nothing in it is ever removed.

    Raises:
        BadInput: `folder` holds what is not a study's, or belongs to another key. It may be hours of training.
    """
    key = key | {"version": VERSION}
    result = load_json(path, "result of a study") if path.exists() else {}
    before = result.pop("key", None)
    if before != key:
        entries = sorted(folder.iterdir()) if folder and folder.is_dir() else []
        if entries and not isinstance(before, dict):
            raise BadInput(
                f"{folder}: holds {entries[0].name}, and no {path.name} that says which study made it; give another"
                " --output_dir, or move the folder away."
            )
        if entries:
            different = [entry for entry in before | key if before.get(entry) != key.get(entry)]
            raise BadInput(
                f"{folder}: was trained with other {' and '.join(different)} than this; give another --output_dir, or remove the"
                f" folder to train again ({path.name} has what it was trained with)."
            )
        result = {}
        _write_result(path, key, {})
    if not result:
        result = compute()
        _write_result(path, key, result)
    return result


def _write_result(path: Path, key: Record, result: Record) -> None:
    with write_atomically(path) as file:
        json.dump({"key": key} | result, file, indent=2)


def build_command(recipe: str, **options: object) -> list[str]:
    """Return the command line of a training for a recipe and options; an option that is None is left out."""
    command = [recipe]
    for name, value in options.items():
        if value is not None:
            given = value if isinstance(value, list) else [json.dumps(value) if isinstance(value, dict) else value]
            command += [f"--{name}", *map(str, given)]
    return command


def count_rows_per_step(section: str, options: dict[str, Any]) -> int:
    """Return how many rows a training step reads by a section of its recipe and the other options."""
    settings = read_section(section=section, **options)
    batch = settings.get("per_device_train_batch_size", TrainingArguments.per_device_train_batch_size)
    return settings.get("total_train_batch_size", batch * settings.get("gradient_accumulation_steps", 1))


def build_key(section: str, options: dict[str, Any]) -> dict[str, str]:
    """Return what a training depends on: its options and its recipe's section.

    Files and models among the options are their names and what is in them, wherever they lie.
    """
    recipe, *command = build_command(**options)
    contents = [
        next((f"{path.name}:{hash_file(file)}" for file in (path, path / WEIGHTS_FILE) if file.is_file()), str(path))
        for path in map(Path, command)
    ]
    return {"options": " ".join(contents), "recipe": json.dumps(read_section(recipe, section))}


def launch(module: str, arguments: list[str]) -> int:
    """Run `python -m MODULE` with a command line to its end; return its exit status."""
    started: list[subprocess.Popen] = []
    ended: list[int] = []

    def end(number: int, _: object) -> None:
        ended.append(number)
        for process in started:
            process.terminate()

    # A training that outlives its study would have the next start train beside it. An exception in the handler could come
    # while the process is being started, when nobody knows it yet.
    before = signal.signal(signal.SIGTERM, end)
    try:
        with subprocess.Popen([sys.executable, "-m", module, *arguments]) as process:
            started.append(process)
            try:
                status = 0 if ended else process.wait()
            finally:
                process.terminate()
    finally:
        signal.signal(signal.SIGTERM, before)
    if ended:
        sys.exit(128 + ended[0])
    return status


def train(name: str, section: str, options: dict[str, Any], folder: Path) -> Record:
    """Train into `folder`, unless a finished training of the same options and files is there.

    An interrupted training is resumed from its last checkpoint; one of other options or files stops the study.

    Args:
        name: What the study calls it.
        section: That of the recipe; it says which command trains.
        options: The `recipe` and the options of the command.

    Returns:
        `minutes` of training (of the whole, extrapolated from the steps since it was last started; NaN if there were none),
        `memory`, the peak of the process in MiB (on CUDA, of its tensors on the GPU), `characters` read, and
        `losses`, pairs of step and loss.

    Raises:
        BadInput: the training failed; it has said why. Or `folder` is not this study's to train in (see `keep_result`).
    """
    options = options | {"include_num_input_tokens_seen": "true"}

    def compute() -> Record:
        # A folder that has weights is finished: only its figures were not kept.
        if not (folder / WEIGHTS_FILE).is_file():
            _train_or_resume(name, MODULES[section], build_command(**options), folder)
        figures = _read_figures(folder)
        for checkpoint in list_checkpoints(folder):
            shutil.rmtree(checkpoint)
        return {"figures": figures}

    return keep_result(folder / "study.json", build_key(section, options), compute, folder)["figures"]


def time_training(name: str, section: str, options: dict[str, Any]) -> tuple[float, float]:
    """Return how many minutes a row and an epoch take, by a few training steps; arguments and errors are those of `train`."""
    few = {"max_steps": TIMED_STEPS, "save_strategy": "no", "report_to": "none"}
    command = build_command(**options | few, include_num_input_tokens_seen="true")
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / "timed"
        _train_or_resume(f"{name}: {TIMED_STEPS} steps", MODULES[section], command, folder)
        minutes = _read_figures(folder)["minutes"]
        epochs = load_json(folder / TRAINER_STATE_NAME, "state of a training")["epoch"]
    return minutes / TIMED_STEPS / count_rows_per_step(section, options), minutes / epochs


def estimate_minutes(section: str, options: dict[str, Any], per_row: float, per_epoch: float) -> float:
    """Return how many minutes a training takes whose rows and epochs take as long as `time_training` says."""
    settings = read_section(section=section, **options)
    if (steps := settings.get("max_steps", -1)) > 0:
        return steps * count_rows_per_step(section, options) * per_row
    return settings.get("num_train_epochs", TrainingArguments.num_train_epochs) * per_epoch


def _train_or_resume(name: str, module: str, arguments: list[str], folder: Path) -> None:
    """Train to the end, from the last checkpoint or from scratch."""
    checkpoint = find_last_checkpoint(folder)
    command = [*arguments, "--output_dir", str(folder)]
    command += ["--resume_from_checkpoint", "last"] if checkpoint else ["--overwrite_output_dir"]
    print(f"\n== {name}\n$ python -m {module} {' '.join(command)}", flush=True)
    # Before the training: the study may end before it has read the figures.
    with write_atomically(folder / LAUNCH_FILE) as file:
        json.dump({"step": read_step(checkpoint) if checkpoint else 0}, file)
    if launch(module, command) or not (folder / WEIGHTS_FILE).is_file():
        raise BadInput(f"{name!r} failed; see its message above.")


def _read_figures(folder: Path) -> Record:
    """Read a finished training's figures from what it wrote."""
    state, results = (json.loads((folder / name).read_bytes()) for name in (TRAINER_STATE_NAME, "train_results.json"))
    steps = state["global_step"]
    # The running time is of these alone.
    trained = steps - load_json(folder / LAUNCH_FILE, "record of a launch")["step"]
    losses = [[entry["step"], entry["loss"]] for entry in state["log_history"] if "loss" in entry]
    return {
        "minutes": results["train_runtime"] / 60 * steps / trained if trained else math.nan,
        "memory": results.get("peak_gpu_memory_mib", results["peak_memory_mib"]),
        "characters": state["num_input_tokens_seen"],
        # Too short a training logs none.
        "losses": losses or [[steps, results["train_loss"]]],
    }
