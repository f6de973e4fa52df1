"""The measurements in docs/results/ keep to their schema, and the pages show what they say."""

import importlib.util
import json
import re
import shutil

import numpy as np
import pytest

from conftest import ROOT
from posgpt.positions.report import group_runs
from posgpt.positions.tasks import TASKS

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


WITH_TABLES = [each for each in DOCUMENTS if "<!-- table:" in each.read_text("utf-8")]


@pytest.mark.parametrize("document", WITH_TABLES, ids=lambda document: document.name)
def test_tables_are_made_from_the_measurements(tables, measured, document):
    assert document.read_text("utf-8") == tables.fill(document, measured), "stale: python docs/make_tables.py"


def find_percents(text: str) -> set[float]:
    """The percentages of a text that have a decimal; `90.2 and 90.5 %` has two."""
    return {float(each) for each in re.findall(r"(?<![\d.])\d+\.\d(?=(?:(?:, | to | and | or )[\d.]+)* ?%)", text)}


def list_percents(rows: list[dict], average) -> set[float]:
    """What the measurements say in percent: as figures, in sentences, and as accuracies that follow from counts."""
    percents = find_percents(str([(row["what"], row.get("note"), row.get("title")) for row in rows]))
    percents |= {round(100 * count / row["of"], 1) for row in rows for count in row.get("correct", [])}
    for row in rows:
        figures = [value for key, value in row.get("figures", {}).items() if key.endswith("(%)")]
        for value in [*figures, row.get("interval", [])]:
            percents |= {*value} if isinstance(value, list) else {value}
    groups = [[row] for row in rows]
    for positions in ("learned", "rotary"):
        for pool in {row.get("pool") for row in rows} - {None}:
            pooled = [row for row in rows if row.get("pool") == pool and row.get("positions", positions) == positions]
            groups.append(pooled)
    return percents | {
        round(average(group), 1) for group in groups if any({"correct", "accuracy"} & row.keys() for row in group)
    }


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_every_percentage_was_measured(tables, measured, document):
    text = document.read_text("utf-8")
    if document.name not in ("results.md", "findings.md"):
        text = "\n".join(re.findall(r"^\|.*", text, re.M))
    assert find_percents(text) <= list_percents(measured, tables.average)


def test_every_percentage_of_a_finding_is_in_a_file_that_its_section_names(tables, measured):
    text = (ROOT / "docs" / "findings.md").read_text("utf-8")
    for section in re.split("^(?=## )", text, flags=re.M):
        named = set(re.findall(r"(?:results/|<!-- table: )(2[\w-]+)", section))
        # The table of all recipes has the means over several files.
        if "(results.md#dev-all-recipes)" in section:
            named |= {row["name"] for row in measured if "pool" in row}
        rows = [row for row in measured if row["name"] in named]
        assert find_percents(section) <= list_percents(rows, tables.average), section.partition("\n")[0]


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
        ("title: One", "title: One: two", "not YAML: mapping values are not allowed here .*"),
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


def test_each_pooled_row_has_a_place_and_each_place_a_row(tables, measured):
    places = {pool for table in tables.read("tables").values() for pool in table["rows"]}
    assert {row["pool"] for row in measured if "pool" in row} == places


def test_a_table_that_nobody_measured_is_refused(tables, measured, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- table: typo -->\n<!-- end -->\n")
    with pytest.raises(SystemExit, match="^page.md: no table, question or measurement `typo`$"):
        tables.fill(page, measured)


def test_the_page_on_positions_has_the_medians_of_its_runs():
    folder = ROOT / "docs" / "positions_table"
    records = [json.loads(line) for line in (folder / "runs.jsonl").read_text(encoding="utf-8").splitlines()]
    cells = {(cell.name, cell.encoding): cell for cell in group_runs(TASKS, records)}
    page = (ROOT / "docs" / "positions.md").read_text(encoding="utf-8")
    assert f"[{len(records)}](positions_table/runs.jsonl) are finished" in page
    tasks = "copy", "copy_twice", "sort", "flip_flop"
    _, header, rows = page.partition(f"| | {' | '.join(f'`{task}`' for task in tasks)} |\n|---|---|---|---|---|\n")
    assert header
    for row in rows.partition("\n\n")[0].splitlines():
        encoding, *shown = row.strip("|").split("|")
        for task, each in zip(tasks, shown, strict=True):
            cell = cells[task, encoding.strip(" `")]
            low, median, high = 100 * np.quantile(cell.average("exact", True), (0, 0.5, 1))
            said = f"{median:.1f} ({low:.1f} to {high:.1f})" if low < high else f"{median:.1f} with each"
            assert each.strip() == (said if cell.is_learned else "–"), row
