"""The training runs of a study: each is one command, kept while its arguments and files stay the same, or resumed."""

import json
import math
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from accelerate import PartialState
from transformers import TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME

from data_scripts.documents import ROWS_VERSION, detect_format, find_files, identify_content
from data_scripts.errors import BadInput, exit_on_termination
from data_scripts.files import hash_file, load_json, write_file
from modeling_posgpt import PosGPTConfig
from modeling_posgpt.composition import list_names
from posgpt.imports import describe_imports
from posgpt.recipe_parser import parse_with_recipe, read_section
from posgpt.training.checkpoints import WEIGHTS_FILE, find_last_checkpoint, list_checkpoints, read_step
from posgpt.training.estimate import plan_training
from posgpt.training.saved_models import CONFIG_FILE, load_model

Record = dict[str, Any]
# To be raised when a change of the code changes what a training or a measurement gives by more than rounding: what was kept is
# then refused.
VERSION = 3
# What a training says that goes on beside others.
LOG_FILE = "log.txt"
# The command that reads each section of a recipe.
COMMANDS = {"pretrain": "pretrain", "finetune": "finetune", "finetune_from_scratch": "finetune"}


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
    kept = load_json(path, "result of a study") if path.exists() else {}
    if kept.get("key") != key:
        # A key alone is left by a training that was refused, with what it said.
        own = [path, path.with_name(LOG_FILE)] if kept.keys() == {"key"} else []
        left = [each for each in folder.iterdir() if each not in own] if folder and folder.is_dir() else []
        if left:
            raise BadInput(
                f"{folder}: holds a run with other options or files, or of another version ({path.name} lists them), or one"
                " that no study wrote; give another --output_dir, or move the folder away."
            )
        kept = {"key": key}
        write_file(path, json.dumps(kept, indent=2))
    if len(kept) == 1:
        kept |= compute()
        write_file(path, json.dumps(kept, indent=2))
    return {name: value for name, value in kept.items() if name != "key"}


def ask_once(path: Path, model_dir: Path, key: Record, ask: Callable[[Any, Any], Record]) -> Record:
    """Return what `ask` returns of a model and its tokenizer, which is kept in `path` as `keep_result` does, by the model's weights, too."""

    def compute() -> Record:
        model, tokenizer = load_model(str(model_dir))
        return ask(model.to(PartialState().device), tokenizer)

    return keep_result(path, key | {"model": hash_file(model_dir / WEIGHTS_FILE)}, compute)


def build_command(recipe: str, **options: object) -> list[str]:
    """Return the command line of a training for a recipe and options."""
    command = [recipe]
    for name, value in options.items():
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
        # Not Path.is_file, which fails for a text that is longer than a file's name may be.
        next(
            (f"{path.name}:{hash_file(file)}" for file in (path, path / WEIGHTS_FILE) if os.path.isfile(file)),
            str(path),
        )
        for path in map(Path, command)
    ]
    corpora = options.get("train_file", [])
    # What a pattern or a dataset on the hub stands for may change.
    for corpus in [corpora] if isinstance(corpora, str | os.PathLike) else corpora:
        if (files := find_files(corpus)) != [os.fspath(corpus)] or detect_format(corpus) == "hub":
            contents += [identify_content(file)[1] for file in files]
    settings = read_section(section=section, **options)
    for name in sorted(settings.keys() - options.keys()):
        # Files that the recipe names.
        values = settings[name] if isinstance(settings[name], list) else [settings[name]]
        contents += [hash_file(file) for file in values if isinstance(file, str) and os.path.isfile(file)]
    section_of_recipe = json.dumps(read_section(recipe, section))
    key = {"options": " ".join(contents), "recipe": section_of_recipe, "rows_version": ROWS_VERSION}
    if base := settings.get("model_name_or_path"):
        file = Path(base) / CONFIG_FILE
        if not file.is_file():
            # A model on the hub may have any encoding.
            return key | describe_imports()
        settings = load_json(file, "configuration of a model")
    positions = settings.get("position_embedding_type", PosGPTConfig.position_embedding_type)
    return key | describe_imports(list_names(positions))


def launch(arguments: list[str]) -> int:
    """Run `posgpt` with these arguments to its end, in a process of its own; return its exit status."""
    # A training that outlives its study would have the next start train beside it. `subprocess.run` alone leaves it to itself if an
    # exception comes while it is starting the process.
    with train_ahead(1, [partial(subprocess.run, [sys.executable, "-m", "posgpt", *arguments])]) as ended:
        return next(ended).returncode


def launch_aside(arguments: list[str], log: Path, threads: int) -> int:
    """As `launch`, beside other trainings: with so many threads on the CPU, and what it prints is added to a file."""
    with log.open("a", encoding="utf-8") as file:
        command = [sys.executable, "-m", "posgpt", *arguments]
        # What the user has set takes precedence.
        environment = {"OMP_NUM_THREADS": str(threads)} | os.environ
        return subprocess.run(command, stdout=file, stderr=file, env=environment).returncode


