"""The one style of PosGPT's charts, and how they are written."""

import os
from io import BytesIO
from typing import Any

from data_scripts.files import write_atomically

BLUE, GREY, ORANGE, LIGHT_BLUE = "#2f6fde", "#b0b7c3", "#e07b39", "#cfe0fb"
# An answer with two `$` is not a formula.
STYLE: Any = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "text.parse_math": False,
}


def make_figure(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Any, Any]:
    """Return a matplotlib figure of `width` × `height` inches and its axes: one, a list, or rows of them."""
    import matplotlib
    from matplotlib.figure import Figure

    # For the whole process: legends are drawn after this returns.
    matplotlib.rcParams.update(STYLE)
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns)


def _write_plain_numbers(figure: Any) -> None:
    """Label logarithmic axes 0.1, 1, 10: matplotlib's own labels are formulas, which `STYLE` turns off."""
    from matplotlib.ticker import LogFormatterSciNotation

    class PlainFormatter(LogFormatterSciNotation):
        def __call__(self, x: float, pos: int | None = None) -> str:
            # Which ticks have a label is matplotlib's choice.
            return f"{x:g}" if super().__call__(x, pos) else ""

    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if isinstance(axis.get_major_formatter(), LogFormatterSciNotation):
                axis.set_major_formatter(PlainFormatter())
            if isinstance(axis.get_minor_formatter(), LogFormatterSciNotation):
                axis.set_minor_formatter(PlainFormatter())


def render_picture(figure: Any, dpi: int = 120) -> bytes:
    """Return a matplotlib figure as PNG."""
    _write_plain_numbers(figure)
    file = BytesIO()
    figure.savefig(file, format="png", dpi=dpi)
    return file.getvalue()


def save_picture(figure: Any, path: str | os.PathLike, dpi: int = 120) -> None:
    """Write a matplotlib figure to `path` as PNG; nothing is left half-written."""
    with write_atomically(path, "wb") as file:
        file.write(render_picture(figure, dpi))
