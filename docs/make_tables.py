"""Make the tables of README.md and docs/*.md from the measurements in docs/results/: `python docs/make_tables.py`.

This writes what stands between `<!-- table: NAME -->` and `<!-- end -->`. NAME is a table of docs/results/tables.yaml, one of
QUESTIONS (its measurements' accuracies, newest first) or a measurement, which is its file's name without `.yaml`.
"""

import re
from datetime import date
from os.path import relpath
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "results"
QUESTIONS = [
    "windows",
    "assignment",
    "positions",
    "objective",
    "relations",
    "labels",
    "knowledge",
    "speed",
    "race",
    "gpu",
]
# The types of docs/results/schema.yaml.
TYPES = {
    "text": str,
    "texts": str | list,
    "date": date,
    "count": int,
    "number": int | float,
    "numbers": int | float | list,
}
TYPES |= {"list": list, "mapping": dict, "yes or no": bool}
HEADS = {"characters": "characters read", "steps": "training steps", "minutes": "minutes", "last_loss": "last loss"}
BLOCK = re.compile(r"<!-- table: (.+?) -->\n.*?<!-- end -->", re.S)


def list_mistakes(given: Any, keys: dict, required: list[str], machines: list[str]) -> list[str]:
    if not isinstance(given, dict):
        return ["not a mapping"]
    used = given.get("machine", [])
    types = {key: TYPES[kind] for key, (kind, _) in keys.items()}
    return [
        *(f"`{key}` is missing" for key in required if key not in given),
        *(f"unknown key `{key}`; known are {', '.join(keys)}" for key in given if key not in keys),
        *(
            f"`{key}` must be a {keys[key][0]}"
            for key in keys.keys() & given
            if not isinstance(given[key], types[key])
        ),
        *(f"unknown machine `{each}`" for each in ([used] if isinstance(used, str) else used) if each not in machines),
    ]


def list_mistakes_of_row(row: dict) -> list[str]:
    correct, of = row.get("correct", []), row.get("of", 0)
    rules = {
        "give `correct` with `of`, from which the accuracy follows, or `accuracy` alone": bool(correct) == bool(of)
        and not (correct and "accuracy" in row),
        f"`correct` is {correct}; each must be a whole number up to {of}": all(
            count in range(of + 1) for count in correct
        ),
        "`seeds` and `correct` differ in length": not correct or len(row.get("seeds", correct)) == len(correct),
        "no figure: give `correct`, `accuracy`, `minutes` or `figures`": {"correct", "accuracy", "minutes", "figures"}
        & row.keys(),
    }
    return [mistake for mistake, followed in rules.items() if not followed]


def load(folder: Path = FOLDER) -> dict[str, dict]:
    """Return the measurements by name, newest first; a mistake ends in one line with the file and what is wrong."""
    schema, machines = (
        yaml.safe_load((folder / f"{name}.yaml").read_text("utf-8")) for name in ("schema", "machines")
    )
    measurements = {}
    for path in sorted(folder.glob("2*.yaml"), reverse=True):
        given = measurements[path.stem] = yaml.safe_load(path.read_text("utf-8"))
        mistakes = list_mistakes(given, schema["file"], schema["required"], machines)
        if not mistakes and given["question"] not in QUESTIONS:
            mistakes = [f"unknown question `{given['question']}`; known are {', '.join(QUESTIONS)}"]
        if not mistakes and not path.name.startswith(str(given["date"])):
            mistakes = [f"its name does not begin with its date, {given['date']}"]
        for number, row in enumerate([] if mistakes else given["rows"], 1):
            of_row = list_mistakes(row, schema["row"], ["what"], machines) or list_mistakes_of_row(row)
            mistakes += [f"row {number}: {mistake}" for mistake in of_row]
        if mistakes:
            raise SystemExit(f"{path.name}: {mistakes[0]}")
    return measurements


def average(rows: list[dict]) -> float:
    """The mean accuracy in percent over all runs of the rows."""
    accuracies = [100 * count / row["of"] for row in rows for count in row.get("correct", [])]
    accuracies += [row["accuracy"] for row in rows if "accuracy" in row]
    return sum(accuracies) / len(accuracies)


def show(value: Any, unit: str = "") -> str:
    if isinstance(value, list):
        return ", ".join(show(each, unit).removesuffix(unit) for each in value) + unit
    if not isinstance(value, (int, float)):
        return str(value)
    return (f"{value:.1f}" if unit == " %" else f"{value:,}") + unit


