"""What a run was made of: its options, the files it read, versions. Saved with the model, and told to the trackers."""

import json
import os
import platform
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import posgpt
from data_scripts.documents import ROWS_VERSION, find_files, identify_content
from data_scripts.errors import BadInput
from data_scripts.files import hash_file, load_json
from modeling_posgpt import PosGPTConfig
from posgpt.imports import list_imports
from posgpt.training.checkpoints import WEIGHTS_FILE, read_step
from posgpt.training.saved_models import find_model_file

RUN_FILE = "run.json"
# How much of a SHA-256 is shown to people; the file has all of it.
SHOWN_DIGITS = 12
# What, besides a command's own options, decides which rows a training step reads.
ORDER_OPTIONS = {"seed", "data_seed", "total_train_batch_size", "train_sampling_strategy", "first_shares"}
# What of a model's configuration may be another one when its training is resumed.
_CHANGEABLE = {"attention_dropout", "embd_pdrop", "resid_pdrop", "use_cache", "relations"}
LIBRARIES = ("torch", "transformers", "datasets", "accelerate")


def find_best_step(state: Mapping[str, Any], keeps_best: bool) -> int | None:
    """Return the step whose weights a finished training kept, from its `trainer_state.json`; None: the last step's."""
    # The best evaluation may have been between two checkpoints: the best that was saved is kept, or else the last weights.
    saved = state.get("best_model_checkpoint")
    return read_step(saved) if keeps_best and saved else None


def find_last_figure(log_history: Sequence[Mapping[str, float]], name: str, best_step: int | None) -> float | None:
    """Return what was logged last under a name, until the best step if there is one; None: it was not logged."""
    found = [each for each in log_history if name in each and (best_step is None or each["step"] <= best_step)]
    return found[-1][name] if found else None


def describe_run(*options: Any) -> dict[str, Any]:
    """Return what transformers' training arguments do not say of a run.

    Args:
        options: Dataclasses of a training command. `relations` and what ends in `_file` name files.

    Returns:
        `versions`, by library; `data`, for each option that names files a list of each file's `name` and `sha256`, a
        dataset of the hub with its `commit` instead; and the other options.
    """
    values = {name: value for group in options for name, value in asdict(group).items()}
    values["rows_version"] = ROWS_VERSION
    data = {}
    if name_or_path := values.pop("model_name_or_path", None):
        # A card that is published should not name this machine's folders.
        name = Path(name_or_path).resolve().name if Path(name_or_path).is_dir() else name_or_path
        data["model_name_or_path"] = [{"name": name, "sha256": hash_file(find_model_file(name_or_path, WEIGHTS_FILE))}]
    for name in [name for name in values if name.endswith("_file") or name == "relations"]:
        if paths := values.pop(name):
            files = [file for path in ([paths] if isinstance(paths, str) else paths) for file in find_files(path)]
            data[name] = [
                {"name": file, "commit": content} if kind == "hub" else {"name": Path(file).name, "sha256": content}
                for file, (kind, content) in zip(files, map(identify_content, files), strict=True)
            ]
    if imports := list_imports():
        data["import"] = [{"name": Path(file).name, "sha256": hash_file(file)} for file in imports]
    versions = {"posgpt": posgpt.__version__, "python": platform.python_version()}
    return {"versions": versions | {name: version(name) for name in LIBRARIES}, "data": data, **values}


def format_files(files: list[dict[str, str]]) -> str:
    """Return the names of files or datasets, each with the beginning of its hash or commit."""
    return ", ".join(
        f"{name} ({kind} {content[:SHOWN_DIGITS]})" for (_, name), (kind, content) in map(dict.items, files)
    )


def build_record(options: dict[str, Any], config: PosGPTConfig) -> dict[str, Any]:
    """Return what `run.json` holds: `versions`, `data`, the `model`'s own settings and the other `options`."""
    parts = {name: options[name] for name in ("versions", "data") if name in options}
    fields = {*PosGPTConfig.__annotations__, *(name for each in config.position_encodings for name in each.settings)}
    model = {name: value for name, value in config.to_dict().items() if name in fields}
    return parts | {"model": model, "options": {name: options[name] for name in options if name not in parts}}


def check_same_training(
    checkpoint: Path, options: dict[str, Any], config: PosGPTConfig, own_options: Iterable[str]
) -> None:
    """Check that the run that saved a checkpoint trained this model, and read the rows that this one would have read until then.

    How long it trains, the learning rate and what it logs may differ, and what it is validated on, unless that chooses the best
    step. Checkpoints of earlier versions, which lack `run.json` or some of the options, pass. `own_options` are those of `options`
    that are the command's own.

    Raises:
        ValueError: it did not. Weights alone do not show it: they have the same shapes with any number of heads.
    """
    # In the types of JSON, as the other's are.
    own = json.loads(json.dumps(build_record(options, config)))
    saved = read_record(checkpoint) or own
    differences = []
    names = saved["data"].keys() | own["data"].keys()
    chooses_best = own["options"].get("load_best_model_at_end") or own["options"].get("save_strategy") == "best"
    if not chooses_best or "validation_file" not in saved["data"]:
        names = names - {"validation_file"}
    for name in sorted(names):
        theirs, ours = saved["data"].get(name, []), own["data"].get(name, [])
        if list_contents(theirs) != list_contents(ours):
            differences.append(f"{name} was {format_files(theirs) or 'not given'}")
    decisive = {"options": ORDER_OPTIONS.union(own_options)}
    decisive["model"] = own["model"].keys() - _CHANGEABLE
    for part, names in decisive.items():
        for name in sorted(names & saved[part].keys() & own[part].keys()):
            if saved[part][name] != own[part][name]:
                differences.append(f"{name} was {saved[part][name]}")
    # The best figure so far would be compared with another measure's, as with another validation file's above.
    for name in ("metric_for_best_model", "greater_is_better"):
        was, now = (each["options"].get(name) for each in (saved, own))
        if None not in (was, now) and was != now:
            differences.append(f"{name} was {was}")
    if differences:
        problem = "it was saved by a run with another model, other data or another order"
        raise ValueError(f"{problem}: {'; '.join(differences)}")


def read_record(folder: str | os.PathLike) -> dict[str, Any]:
    """Return what `run.json` in a folder holds; nothing if there is none, as in the folders of earlier versions."""
    file = Path(folder) / RUN_FILE
    return load_json(file, "record of a run") if file.is_file() else {}


def list_contents(files: list[dict[str, str]]) -> list[str]:
    """Return the hashes or commits of files, whatever their names."""
    return [file.get("sha256") or file["commit"] for file in files]


def list_training_files(name_or_path: str) -> set[str]:
    """Return the SHA-256 of the files that the model in a folder was last trained on; none if it has no record."""
    data = read_record(name_or_path).get("data", {})
    return set(list_contents([*data.get("train_file", []), *data.get("questions_file", [])]))


def copy_record(name_or_path: str | None, folder: Path) -> None:
    """Copy a model's `run.json` into another folder, in place of an earlier model's; models of old versions and baselines have none.

    A folder that has a model keeps its own.
    """
    if (folder / WEIGHTS_FILE).exists():
        return
    (folder / RUN_FILE).unlink(missing_ok=True)
    with suppress(BadInput):
        if name_or_path is not None:
            shutil.copy(find_model_file(name_or_path, RUN_FILE), folder / RUN_FILE)
