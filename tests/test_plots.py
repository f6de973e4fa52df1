"""Charts: characters that the usual font lacks."""

from collections.abc import Iterator

import pytest
import transformers

pytest.importorskip("matplotlib", reason="needs the report's libraries")

from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib.font_manager import fontManager

from posgpt import plots


def write_font(path, characters: str) -> None:
    """Write a font in which each of these characters is a black square."""
    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    for point in ((0, 1000), (1000, 1000), (1000, 0)):
        pen.lineTo(point)
    pen.closePath()
    names = [".notdef", *(f"u{ord(character):X}" for character in characters)]
    font = FontBuilder(1000, isTTF=True)
    font.setupGlyphOrder(names)
    font.setupCharacterMap({ord(character): name for character, name in zip(characters, names[1:], strict=True)})
    font.setupGlyf(dict.fromkeys(names, pen.glyph()))
    font.setupHorizontalMetrics(dict.fromkeys(names, (1000, 0)))
    font.setupHorizontalHeader(ascent=1000, descent=0)
    font.setupNameTable({"familyName": path.stem, "styleName": "Regular", "psName": path.stem})
    font.setupOS2()
    font.setupPost()
    font.save(path)


@pytest.fixture
def fonts(monkeypatch) -> Iterator[list]:
    """The fonts of this machine that matplotlib brings itself, as where no other one is installed."""
    transformers.utils.logging.warning_once.cache_clear()
    monkeypatch.setattr(fontManager, "ttflist", [font for font in fontManager.ttflist if "DejaVu" in font.name])
    yield fontManager.ttflist
    fontManager._findfont_cached.cache_clear()


def draw(labels: list[str], format: str = "png") -> bytes:
    figure, axes = plots.make_figure(3, 2)
    axes.barh(labels, range(1, len(labels) + 1))
    return plots.render_picture(figure, format=format)


def test_characters_are_drawn_in_an_installed_font_that_has_them(fonts, tmp_path, caplog, recwarn):
    assert draw(["Orl\u00e9ans", "Rome"]).startswith(b"\x89PNG") and not caplog.messages
    boxes = draw(["\u4e2d", "\u0d85", "Rome"])
    (line,) = caplog.messages
    assert "boxes for \u0d85\u4e2d: no installed font" in line and draw(["\u4e2d", "\u0d85", "Rome"]) == boxes
    caplog.clear()
    for name, characters in (("Both", "\u4e2d\u0d85"), ("One", "\u4e2d"), ("Other", "\u0d86")):
        write_font(tmp_path / f"{name}.ttf", characters)
        fontManager.addfont(tmp_path / f"{name}.ttf")
    assert draw(["\u4e2d", "\u0d85", "Rome"]) != boxes and not caplog.messages
    # Also as a tick's label in an SVG; what still no font has is named alone.
    assert b"Both-" in draw(["\u0d85"], "svg")
    draw(["\u4e2d", "\u0d86", "\ua000"])
    assert [message.split(":")[0] for message in caplog.messages] == ["charts show boxes for \ua000"]
    assert not [warning for warning in recwarn if "Glyph" in str(warning.message)]
