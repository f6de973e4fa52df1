"""Results that a study keeps, each for as long as what it depends on stays the same."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data_scripts.errors import BadInput
from data_scripts.files import load_json, write_atomically

Record = dict[str, Any]


def read_result(path: Path, key: Record) -> Record | None:
    """Return the result that is kept under `key`: empty if it is unfinished, None if there is none."""
    record = _read_record(path)
    return record if record.pop("key", None) == key else None


def write_result(path: Path, key: Record, result: Record) -> None:
    """Write a result beside its key."""
    with write_atomically(path) as file:
        json.dump({"key": key} | result, file, indent=2)


def keep_result(path: Path, key: Record, compute: Callable[[], Record], folder: Path | None = None) -> Record:
    """Return the result that is kept under `key`, or else what `compute` returns, which is then kept.

    Args:
        path: The JSON file for the key and the result.
        key: What the result depends on, such as arguments and hashes of files; JSON values.
        compute: Called if there is no result yet; JSON values.
        folder: Where `compute` leaves what it can resume from, and `path` lies; emptied if that belongs to another key.

    Raises:
        BadInput: `folder` holds what is not a study's.
    """
    kept = read_result(path, key)
    if kept is None:
        if folder and folder.exists():
            _empty_folder(folder, path)
        write_result(path, key, {})
    if not kept:
        kept = compute()
        write_result(path, key, kept)
    return kept


def _read_record(path: Path) -> Record:
    return load_json(path, "result of a study") if path.exists() else {}


def _empty_folder(folder: Path, path: Path) -> None:
    """Remove what a study has left in its folder under another key; the key in `path` stays.

    Raises:
        BadInput: the folder is not empty, and no key in it says that a study made it.
    """
    entries = sorted(folder.iterdir())
    if entries and "key" not in _read_record(path):
        raise BadInput(
            f"{folder}: holds {entries[0].name}, and no {path.name} that says which study made it; give another --output_dir,"
            " or move the folder away."
        )
    for entry in entries:
        if entry == path:
            # Without the key, what an interruption leaves of the folder would be nobody's.
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
