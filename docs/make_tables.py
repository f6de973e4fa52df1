"""Make the tables of README.md and docs/*.md from the measurements in docs/results/: `python docs/make_tables.py`.

This writes what stands between `<!-- table: NAME -->` and `<!-- end -->`. NAME is a table of docs/results/tables.yaml, a question
of docs/results/schema.yaml (its accuracies, newest first) or a measurement: its file's name without `.yaml`, after which
`, brief` leaves out the rows marked as details.
"""

import re
from os.path import relpath
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "results"
BLOCK = re.compile(r"<!-- table: (.+?) -->\n.*?<!-- end -->", re.S)


def read(name: str, folder: Path = FOLDER) -> Any:
    try:
        return yaml.safe_load((folder / f"{name}.yaml").read_text("utf-8"))
    except yaml.YAMLError as error:
        raise SystemExit(f"{name}.yaml: not YAML: {' '.join(str(error).split())}") from None


def list_mistakes(given: Any, kind: str, schema: dict, machines: dict) -> list[str]:
    """What is wrong with a `file` or a `row`, by schema.yaml first, then in what its figures say together."""
    if not isinstance(given, dict):
        return ["not a mapping"]
    keys, used = schema[kind], given.get("machine", [])
    used = used if isinstance(used, list) else [used]
    mistakes = [f"`{key}` is missing" for key in schema["required"][kind] if key not in given]
    mistakes += [f"unknown key `{key}`; known are {', '.join(keys)}" for key in given if key not in keys]
    types = {key: keys[key][0] for key in given if key in keys}
    mistakes += [
        f"`{key}` must be {types[key]}" for key in types if type(given[key]).__name__ not in types[key].split()
    ]
    mistakes += [f"unknown machine `{each}`" for each in used if each not in machines]
    if given.get("question") not in [None, *schema["questions"]]:
        mistakes.append(f"unknown question `{given['question']}`; known are {', '.join(schema['questions'])}")
    if mistakes or kind == "file":
        return mistakes
    correct, of = given.get("correct", []), given.get("of", 0)
    if bool(correct) != bool(of) or (correct and "accuracy" in given):
        return ["give `correct` with `of`, from which the accuracy follows, or `accuracy` alone"]
    if any(count not in range(of + 1) for count in correct):
        return [f"`correct` is {correct}; each must be a whole number up to {of}"]
    if correct and len(given.get("seeds", correct)) != len(correct):
        return ["`seeds` and `correct` differ in length"]
    has_figures = {"correct", "accuracy", "minutes", "figures"} & given.keys()
    return [] if has_figures else ["no figure: give `correct`, `accuracy`, `minutes` or `figures`"]


def load(folder: Path = FOLDER) -> list[dict]:
    """Return all rows, newest first, each with what its file says; a mistake ends in one line that names the file."""
    schema, machines, rows = read("schema", folder), read("machines", folder), []
    for path in sorted(folder.glob("2*.yaml"), reverse=True):
        given = read(path.stem, folder)
        mistakes = list_mistakes(given, "file", schema, machines)
        if not mistakes and not path.name.startswith(str(given["date"])):
            mistakes = [f"its name does not begin with its date, {given['date']}"]
        for number, row in enumerate([] if mistakes else given["rows"], 1):
            mistakes += [f"row {number}: {mistake}" for mistake in list_mistakes(row, "row", schema, machines)]
        if mistakes:
            raise SystemExit(f"{path.name}: {mistakes[0]}")
        rows += [{"name": path.stem} | given | row for row in given["rows"]]
    return rows


def average(rows: list[dict]) -> float:
    """The mean accuracy in percent over all runs of the rows."""
    accuracies = [100 * count / row["of"] for row in rows for count in row.get("correct", [])]
    accuracies += [row["accuracy"] for row in rows if "accuracy" in row]
    return sum(accuracies) / len(accuracies)


def show(value: Any, unit: str = "") -> str:
    if isinstance(value, list):
        return ", ".join(show(each, unit).removesuffix(unit) for each in value) + unit
    if isinstance(value, (int, float)):
        return (f"{value:.1f}" if unit == " %" else f"{value:,}") + unit
    return str(value)


