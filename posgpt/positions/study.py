"""Position encodings on tasks in which positions matter: trained on short examples, tested on longer ones.

    posgpt positions --tasks copy count --encodings rotary alibi --seeds 5
    posgpt positions --tasks all --encodings all

Each task has a recipe of its own (posgpt/positions/tasks.py). Finished runs are kept, so the same command can be given again,
also with more tasks, encodings or seeds. The tables and charts are of the runs of one command.
"""

import json
import signal
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import chain, product
from multiprocessing import active_children, get_context
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any

from tqdm import tqdm

from data_scripts.errors import BadInput, exit_on_termination
from data_scripts.files import check_is_folder_or_new, load_yaml, read_lines
from data_scripts.options import Range, option, parse_options
from modeling_posgpt import POSITION_EMBEDDINGS
from modeling_posgpt.composition import list_names
from posgpt.imports import take_imports
from posgpt.positions.report import write_report
from posgpt.positions.tasks import SLOW, TASKS
from posgpt.positions.train import Record, Run, estimate_seconds, prepare_process, train
from posgpt.training.architecture import CHOICES
from posgpt.training.hardware import count_cores

RUNS_FILE = "runs.jsonl"
ALL = "all"


@dataclass
class StudyArguments:
    """What to train, and where to keep it."""

    tasks: list[str] = option(f"Tasks, or {ALL} (without {', '.join(SLOW)}): {', '.join(TASKS)}.")
    encodings: list[str] = option(
        f"Position encodings, or several in one layer (rotary+canon), or {ALL}: {', '.join(POSITION_EMBEDDINGS)}; not needed with"
        " variants_file.",
        default_factory=list,
    )
    variants_file: str | None = option(
        "YAML file of more encodings: a name for each, and fields of PosGPTConfig that make it.", default=None
    )
    seeds: Annotated[int, Range(1)] = option("How many runs each encoding has on each task.", default=5)
    steps: Annotated[int | None, Range(1)] = option("Training steps (default: as each task says).", default=None)
    learning_rate: Annotated[float | None, Range(0)] = option(
        "Peak learning rate (default: as each task says).", default=None
    )
    processes: Annotated[int | None, Range(1)] = option("Runs at once (default: one per CPU core).", default=None)
    output_dir: str = option("Folder for runs, tables and charts.", default="runs/positions")


def choose(kind: str, names: list[str], known: Collection[str]) -> list[str]:
    """Return the names that are asked for, each once; raise BadInput when one is not known."""
    for name in names:
        if name not in known and name != ALL:
            near = get_close_matches(name, list(known), n=1, cutoff=0.4)
            meant = f"did you mean {near[0]}? There are" if near else "choose from"
            raise BadInput(f"unknown {kind} {name!r}; {meant} {', '.join(known)}.")
    all_names = [name for name in known if name not in SLOW] if ALL in names else []
    return list(dict.fromkeys([*all_names, *(name for name in names if name != ALL)]))


