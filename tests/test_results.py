"""The measurements in docs/results/ keep to their schema, and the pages show what they say."""

import importlib.util
import re
import shutil

import pytest

from conftest import ROOT

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MEASUREMENT = "title: One\nquestion: speed\ndate: 2026-11-28\nrows: [{what: it, correct: [1], of: 2}]\n"


@pytest.fixture(scope="module")
def tables():
    spec = importlib.util.spec_from_file_location("make_tables", ROOT / "docs" / "make_tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def measured(tables):
    return tables.load()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_tables_are_made_from_the_measurements(tables, measured, document):
    assert document.read_text("utf-8") == tables.fill(document, measured), "stale: python docs/make_tables.py"


def list_figures(rows: list[dict], average) -> set[float]:
    """All figures of the measurements, those in sentences included, and the accuracies that follow from counts."""
    told = {float(figure.replace(",", "")) for row in rows for figure in re.findall(r"\d[\d,]*\.?\d*", str(row))}
    counted = {round(100 * count / row["of"], 1) for row in rows for count in row.get("correct", [])}
    means = {round(average([row]), 1) for row in rows if {"correct", "accuracy"} & row.keys()}
    pools = {row["pool"] for row in rows if "pool" in row}
    for positions in ("learned", "rotary"):
        kept = [row for row in rows if row.get("positions", positions) == positions]
        for pooled in ([row for row in kept if row.get("pool") == pool] for pool in pools):
            means |= {round(average(pooled), 1)} if pooled else set()
    return told | counted | means


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_every_percentage_was_measured(tables, measured, document):
    lines = document.read_text("utf-8").splitlines()
    if document.name not in ("results.md", "findings.md"):
        lines = [line for line in lines if line.startswith("|")]
    # `90.2 and 90.5 %` has two.
    shown = re.findall(r"(?<![\d.])\d+\.\d(?=(?:(?:, | to | and | or )\d+\.\d)* ?%)", "\n".join(lines))
    assert {float(percent) for percent in shown} - list_figures(measured, tables.average) == set()


@pytest.mark.parametrize(
    "old, new, mistake",
    [
        ("question: speed", "question: size", "unknown question `size`; known are windows, .*"),
        ("title: One\n", "", "`title` is missing"),
        ("title: One", "title: 1", "`title` must be str"),
        ("title: One", "title: One\nspeed: 1", "unknown key `speed`; known are title, .*"),
        ("title: One", "title: One\nmachine: abacus", "unknown machine `abacus`"),
        ("2026-11-28\n", "2026-11-29\n", "its name does not begin with its date, 2026-11-29"),
        (", of: 2", "", "row 1: give `correct` with `of`, from which the accuracy follows, or `accuracy` alone"),
        ("of: 2", "of: 2, accuracy: 50.0", "row 1: give `correct` with `of`, .*"),
        ("[1]", "[3]", r"row 1: `correct` is \[3\]; each must be a whole number up to 2"),
        ("of: 2", "of: 2, seeds: [1, 2]", "row 1: `seeds` and `correct` differ in length"),
        ("correct: [1], of: 2", "positions: rotary", "row 1: no figure: .*"),
        ("{what: it, correct: [1], of: 2}", "it", "row 1: not a mapping"),
    ],
)
def test_a_measurement_with_a_mistake_is_refused_in_one_line(tables, tmp_path, old, new, mistake):
    for name in ("schema", "machines"):
        shutil.copy(ROOT / "docs" / "results" / f"{name}.yaml", tmp_path)
    path = tmp_path / "2026-11-28-one.yaml"
    path.write_text(MEASUREMENT)
    assert [row["title"] for row in tables.load(tmp_path)] == ["One"]
    assert old in MEASUREMENT
    path.write_text(MEASUREMENT.replace(old, new))
    with pytest.raises(SystemExit, match=f"^2026-11-28-one.yaml: {mistake}$"):
        tables.load(tmp_path)


def test_a_table_that_nobody_measured_is_refused(tables, measured, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- table: typo -->\n<!-- end -->\n")
    with pytest.raises(SystemExit, match="^page.md: no table, question or measurement `typo`$"):
        tables.fill(page, measured)
