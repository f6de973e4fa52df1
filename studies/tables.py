"""What the studies' tables share."""

from collections.abc import Sequence
from pathlib import Path

from data_scripts.files import write_atomically
from posgpt.tables import format_table


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