def describe(row: dict, folder: str) -> dict[str, str]:
    """A row's cells by the heads of their columns."""
    cells = {"measured": f"[{row['date']}]({folder}/{row['name']}.yaml)", "what": row["what"]}
    cells |= {key: show(value) for key, value in row.get("settings", {}).items()} | {
        "positions": row.get("positions", "")
    }
    cells |= {"asked": row.get("asked", ""), "answered": "", "each run": "", "95 % interval": ""}
    correct = row.get("correct", [])
    if correct or "accuracy" in row:
        counts = f" ({correct[0]:,} of {row['of']:,})" if len(correct) == 1 else ""
        cells["answered"] = f"{average([row]):.1f} %{counts}"
    if len(correct) > 1:
        cells["each run"] = show([100 * count / row["of"] for count in correct], " %")
    if "interval" in row:
        cells["95 % interval"] = show(row["interval"], " %").replace(", ", " to ")
    cells |= {"characters read": show(row.get("characters", ""), " M"), "training steps": show(row.get("steps", ""))}
    cells |= {"minutes": show(row.get("minutes", "")), "last loss": show(row.get("last_loss", ""))}
    for key, value in row.get("figures", {}).items():
        cells[key.removesuffix(" (%)")] = show(value, " %" if key.endswith(" (%)") else "")
    return cells | {"machine": show(row.get("machine", ""))}


def lay_out(lines: list[dict[str, str]], heads: list[str]) -> str:
    cells = [heads, ["---"] * len(heads), *([line.get(head, "") for head in heads] for line in lines)]
    return "".join(f"| {' | '.join(each)} |\n" for each in cells) if lines else ""


def make_table(name: str, rows: list[dict], document: Path) -> str:
    folder = relpath(FOLDER, document.parent)
    pooled = read("tables")
    measurement, brief = name.removesuffix(", brief"), name.endswith(", brief")
    if lines := [
        describe(row, folder) for row in rows if row["name"] == measurement and not (brief and row.get("detail"))
    ]:
        # A column that says the same in each row is left out.
        heads = dict.fromkeys(head for line in lines for head in line)
        told = [head for head in heads if head == "what" or len({line.get(head, "") for line in lines}) > 1]
        return lay_out(lines, told) + f"\nSource: [{measurement}]({folder}/{measurement}.yaml).\n"
    if name in pooled:
        head, with_sources = pooled[name]["head"], pooled[name].get("sources", False)
        for pool, what in pooled[name]["rows"].items():
            found = [row for row in rows if row.get("pool") == pool]
            lines.append({head: what})
            for positions in ("learned", "rotary"):
                chosen = [row for row in found if row.get("positions", positions) == positions]
                lines[-1][positions] = f"{average(chosen):.1f} %" if chosen else ""
            lines[-1]["characters read"] = next(
                (show(row["characters"], " M") for row in found if "characters" in row), ""
            )
            lines[-1]["measured"] = ", ".join(dict.fromkeys(describe(row, folder)["measured"] for row in found))
        return lay_out(lines, [head, "learned", "rotary", *(["characters read", "measured"] if with_sources else [])])
    asked = [row for row in rows if row["question"] == name]
    if not asked:
        raise SystemExit(f"{document.name}: no table, question or measurement `{name}`")
    shown = [row for row in asked if {"correct", "accuracy"} & row.keys() and not row.get("detail")]
    for row in shown:
        settings = [f"{key}: {show(value)}" for key, value in row.get("settings", {}).items()]
        lines.append(describe(row, folder) | {"what": ", ".join([row["what"], *settings])})
    heads = ["measured", "what", "positions", "asked", "answered", "each run", "characters read", "minutes"]
    heads = [head for head in heads if any(line[head] for line in lines)]
    others = {row["name"]: row["title"] for row in asked if row["name"] not in {row["name"] for row in shown}}
    links = "; ".join(f"[{title}]({folder}/{each}.yaml)" for each, title in others.items())
    return lay_out(lines, heads) + (f"\nAlso measured: {links}.\n" if others else "")


def fill(document: Path, rows: list[dict]) -> str:
    """Return the document's text with its tables as they should be."""
    return BLOCK.sub(
        lambda block: f"<!-- table: {block[1]} -->\n{make_table(block[1], rows, document)}<!-- end -->",
        document.read_text("utf-8"),
    )


if __name__ == "__main__":
    measured = load()
    for document in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        document.write_text(fill(document, measured), "utf-8")