def load_variants(path: str, taken: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return fields of `PosGPTConfig` by the names of encodings; raise BadInput for other content, or a name that is taken."""
    variants = load_yaml(path, "variants")
    if not isinstance(variants, dict) or not variants or not all(isinstance(each, dict) for each in variants.values()):
        raise BadInput(f"{path}: give the fields of each variant below its name.")
    known = {"position_embedding_type", *chain(*(own.settings for own in POSITION_EMBEDDINGS.values()))}
    for name, fields in variants.items():
        if unknown := [field for field in fields if field not in known]:
            raise BadInput(f"{path}: {name!r} has {unknown[0]!r}; choose from {', '.join(sorted(known))}.")
        if not isinstance(name, str) or name in taken or "position_embedding_type" not in fields:
            raise BadInput(f"{path}: {name!r} needs a name of its own that is text, and a position_embedding_type.")
        own = [POSITION_EMBEDDINGS.get(each) for each in list_names(fields["position_embedding_type"])]
        read = {"position_embedding_type", *chain(*(each.settings for each in own if each))}
        # Which names there are is checked with the configuration.
        if all(own) and (unread := [field for field in fields if field not in read]):
            positions = fields["position_embedding_type"]
            raise BadInput(f"{path}: {name!r} has {unread[0]!r}, which {positions!r} does not read; leave it out.")
    return variants


def plan_runs(arguments: StudyArguments) -> list[Run]:
    """Return the runs of a command, one seed after the other, so that early results compare all encodings."""
    given = {name: getattr(arguments, name) for name in ("steps", "learning_rate")}
    changed: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    tasks = {name: replace(TASKS[name], **changed) for name in choose("task", arguments.tasks, TASKS)}
    for name, task in tasks.items():
        task.check(name)
    names = choose("encoding", arguments.encodings, CHOICES["position_embedding_type"])
    encodings = {name: {"position_embedding_type": name} for name in names}
    if not encodings and not arguments.variants_file:
        raise BadInput("--encodings is missing; name some, or give a --variants_file.")
    if arguments.variants_file:
        variants = load_variants(arguments.variants_file, POSITION_EMBEDDINGS)
        if twice := [name for name in names if name in variants and variants[name] != encodings[name]]:
            raise BadInput(f"{arguments.variants_file}: {twice[0]!r} is among --encodings, too; give it another name.")
        encodings |= variants
    order = product(range(arguments.seeds), tasks.items(), encodings.items())
    return [Run(name, task, encoding, fields, seed) for seed, (name, task), (encoding, fields) in order]


def load_runs(path: Path, plan: list[Run]) -> list[Record]:
    """Return the runs of a plan that a folder has; raise BadInput when they have another recipe."""
    recipes, keys = {(run.name, run.encoding): run.recipe for run in plan}, [run.key for run in plan]
    # A run that two commands trained at once counts once.
    found = {}
    for where, line in read_lines(path, "runs of a study") if path.exists() else ():
        try:
            record = json.loads(line)
            key, recipe = {name: record[name] for name in keys[0]}, record["recipe"]
            wanted = recipes.get((key["task"], key["encoding"]), recipe)
            # Runs of earlier versions do not say what was drawn.
            recipe = {"drawn": wanted.get("drawn")} | recipe
            changed = [name for name in wanted | recipe if recipe.get(name) != wanted.get(name)]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BadInput(f"{where}: not a finished run; remove the line.") from None
        if changed:
            name = changed[0]
            was = (
                f"{key['task']} with {key['encoding']} has {name} {recipe.get(name)} there and {wanted.get(name)} here"
            )
            raise BadInput(f"{where}: {was}; give another --output_dir.")
        if key in keys:
            found[tuple(key.values())] = record
    return [*found.values()]


def _start_worker() -> None:
    # An interrupt is the main process's to handle, which ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Encodings from files, as the main process has imported them.
    take_imports([])
    prepare_process()


@contextmanager
def start_workers(processes: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """Yield a `map` over several processes, whose results come in the order in which they are ready."""
    # What ends this command ends its processes, too, and leaves a report.
    with exit_on_termination():
        if processes == 1:
            prepare_process()
            yield map
            return
        others = active_children()
        # A forked process could not use a GPU.
        pool = ProcessPoolExecutor(processes, get_context("spawn"), _start_worker)

        def map_runs(function: Callable[..., Any], runs: Iterable[Any]) -> Iterator[Any]:
            for future in as_completed([pool.submit(function, run) for run in runs]):
                yield future.result()

        try:
            yield map_runs
        except BrokenProcessPool:
            problem = "a process was ended, perhaps for lack of memory, or could not start"
            raise BadInput(f"{problem}; give fewer --processes.") from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in set(active_children()).difference(others):
                process.kill()


def train_runs(pending: list[Run], processes: int, path: Path) -> Iterator[Record]:
    """Say how long runs take, train them, and yield each when its line is written."""
    # Before anything is trained that could not be written.
    path.parent.mkdir(parents=True, exist_ok=True)
    TemporaryFile(dir=path.parent).close()
    with start_workers(min(processes, len(pending))) as map_runs:
        # One per task and encoding: seeds take equally long.
        cells = list({(run.name, run.encoding): run for run in pending}.values())
        timed = tqdm(
            map_runs(estimate_seconds, cells), "Measuring", len(cells), unit="cell", leave=False, disable=None
        )
        minutes = sum(timed) / len(cells) * len(pending) / min(processes, len(pending)) / 60
        print(f"{len(pending):,} runs to come, about {minutes:,.0f} minutes.", flush=True)
        for record in tqdm(map_runs(train, pending), "Runs", len(pending), unit="run", disable=None):
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            yield record


def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(StudyArguments, argv)
    folder = check_is_folder_or_new(arguments.output_dir).resolve()
    plan = plan_runs(arguments)
    records = load_runs(folder / RUNS_FILE, plan)
    finished = [{name: record[name] for name in plan[0].key} for record in records]
    pending = [run for run in plan if run.key not in finished]
    processes = arguments.processes or count_cores()
    try:
        for record in train_runs(pending, processes, folder / RUNS_FILE) if pending else ():
            records.append(record)
    finally:
        # Those of an interrupted command, too.
        if records:
            write_report(folder, {run.name: run.task for run in plan}, records)
