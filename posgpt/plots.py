"""The one style of PosGPT's charts, and how they are written."""

import os
import warnings
from io import BytesIO
from typing import Any

from transformers.utils import logging

from data_scripts.files import write_atomically

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


def _write_plain_numbers(figure: Any) -> None:
    """Label logarithmic axes 0.1, 1, 10: matplotlib's own labels are formulas, which `STYLE` turns off."""
    from matplotlib.ticker import LogFormatterSciNotation

    class PlainFormatter(LogFormatterSciNotation):
        def __call__(self, x: float, pos: int | None = None) -> str:
            # Which ticks have a label is matplotlib's choice.
            return f"{x:g}" if super().__call__(x, pos) else ""

    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        if axis.get_scale() == "log":
            axis.set(major_formatter=PlainFormatter(), minor_formatter=PlainFormatter())


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
    for font in fontManager.ttflist if missing else ():
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
    with write_atomically(path, "wb") as file:
        file.write(render_picture(figure, dpi))
