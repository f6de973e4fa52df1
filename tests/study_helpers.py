"""What the tests of the studies share."""

from importlib import import_module

from conftest import TINY
from data_scripts.errors import BadInput

SMALL = {name.removeprefix("--"): value for name, value in zip(TINY[::2], TINY[1::2], strict=True)}


def train_in_process(arguments: list[str]) -> int:
    """Train as `training_runs.launch` does, without a process of its own."""
    command, *options = arguments
    try:
        import_module(f"posgpt.{command}").main(options)
    except BadInput:
        return 1
    return 0


def read_rows(text: str) -> dict[str, list[str]]:
    """Return the other cells of each row of the Markdown tables in `text`, by its first cell; headers are rows, too."""
    lines = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| --")]
    rows = [line.removeprefix("|").removesuffix("|").split("|") for line in lines]
    return {first.strip(): [cell.strip() for cell in cells] for first, *cells in rows}
