"""Markdown tables."""

from collections.abc import Iterable, Sequence


def format_table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table, its columns as wide as their longest cell so that it reads well in a terminal, too."""
    # A vertical bar or a line break in a cell would end it.
    cells = [[str(cell).replace("\n", " ").replace("|", "\\|") for cell in row] for row in (header, *rows)]
    widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, ["-" * width for width in widths])
    return "\n".join(f"| {' | '.join(map(str.ljust, row, widths))} |" for row in cells)
