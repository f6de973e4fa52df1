"""Results that a study keeps, each for as long as what it depends on stays the same."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data_scripts.files import write_atomically

Record = dict[str, Any]


def read_result(path: Path, key: Record) -> Record | None:
    """Return the result that is kept under `key`: empty if it is unfinished, None if there is none."""
    record = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
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
        folder: Where `compute` leaves what it can resume from; removed if that belongs to another key.
    """
    kept = read_result(path, key)
    if kept is None:
        if folder and folder.exists():
            shutil.rmtree(folder)
        write_result(path, key, {})
    if not kept:
        kept = compute()
        write_result(path, key, kept)
    return kept
