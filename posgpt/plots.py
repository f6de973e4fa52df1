"""The one style of PosGPT's charts, and how they are written."""

import os
import warnings
from collections.abc import Mapping, Sequence
from io import BytesIO
from math import ceil
from typing import Any

import numpy as np
from transformers.utils import logging

from data_scripts.files import write_file

BLUE, GREY, ORANGE, LIGHT_BLUE = "#2f6fde", "#b0b7c3", "#e07b39", "#cfe0fb"
# An answer with two `$` is not a formula.
STYLE: Any = {"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False, "text.parse_math": False}


def make_figure(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Any, Any]:
    """Return a matplotlib figure of `width` × `height` inches and its axes: one, a list, or rows of them."""
    import matplotlib
    from matplotlib.figure import Figure

    # For the whole process: legends are drawn after this returns.
    matplotlib.rcParams.update(STYLE)
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns)


def make_panels(count: int, width: float, height: float) -> tuple[Any, list[Any]]:
    """Return a figure of `count` panels of `width` × `height` inches, at most four beside each other, and their axes."""
    columns = min(count, 4)
    rows = ceil(count / columns)
    figure, axes = make_figure(1.5 + width * columns, height * rows, rows, columns)
    panels = list(np.ravel(axes))
    for empty in panels[count:]:
        empty.remove()
    return figure, panels[:count]


def draw_seeds(
    axes: Any, rows: Mapping[str, tuple[Sequence[float], tuple[float, float]]], colors: Sequence[str] = (BLUE,)
) -> None:
    """Draw rows from the top down: a dot for each seed, a line at their mean, and a band for its interval.

    Args:
        rows: By name, the seeds' shares and the interval's ends, 0 to 1 each.
        colors: Those of the rows; repeated where there are fewer.
    """
    # The axis does not begin at 0: rows that are close could not be told apart.
    for i, (shares, (low, high)) in enumerate(rows.values()):
        color, mean = colors[i % len(colors)], 100 * sum(shares) / len(shares)
        axes.barh(i, 100 * (high - low), 0.5, 100 * low, color=color, alpha=0.2)
        # Below each other, so that equal seeds show.
        heights = [i + 0.1 * (number - (len(shares) - 1) / 2) for number in range(len(shares))]
        axes.plot([100 * share for share in shares], heights, "o", color=color, markersize=6, zorder=3)
        axes.vlines(mean, i - 0.36, i + 0.36, color="black", lw=2)
        axes.annotate(f"{mean:.1f}", (100 * max(high, *shares), i), (6, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(rows)), list(rows))
    axes.invert_yaxis()
    axes.use_sticky_edges = False
    axes.margins(x=0.12)
    axes.grid(axis="x", alpha=0.3)


def _write_plain_numbers(figure: Any) -> None:
    """Label logarithmic axes 0.1, 1, 10: matplotlib's own labels are formulas, which `STYLE` turns off."""
    from matplotlib.ticker import FixedLocator, LogFormatterSciNotation, StrMethodFormatter

    class PlainFormatter(LogFormatterSciNotation):
        def __call__(self, x: float, pos: int | None = None) -> str:
            # Which ticks have a label is matplotlib's choice.
            return f"{x:.10g}" if super().__call__(x, pos) else ""

    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        # Labels that a chart has written itself stay.
        if axis.get_scale() == "log" and isinstance(axis.get_major_formatter(), LogFormatterSciNotation):
            chosen = isinstance(axis.get_major_locator(), FixedLocator)
            major = StrMethodFormatter("{x:.10g}") if chosen else PlainFormatter()
            axis.set(major_formatter=major, minor_formatter=PlainFormatter())


def _choose_fonts(figure: Any) -> None:
    """Draw characters that matplotlib's own font lacks in the installed fonts that have them; say which none has."""
    from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
    from matplotlib.text import Text

    with warnings.catch_warnings(action="ignore"):
        # Before, ticks have no labels.
        figure.draw_without_rendering()
    texts, own = figure.findobj(Text), FontProperties()
    missing = {ord(character) for text in texts for character in text.get_text() if not character.isspace()}
    missing -= get_font(findfont(own)).get_charmap().keys()
    families = own.get_family()
    for font in fontManager.ttflist:
        if not missing:
            break
        if found := missing & get_font(font.fname).get_charmap().keys():
            families, missing = [*families, font.name], missing - found
    for text in texts if len(families) > 1 else ():
        text.set_fontfamily(families)
    if missing:
        characters = "".join(map(chr, sorted(missing)))[:40]
        fix = "no installed font has these characters; install one, such as Noto Sans CJK."
        logging.get_logger(__name__).warning_once(f"charts show boxes for {characters}: {fix}")


def render_picture(figure: Any, dpi: int = 120, format: str = "png") -> bytes:
    """Return a matplotlib figure as PNG or in another `format`."""
    _write_plain_numbers(figure)
    _choose_fonts(figure)
    file = BytesIO()
    with warnings.catch_warnings():
        # It has been said once, for all characters.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(file, format=format, dpi=dpi)
    return file.getvalue()


def save_picture(figure: Any, path: str | os.PathLike, dpi: int = 120) -> None:
    """Write a matplotlib figure to `path` as PNG; nothing is left half-written."""
    write_file(path, render_picture(figure, dpi))
