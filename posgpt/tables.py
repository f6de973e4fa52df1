"""Markdown tables."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from data_scripts.files import write_file


def format_table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table, its columns as wide as their longest cell so that it reads well in a terminal, too."""
    # A vertical bar or a line break in a cell would end it.
    cells = [[str(cell).replace("\n", " ").replace("|", "\\|") for cell in row] for row in (header, *rows)]
    widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, ["-" * width for width in widths])
    return "\n".join(f"| {' | '.join(map(str.ljust, row, widths))} |" for row in cells)


def write_table(folder: Path, rows: Sequence[dict[str, str]], caption: str | None = None) -> None:
    """Print a Markdown table, below its caption if it has one, and write both to `table.md`.

    Args:
        rows: The cells of each row by column; a cell that a row does not have is empty.
    """
    columns = list(dict.fromkeys(column for row in rows for column in row))
    table = format_table(columns, [[row.get(column, "") for column in columns] for row in rows])
    text = f"{caption}\n\n{table}" if caption else table
    write_file(folder / "table.md", text + "\n")
    print("\n" + text)
