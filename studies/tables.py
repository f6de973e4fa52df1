"""What the studies' tables share: which rows are wanted, and where the table goes."""

from collections.abc import Collection, Sequence
from pathlib import Path

from data_scripts.errors import BadInput
from data_scripts.files import write_atomically
from posgpt.tables import format_table


def choose_rows(names: list[str] | None, known: Collection[str], kind: str) -> list[str]:
    """Return the rows to fill: `names`, or all that are `known`.

    Args:
        kind: What a row is, for the message.

    Raises:
        BadInput: a name is not known.
    """
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise BadInput(f"{unknown[0]!r} is no {kind}; there are: {', '.join(known)}.")
    return names or list(known)


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