def describe(row: dict) -> dict[str, str]:
    """A row's cells by the heads of their columns."""
    cells = {"": row["what"]} | {key: show(value) for key, value in row.get("settings", {}).items()}
    cells |= {"positions": row.get("positions", ""), "answered": "", "each run": "", "95 % interval": ""}
    if {"correct", "accuracy"} & row.keys():
        correct = row.get("correct", [])
        cells["answered"] = f"{average([row]):.1f} %" + (
            f" ({correct[0]:,} of {row['of']:,})" if len(correct) == 1 else ""
        )
        cells["each run"] = show([100 * count / row["of"] for count in correct], " %") if len(correct) > 1 else ""
    if "interval" in row:
        cells["95 % interval"] = "{:.1f} to {:.1f} %".format(*row["interval"])
    cells |= {head: show(row[key], " M" if key == "characters" else "") for key, head in HEADS.items() if key in row}
    for key, value in row.get("figures", {}).items():
        cells[key.removesuffix(" (%)")] = show(value, " %" if key.endswith(" (%)") else "")
    return cells | {"machine": row.get("machine", "")}


def lay_out(rows: list[dict[str, str]], heads: list[str] | None = None) -> str:
    """A table of Markdown; without `heads`, with the columns in which something stands."""
    heads = heads or list(dict.fromkeys(head for row in rows for head, cell in row.items() if cell))
    lines = [heads, ["---"] * len(heads), *([row.get(head, "") for head in heads] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def make_table(name: str, measurements: dict[str, dict], document: Path) -> str:
    folder = relpath(FOLDER, document.parent)
    links = {id: f"[{given['date']}]({folder}/{id}.yaml)" for id, given in measurements.items()}
    if name in measurements:
        return lay_out([describe(row) for row in measurements[name]["rows"]])
    if name in QUESTIONS:
        asked = {id: given for id, given in measurements.items() if given["question"] == name}
        lines = {id: [] for id in asked}
        for id, given in asked.items():
            for row in given["rows"]:
                if {"correct", "accuracy"} & row.keys() and not row.get("detail"):
                    settings = [f"{key}: {show(value)}" for key, value in row.get("settings", {}).items()]
                    cells = {"measured": links[id], "what": ", ".join([row["what"], *settings])}
                    lines[id].append(describe(row) | cells | {"asked": row.get("asked", given.get("asked", ""))})
        others = [f"[{asked[id]['title']}]({folder}/{id}.yaml)" for id in asked if not lines[id]]
        heads = ["measured", "what", "positions", "asked", "answered", "each run", "characters read", "minutes"]
        table = lay_out([line for each in lines.values() for line in each], heads) if any(lines.values()) else ""
        return table + ("\n" * bool(table) + f"Also measured: {'; '.join(others)}.\n" if others else "")
    pooled = yaml.safe_load((FOLDER / "tables.yaml").read_text("utf-8"))
    if name not in pooled:
        raise SystemExit(f"{document.name}: no table, question or measurement `{name}`")
    lines = []
    for pool, what in pooled[name]["rows"].items():
        found = {id: [row for row in given["rows"] if row.get("pool") == pool] for id, given in measurements.items()}
        rows = [row for each in found.values() for row in each]
        chosen = {p: [row for row in rows if row.get("positions", p) == p] for p in ("learned", "rotary")}
        lines.append(
            {pooled[name]["head"]: what} | {p: f"{average(each):.1f} %" if each else "" for p, each in chosen.items()}
        )
        if pooled[name].get("sources"):
            read = next((show(row["characters"], " M") for row in rows if "characters" in row), "")
            lines[-1] |= {"characters read": read, "measured": ", ".join(links[id] for id in found if found[id])}
    return lay_out(lines)


def fill(document: Path, measurements: dict[str, dict]) -> str:
    """Return the document's text with its tables as they should be."""

    def write(block: re.Match) -> str:
        return f"<!-- table: {block[1]} -->\n{make_table(block[1], measurements, document)}<!-- end -->"

    return BLOCK.sub(write, document.read_text("utf-8"))


if __name__ == "__main__":
    measured = load()
    for document in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        document.write_text(fill(document, measured), encoding="utf-8")
