"""Results that a study keeps, each for as long as what it depends on stays the same."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import posgpt
from data_scripts.errors import BadInput
from data_scripts.files import hash_files, load_json, write_atomically

Record = dict[str, Any]
# The entry of a key that `hash_code` returns.
CODE = "code"
# What `accept_code` puts before it.
_ACCEPTED = "any, accepted after "
# What decides how a training goes: packages and modules.
_TRAINING_CODE = (
    "modeling_posgpt",
    "data_scripts",
    "posgpt/training",
    "posgpt/recipe_parser.py",
    "posgpt/finetune.py",
    "posgpt/generate_questions.py",
    "posgpt/pretrain.py",
)


@cache
def hash_code(*files: Path) -> str:
    """Return one SHA-256 of the sources that train a model, for a key; `files` are a study's own."""
    root = Path(posgpt.__file__).parent.parent
    sources = [
        file for part in _TRAINING_CODE for file in (root / part, *(root / part).rglob("*.py")) if file.is_file()
    ]
    return hash_files(sorted(sources) + sorted(files))


def read_result(path: Path, key: Record) -> Record | None:
    """Return the result that is kept under `key`: empty if it is unfinished, None if there is none."""
    before, result = _read_record(path)
    return result if _take_accepted_code(before, key) == key else None


def write_result(path: Path, key: Record, result: Record) -> None:
    """Write a result beside its key."""
    with write_atomically(path) as file:
        json.dump({"key": key} | result, file, indent=2)


def accept_code(folder: Path) -> list[Path]:
    """Mark what a folder holds as valid for its study although other code trained it; the hash of that code stays on record.

    Returns:
        The JSON files that said which code it was.

    Raises:
        BadInput: no file in the folder says so.
    """
    accepted = []
    for path in sorted(folder.glob("*.json")):
        key, result = _read_record(path)
        if key is not None and CODE in key:
            accepted.append(path)
            if not str(key[CODE]).startswith(_ACCEPTED):
                write_result(path, key | {CODE: _ACCEPTED + str(key[CODE])}, result)
    if not accepted:
        raise BadInput(
            f"{folder}: no file says which code trained it; give the folder that the study's message names."
        )
    return accepted


def keep_result(path: Path, key: Record, compute: Callable[[], Record], folder: Path | None = None) -> Record:
    """Return the result that is kept under `key`, or else what `compute` returns, which is then kept.

    Args:
        path: The JSON file for the key and the result.
        key: What the result depends on, such as arguments and hashes of files; JSON values.
        compute: Called if there is no result yet; JSON values.
        folder: Where `compute` leaves what it can resume from, and `path` lies. Nothing in it is ever removed.

    Raises:
        BadInput: `folder` holds what is not a study's, or belongs to another key.
    """
    kept = read_result(path, key)
    if kept is None:
        if folder and folder.exists():
            _check_is_free(folder, path, key)
        write_result(path, key, {})
    if not kept:
        kept = compute()
        # The key may name other code, if that was accepted.
        write_result(path, _read_record(path)[0] or key, kept)
    return kept


def _read_record(path: Path) -> tuple[Record | None, Record]:
    """Return the key that a file has, None if it has none, and the result beside it."""
    record = load_json(path, "result of a study") if path.exists() else {}
    key = record.pop("key", None)
    return key if isinstance(key, dict) else None, record


def _take_accepted_code(before: Record | None, key: Record) -> Record | None:
    """Return the key of a record as if its code were that of `key`, if any code was accepted for it."""
    if before is None or not str(before.get(CODE)).startswith(_ACCEPTED):
        return before
    return before | {CODE: key.get(CODE)}


def _check_is_free(folder: Path, path: Path, key: Record) -> None:
    """Check that nothing is in a study's folder yet. What is may be hours of training.

    Raises:
        BadInput: something is, from a study with another key or from somewhere else.
    """
    entries, before = sorted(folder.iterdir()), _take_accepted_code(_read_record(path)[0], key)
    if not entries:
        return
    if before is None:
        raise BadInput(
            f"{folder}: holds {entries[0].name}, and no {path.name} that says which study made it; give another --output_dir,"
            " or move the folder away."
        )
    different = [entry for entry in before | key if before.get(entry) != key.get(entry)]
    fix = f"give another --output_dir, or remove the folder to train again ({path.name} has what it was trained with)"
    if different == [CODE]:
        fix = "remove the folder to train again, or go back to that code"
        if CODE in before:
            fix += f"; or keep it, if what has changed cannot matter to it: python -m studies.accept {folder}"
    raise BadInput(f"{folder}: was trained with other {' and '.join(different)} than this; {fix}.")
