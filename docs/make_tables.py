"""Make the tables of README.md and docs/*.md from the measurements in docs/results/.

    python docs/make_tables.py

writes what stands between `<!-- table: NAME -->` and `<!-- end -->`. NAME is a table of docs/results/tables.yaml, a question
(the last rows of docs/results/README.md name them) or a measurement: the name of its file without `.yaml`. After a
measurement, `, brief` leaves out the rows that are marked as details.
"""

import os
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "results"
QUESTIONS = "headline assignment positions objective relations labels knowledge speed race gpu".split()
# What a file and each of its rows may say, and in which type; docs/results/README.md says what each of these means.
TEXT, NUMBER, LIST = (str,), (int, float), (list,)
FILE_KEYS: dict[str, tuple[type, ...]] = dict.fromkeys(
    ["title", "question", "command", "program", "version", "data", "asked", "note", "source"], TEXT
) | {"date": TEXT, "machine": (str, list), "dev_reads": (int,), "rows": LIST}
ROW_KEYS: dict[str, tuple[type, ...]] = {
    "what": TEXT, "settings": (dict,), "positions": TEXT, "seeds": LIST, "correct": LIST, "of": (int,), "accuracy": NUMBER,
    "interval": LIST, "characters": NUMBER, "steps": (int,), "minutes": (int, float, list), "last_loss": (int, float, list),
    "figures": (dict,), "machine": TEXT, "note": TEXT, "pool": TEXT, "detail": (bool,),
}  # fmt: skip
BLOCK = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end -->)", re.S)


def check_keys(where: str, given: Any, allowed: dict[str, tuple[type, ...]], required: list[str]) -> None:
    """Leave with one line if something is missing, unknown or of another type."""
    if not isinstance(given, dict):
        raise SystemExit(f"{where}: not a mapping of names to values")
    for key in required:
        if key not in given:
            raise SystemExit(f"{where}: `{key}` is missing")
    for key, value in given.items():
        if key not in allowed:
            raise SystemExit(f"{where}: unknown key `{key}`; known are {', '.join(allowed)}")
        if not isinstance(value, allowed[key]):
            names = " or ".join(each.__name__ for each in allowed[key])
            raise SystemExit(f"{where}: `{key}` is {value!r}; it must be of type {names}")


def check_row(where: str, row: dict, machines: dict) -> None:
    check_keys(where, row, ROW_KEYS, ["what"])
    correct, seeds = row.get("correct", []), row.get("seeds", [])
    if bool(correct) != ("of" in row) or (correct and "accuracy" in row):
        raise SystemExit(f"{where}: give `correct` with `of`, from which the accuracy follows, or `accuracy` alone")
    if any(not isinstance(each, int) or not 0 <= each <= row["of"] for each in correct):
        raise SystemExit(f"{where}: `correct` is {correct}; each must be a whole number from 0 to {row['of']}")
    if correct and seeds and len(correct) != len(seeds):
        raise SystemExit(f"{where}: {len(seeds)} seeds, but {len(correct)} figures in `correct`")
    if not row.keys() & {"correct", "accuracy", "figures", "minutes"}:
        raise SystemExit(f"{where}: no figure; give `correct`, `accuracy`, `minutes` or `figures`")
    if row.get("machine", "") not in {"", *machines}:
        raise SystemExit(f"{where}: no machine `{row['machine']}` in machines.yaml")


def load(folder: Path = FOLDER) -> dict[str, dict]:
    """Read all measurements, newest first, by name."""
    machines = yaml.safe_load((folder / "machines.yaml").read_text(encoding="utf-8"))
    measurements = {}
    for path in sorted(folder.glob("2*.yaml"), reverse=True):
        measurement = yaml.safe_load(path.read_text(encoding="utf-8"))
        check_keys(path.name, measurement, FILE_KEYS, ["title", "question", "date", "rows"])
        if measurement["question"] not in QUESTIONS:
            raise SystemExit(f"{path.name}: unknown question `{measurement['question']}`; known are {', '.join(QUESTIONS)}")
        if not path.name.startswith(measurement["date"]):
            raise SystemExit(f"{path.name}: its name does not begin with its date, {measurement['date']}")
        used = measurement.get("machine", [])
        for machine in [used] if isinstance(used, str) else used:
            if machine not in machines:
                raise SystemExit(f"{path.name}: no machine `{machine}` in machines.yaml")
        for number, row in enumerate(measurement["rows"], 1):
            check_row(f"{path.name}, row {number}", row, machines)
        measurements[path.stem] = measurement
    return measurements


def average(rows: list[dict]) -> float:
    """The mean accuracy in percent: over all runs of the rows, or of the figures given where nothing was counted."""
    each = [100 * correct / row["of"] for row in rows for correct in row.get("correct", [])]
    each += [row["accuracy"] for row in rows if "accuracy" in row]
    return sum(each) / len(each)


def show(value: Any, unit: str = "") -> str:
    if isinstance(value, list):
        return ", ".join(map(show, value)) + unit
    number = isinstance(value, (int, float))
    return (f"{value:.1f}" if unit == " %" and number else f"{value:,}" if number else str(value)) + (unit if number else "")


def describe(row: dict) -> dict[str, str]:
    """A row's cells, by the heads of their columns."""
    cells = {"": row["what"]} | {key: show(value) for key, value in row.get("settings", {}).items()}
    cells["positions"] = row.get("positions", "")
    if "correct" in row or "accuracy" in row:
        counts = f" ({row['correct'][0]:,} of {row['of']:,})" if len(row.get("correct", [])) == 1 else ""
        cells["answered"] = f"{average([row]):.1f} %{counts}"
    if len(row.get("correct", [])) > 1:
        cells["each run"] = ", ".join(f"{100 * each / row['of']:.1f}" for each in row["correct"]) + " %"
    if "interval" in row:
        cells["95 % interval"] = "{:.1f} to {:.1f} %".format(*row["interval"])
    for key, head in {"characters": "characters read", "steps": "training steps", "last_loss": "last loss"}.items():
        cells[head] = show(row[key], " M" if key == "characters" else "") if key in row else ""
    cells["minutes"] = show(row["minutes"]) if "minutes" in row else ""
    for key, value in row.get("figures", {}).items():
        head, _, percent = key.partition(" (%)")
        cells[head] = show(value, " %") if key.endswith("(%)") else show(value)
    return cells | {"machine": row.get("machine", ""), "note": row.get("note", "")}
