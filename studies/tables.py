"""What the studies' tables share: which rows are wanted, and where the table goes."""

from collections.abc import Collection
from pathlib import Path

from data_scripts.text_files import BadInput, written_whole


def chosen(names: list[str] | None, known: Collection[str], kind: str) -> list[str]:
    """The rows to fill: `names`, or all that are `known`.

    Args:
        kind: What a row is, for the message.

    Raises:
        BadInput: a name is not known.
    """
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise BadInput(f"{unknown[0]!r} is no {kind}; there are: {', '.join(known)}.")
    return names or list(known)


def show_table(lines: list[str], folder: Path) -> None:
    """Print a Markdown table and write it to `table.md`."""
    table = "\n".join(lines)
    with written_whole(folder / "table.md") as file:
        file.write(table + "\n")
    print("\n" + table)
