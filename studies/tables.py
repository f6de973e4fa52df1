"""What the studies' tables share: which rows are wanted, and where the table goes."""

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import yaml

from data_scripts.errors import BadInput
from data_scripts.files import write_atomically
from posgpt.tables import format_table


def load_rows(path: Path, names: list[str] | None) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Read a study's rows, the settings of each by its name; also return the names of those to fill, all if none are given.

    Raises:
        BadInput: a name is not known.
    """
    rows = yaml.safe_load(path.read_text(encoding="utf-8"))
    return rows, choose_rows(names, rows, f"row of {path.name}")


def choose_rows(names: list[str] | None, known: Collection[str], kind: str) -> list[str]:
    """Return the rows to fill: `names`, or all that are `known`.

    Args:
        kind: What a row is, for the message.

    Raises:
        BadInput: a name is not known.
    """
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise BadInput(f"{unknown[0]!r} is not a {kind}; there are: {', '.join(known)}.")
    return names or list(known)


def format_known(value: float, form: str) -> str:
    """Return a figure in a format such as `.0f`; `unknown` if it is NaN, as the minutes of a training may be."""
    return "unknown" if math.isnan(value) else format(value, form)


def write_table(folder: Path, rows: Sequence[dict[str, str]], caption: str | None = None) -> None:
    """Print a Markdown table, below its caption if it has one, and write both to `table.md`.

    Args:
        rows: The cells of each row by column; a cell that a row does not have is empty.
    """
    columns = list(dict.fromkeys(column for row in rows for column in row))
    table = format_table(columns, [[row.get(column, "") for column in columns] for row in rows])
    text = f"{caption}\n\n{table}" if caption else table
    with write_atomically(folder / "table.md") as file:
        file.write(text + "\n")
    print("\n" + text)
