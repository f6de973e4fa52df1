"""The training runs of a study: each is one command, kept while its arguments and files stay the same, or resumed."""

import json
import math
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from transformers import TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME

from data_scripts.errors import BadInput
from data_scripts.files import hash_file, load_json, write_atomically
from data_scripts.questions import load_questions
from posgpt.recipe_parser import find_recipe, read_section, read_settings
from posgpt.training.checkpoints import WEIGHTS_FILE, find_last_checkpoint, list_checkpoints, read_step
from studies.cache import CODE, Record, hash_code, keep_result
from studies.grading import grade_answers, load_on_device

# Says, beside a training's key, which step it was last started from.
LAUNCH_FILE = "launch.json"
# The command that reads each section of a recipe.
MODULES = {
    "pretrain": "posgpt.pretrain",
    "generate_questions": "posgpt.generate_questions",
    "finetune": "posgpt.finetune",
    "finetune_from_scratch": "posgpt.finetune",
}


def build_command(recipe: str, **options: object) -> list[str]:
    """Return the command line of a training for a recipe and options; an option that is None is left out."""
    command = [recipe]
    for name, value in options.items():
        if value is not None:
            given = value if isinstance(value, list) else [json.dumps(value) if isinstance(value, dict) else value]
            command += [f"--{name}", *map(str, given)]
    return command


def count_rows_per_step(recipe: str, section: str, **options: Any) -> int:
    """Return how many rows a training step reads by a section of a recipe; `options` take precedence over it."""
    settings = read_settings(recipe, section, **options)
    batch = settings.get("per_device_train_batch_size", TrainingArguments.per_device_train_batch_size)
    return settings.get("total_train_batch_size", batch * settings.get("gradient_accumulation_steps", 1))


def build_key(arguments: list[str], section: str = "pretrain") -> dict[str, str]:
    """Return what a training depends on: its options, its recipe's section and the code.

    Files and models among the options are their names and what is in them, wherever they lie.
    """
    recipe, options = find_recipe(arguments[0]), arguments[1:]
    contents = [
        next((f"{path.name}:{hash_file(file)}" for file in (path, path / WEIGHTS_FILE) if file.is_file()), str(path))
        for path in map(Path, options)
    ]
    return {"options": " ".join(contents), "recipe": json.dumps(read_section(recipe, section)), CODE: hash_code()}


def launch(module: str, arguments: list[str], processes: int = 1) -> int:
    """Run `python -m MODULE` to its end and return its exit status.

    Args:
        module: The training command.
        arguments: Its command line.
        processes: With more than one, `accelerate` launches them.
    """
    accelerate = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", str(processes)]
    launcher = [sys.executable, *(accelerate if processes > 1 else [])]
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
        with subprocess.Popen([*launcher, "-m", module, *arguments]) as process:
            started.append(process)
            if ended:
                process.terminate()
            try:
                status = process.wait()
            finally:
                process.terminate()
    finally:
        signal.signal(signal.SIGTERM, before)
    if ended:
        sys.exit(128 + ended[0])
    return status


def train(name: str, arguments: list[str], folder: Path, processes: int = 1, section: str = "pretrain") -> Record:
    """Train into `folder`, unless a finished training of the same arguments and files is there.

    An interrupted training is resumed from its last checkpoint; one of other arguments, files or code stops the study.

    Args:
        name: What the study calls it.
        arguments: The command line of the training.
        processes: How many train together.
        section: That of the recipe; it says which command trains.

    Returns:
        `minutes` of training (of the whole, extrapolated from the steps since it was last started; NaN if there were none),
        `memory`, the peak of the first process in MiB (on CUDA, of its tensors on the GPU), `characters` read, and
        `losses`, pairs of step and loss.

    Raises:
        BadInput: the training failed; it has said why. Or `folder` is not this study's to train in (see `keep_result`).
    """
    arguments = [*arguments, "--include_num_input_tokens_seen", "true"]

    def compute() -> Record:
        # A folder that has weights is finished: only its figures were not kept.
        if not (folder / WEIGHTS_FILE).is_file():
            _train_or_resume(name, MODULES[section], arguments, folder, processes)
        figures = _read_figures(folder)
        for checkpoint in list_checkpoints(folder):
            shutil.rmtree(checkpoint)
        return {"figures": figures}

    return keep_result(folder / "study.json", build_key(arguments, section), compute, folder)["figures"]


def train_and_ask(name: str, command: list[str], folder: Path, test_file: Path, processes: int = 1) -> Record:
    """Train one model with a command line (see `train`) and ask it questions, unless that is done.

    Returns:
        What `train` does, `right` (whether each question is answered exactly) and `parameters`, their number.
    """
    return train(name, command, folder, processes) | ask(folder, test_file, folder / "asked.json")


def ask(model_dir: Path, test_file: Path, kept_file: Path) -> Record:
    """Ask the model in a folder the questions of a TSV, unless that is done.

    Returns:
        `right` (whether each question is answered exactly) and `parameters`, their number.
    """

    def compute() -> Record:
        model, tokenizer = load_on_device(str(model_dir))
        test = load_questions(test_file, answers=True)
        is_right = grade_answers(model, tokenizer, test.texts, test.answers)
        return {"right": is_right.tolist(), "parameters": model.num_parameters()}

    key = {"asked": hash_file(test_file), "model": hash_file(model_dir / WEIGHTS_FILE), CODE: hash_code()}
    return keep_result(kept_file, key, compute)


def _train_or_resume(name: str, module: str, arguments: list[str], folder: Path, processes: int) -> None:
    """Train to the end, from the last checkpoint or from scratch."""
    checkpoint = find_last_checkpoint(folder)
    command = [*arguments, "--output_dir", str(folder)]
    command += ["--resume_from_checkpoint", "last"] if checkpoint else ["--overwrite_output_dir"]
    print(f"\n== {name}\n$ python -m {module} {' '.join(command)}", flush=True)
    # Before the training: the study may end before it has read the figures.
    with write_atomically(folder / LAUNCH_FILE) as file:
        json.dump({"step": read_step(checkpoint) if checkpoint else 0}, file)
    if launch(module, command, processes) or not (folder / WEIGHTS_FILE).is_file():
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