@contextmanager
def train_ahead(processes: int, trainings: Iterable[Callable[[], Any]]) -> Iterator[Iterator[Any]]:
    """Yield an iterator over what `trainings` return, in their order, while as many as there are `processes` go on.

    An exception, also of a training whose turn has not come, ends all processes that this one has started since.
    """
    left = set(psutil.Process().children())

    def list_results(futures: list[Future]) -> Iterator[Any]:
        for future in futures:
            pending: Iterable[Future] = futures
            while not future.done():
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for each in done:
                    each.result()
            yield future.result()

    with exit_on_termination(), ThreadPoolExecutor(processes) as pool:
        futures = [pool.submit(training) for training in trainings]
        try:
            yield list_results(futures)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            # A training whose turn has just come, or that is between two stages, has yet to start its process.
            while running := [each for each in futures if each.running()]:
                for process in set(psutil.Process().children()) - left:
                    left.add(process)
                    with suppress(psutil.NoSuchProcess):
                        process.terminate()
                wait(running, timeout=0.2)
            raise


def train(name: str, section: str, options: dict[str, Any], folder: Path, threads: int | None = None) -> Record:
    """Train into `folder`, unless a finished training of the same options and files is there.

    An interrupted training is resumed from its last checkpoint; one of other options or files stops the study. `section` is that
    of the recipe and says which command trains; `options` are the `recipe` and the command's. With `threads`, others go on beside it
    (see `launch_aside`).

    Returns:
        `minutes` of training (of the whole, extrapolated from the steps since it was last started; NaN if there were none),
        `memory`, the peak of the process in MiB (on CUDA, of its tensors on the GPU), `steps`, `characters` read,
        `exposures` of what is stored, `losses`, pairs of step and loss, and what was `asked` on the way: `step` and shares each time.

    Raises:
        BadInput: the training failed; it has said why. Or `folder` is not this study's to train in (see `keep_result`).
    """

    def compute() -> Record:
        checkpoint = find_last_checkpoint(folder)
        before: float = read_step(checkpoint) if checkpoint else 0
        if (folder / WEIGHTS_FILE).is_file():
            # It had finished, and its figures were not kept: nobody knows since which step its time was taken.
            before = math.inf
        # A recipe for short runs may save nothing; a study's runs are many.
        saves = {"save_strategy": "steps", "save_total_limit": 1} if "save_strategy" not in options else {}
        saves = saves if read_section(options["recipe"], section).get("save_strategy") in ("no", False) else {}
        own = options | saves | {"output_dir": folder, "resume_from_checkpoint": "auto"}
        command = [COMMANDS[section], *build_command(**own)]
        print(f"\n== {name}\n$ posgpt {shlex.join(command)}", flush=True)
        log = folder / LOG_FILE
        failed = launch_aside(command, log, threads) if threads else launch(command)
        if failed or not (folder / WEIGHTS_FILE).is_file():
            raise BadInput(f"{name!r} failed; see its message {f'at the end of {log}' if threads else 'above'}.")
        state, results = (load_json(folder / file, "record") for file in (TRAINER_STATE_NAME, "train_results.json"))
        steps = state["global_step"]
        losses = [[entry["step"], entry["loss"]] for entry in state["log_history"] if "loss" in entry]
        asked = [
            {"step": entry["step"]}
            | {name: value for name, value in entry.items() if name.startswith("eval_accuracy")}
            for entry in state["log_history"]
            if "eval_accuracy" in entry
        ]
        for checkpoint in list_checkpoints(folder):
            shutil.rmtree(checkpoint)
        figures = {
            "minutes": results["train_runtime"] / 60 * steps / (steps - before) if steps > before else math.nan,
            "memory": results.get("peak_gpu_memory_mib", results["peak_memory_mib"]),
            "steps": steps,
            "characters": state["num_input_tokens_seen"],
            # A training that finished with an earlier version has not counted them.
            "exposures": results.get("exposures"),
            "asked": asked,
            # Too short a training logs none.
            "losses": losses or [[steps, results["train_loss"]]],
        }
        return {"figures": figures}

    options = options | {"include_num_input_tokens_seen": "true"}
    return keep_result(folder / "study.json", build_key(section, options), compute, folder)["figures"]


def estimate_minutes(section: str, options: dict[str, Any]) -> float:
    """Return how long a training takes here, by a few steps of it; arguments and errors are those of `train`."""
    command = import_module(f"posgpt.{COMMANDS[section]}")
    with TemporaryDirectory() as folder:
        argv = build_command(**options | {"output_dir": folder, "report_to": "none", "push_to_hub": False})
        plan = plan_training(command.build_trainer(*parse_with_recipe(command.TYPES, section, argv)), is_timed=True)
    return plan.steps * plan.seconds / 60
