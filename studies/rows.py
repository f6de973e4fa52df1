"""What the runs of a study's rows say: accuracy and its interval, differences, stored bits; as a table and a chart."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain, combinations, cycle, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from data_scripts.synthetic_world import World
from data_scripts.words import find_words
from data_scripts.world_questions import QUESTIONS
from posgpt.evaluation.scoring import Proportion
from posgpt.plots import draw_seeds, make_panels, save_picture
from studies.honesty import describe_honesty
from studies.study import STAGES, Row
from studies.training_runs import Record


class Grouping(NamedTuple):
    """What accuracy is also given by, in worlds with an option.

    Args:
        option: The option of `posgpt world`.
        number: Returns the number of an answer that documents tell, from 1, by the person's number and the relation.
        group: Returns the group of each number.
        cell, label, scale: The table's cell of a group, and the chart's axis.
    """

    option: str
    number: Callable[[World, int, str], int]
    group: Callable[[np.ndarray], np.ndarray]
    cell: str
    label: str
    scale: dict[str, Any]


GROUPINGS = {
    "told": Grouping(
        "frequency",
        lambda world, index, relation: world.count_told(index),
        # Never, if all documents are wrong; once, then from 2, 4, 8 and so on, times.
        lambda numbers: np.where(numbers, 2 ** np.log2(np.maximum(numbers, 1)).astype(int), 0),
        "told from {} times",
        "how often the answer is told, from",
        # Logarithmic from 1, with room for 0.
        {"value": "symlog", "base": 2, "linthresh": 1},
    ),
    "true_documents": Grouping(
        "contradictions",
        lambda world, index, relation: world.count_told(index),
        lambda numbers: numbers,
        "correct documents: {}",
        "documents that tell the correct answer",
        {"value": "linear"},
    ),
    "sentence": Grouping(
        "fixed_order",
        lambda world, index, relation: world.find_sentence(index, *QUESTIONS[relation].told),
        lambda numbers: numbers,
        "told in sentence {}",
        "sentence that tells the answer",
        {"value": "linear"},
    ),
}


def list_relations(runs: list[Record]) -> list[str]:
    """Return what is asked of a row's models; nothing if it is one relation."""
    # Not each world may have questions of each.
    relations = list(dict.fromkeys(chain(*(run["relations"] for run in runs))))
    return relations if len(relations) > 1 else []


def take_relation(runs: list[Record], relation: str) -> list[Record]:
    """Return runs of which `right`, `titles` and `people` are those of one relation's questions alone."""
    taken = []
    for run in runs:
        questions = [i for i, name in enumerate(run["relations"]) if name == relation]
        columns = [column for column in ("right", "titles", "people") if column in run]
        taken.append(run | {column: [run[column][i] for i in questions] for column in columns})
    return taken


def list_people(run: Record) -> list[str]:
    """Return for each question what it is grouped by, as what is known of one person goes together: in a world the person whom it comes with,
    elsewhere the title. Each world has its own people.
    """
    return [f"{run.get('world')}: {each}" for each in run["people" if "people" in run else "titles"]]


def count_stored_bits(world: World, runs: list[Record], part: str | None = None) -> tuple[float, float, float]:
    """Return how many bits of each person models have stored, the standard error over people, and how many bits there are; of what runs were
    asked, or of a `part` of them, such as `among`.

    What is worked out from others has none. More seeds do not narrow the error, for all ask the same people.

    Relations that no run was asked do not count, such as professions as read: they are no names. This is the bound of Allen-Zhu
    and Li 2024 (arXiv 2404.05405, def. 4.3) for the values, on the people who are asked about.
    """
    entropy, columns, people = world.entropy(), ["relations", "titles", "surprisals"], ["world", "titles"]
    table = pd.concat(
        [
            pd.DataFrame({name: (run[part] if part else run)[name] for name in columns}).assign(
                world=run.get("world", 0)
            )
            for run in runs
        ]
    )
    # A person's, over the seeds.
    left = table[table["relations"].isin(entropy)].groupby(["relations", *people])["surprisals"].mean()
    of_relation = left.groupby("relations")
    asked = {name: entropy[str(name)] - mean for name, mean in of_relation.mean().items()}
    # What is known of one person goes together.
    parts = (left - of_relation.transform("mean")) / of_relation.transform("size")
    error = float(np.sqrt((parts.groupby(people).sum() ** 2).sum()))
    return sum(asked.values()), error, sum(entropy[str(name)] for name in asked)


def format_bits(stored: float, error: float, entropy: float) -> str:
    """Return what `count_stored_bits` does as a cell of a table; an empty one if nothing was asked."""
    return f"{stored:.2f} ± {error:.2f} of {entropy:.2f}" if entropy else ""


def count_right(runs: list[Record]) -> Proportion:
    """Return how many answers of all runs are right, and about how many people: more seeds do not narrow the interval, for all ask the same
    people; more worlds do.
    """
    right = [*chain(*(run["right"] for run in runs))]
    return Proportion(sum(right), len(right), len({*chain(*map(list_people, runs))}))


def compare_rows(best: list[Record], runs: list[Record]) -> tuple[float, float]:
    """Compute how much less is right in `runs` than in `best`, and that difference's standard error, 0 to 1 each.

    It is taken person by person, for some people are hard for every model; that tells more rows apart than two intervals do. Models
    that are asked other questions, or of which other answers are correct, are not compared: NaN.
    """
    if {run["asked_file"] for run in best} != {run["asked_file"] for run in runs}:
        return math.nan, math.nan
    # By person and question, over the seeds.
    right, other = (
        pd.concat(
            [
                pd.DataFrame({"person": list_people(run), "right": run["right"]}).rename_axis("question")
                for run in of_row
            ]
        )
        .groupby(["person", "question"])["right"]
        .mean()
        for of_row in (best, runs)
    )
    differences = right - other
    less = float(differences.mean())
    sums = (differences - less).groupby("person").sum()
    return less, float(np.sqrt((sums**2).sum() * len(sums) / max(len(sums) - 1, 1)) / len(differences))


def count_different(pairs: Iterable[tuple[Record, Record]], but: Collection[str] = ()) -> float:
    """Return how many questions two runs answer differently, on average over pairs of runs; but for questions that name some titles."""
    counts = [
        sum(
            a != b and not any(find_words(but, title))
            for a, b, title in zip(run["answers"], other["answers"], run["titles"], strict=True)
        )
        for run, other in pairs
    ]
    return float(np.mean(counts))


def describe_row(row: Row, runs_of: Mapping[str, list[Record]]) -> dict[str, str]:
    """Return a row's cells: means over the seeds; characters, minutes and counts are the first one's.

    `runs_of` has the runs of all rows, the best first.
    """
    runs, best = runs_of[row.name], next(iter(runs_of.values()))
    first, share = runs[0], count_right(runs)
    less, error = (100 * value for value in compare_rows(best, runs))
    stages = [stage for stage in STAGES if stage in first]
    cells = {
        "row": row.name,
        "parameters": f"{first['parameters']:,}",
        "answered": f"**{share.accuracy:.1%}**",
        "95 % interval": share.format_interval(),
        **{each: f"{count_right(take_relation(runs, each)).accuracy:.1%}" for each in list_relations(runs)},
        "points behind the best": "" if runs is best or math.isnan(less) else f"{less:.1f} ± {error:.1f}",
        "each seed": ", ".join(f"{np.mean(run['right']):.1%}" for run in runs),
    }
    for stage in stages:
        cells[f"last loss, {STAGES[stage]}"] = f"{np.mean([run[stage]['losses'][-1][1] for run in runs]):.3f}"
    for measure in first["measures"]:
        right, total = (sum(run["measures"][measure][part] for run in runs) for part in (0, 1))
        cells[f"pretrained: {measure}"] = f"{right / total:.1%}" if total else ""
    if stages:
        if exposures := first.get("pretrain", {}).get("exposures"):
            cells["exposures"] = f"{exposures:.0f}"
        if steps := find_halves(runs):
            cells["half answered"] = (
                "not by each seed" if np.isnan(steps).any() else f"after {np.mean(steps):,.0f} steps"
            )
        cells["characters read"] = f"{sum(first[stage]['characters'] for stage in stages) / 1e6:.1f} M"
        cells["minutes"] = f"{sum(first[stage]['minutes'] for stage in stages):.0f}"
        cells["memory"] = f"{max(run[stage]['memory'] for run in runs for stage in stages):,.0f} MiB"
    if row.world is not None and row.world.entropy():
        stored, error, entropy = count_stored_bits(row.world, runs)
        cells["bits per person"] = format_bits(stored, error, entropy)
        cells["bits per parameter"] = f"{stored * first['num_people'] / first['parameters']:.3f}"
        for part, how in (("among", "among candidates"), ("recalled", "as read")):
            if part in first:
                cells[f"bits per person, {how}"] = format_bits(*count_stored_bits(row.world, runs, part))
    if row.world is not None and "strangers" in first:
        cells |= describe_honesty(row.world, runs)
    for column, grouping in GROUPINGS.items():
        shares_of = {name: average_by(column, own) for name, own in runs_of.items()}
        own = shares_of[row.name]
        groups = sorted({*chain(*shares_of.values())})
        cells |= {grouping.cell.format(each): f"{own[each]:.1%}" if each in own else "" for each in groups}
    if row.edits and row.base and row.base in runs_of:
        base, edited = runs_of[row.base], {title for title, *_ in row.edits}
        cells["other answers than the base"] = f"{count_different(zip(base, runs, strict=False), edited):.1f}"
        if base[1:]:
            cells["other answers from seed to seed"] = f"{count_different(combinations(base, 2), edited):.1f}"
    return cells | ({"published": row.published} if row.published else {})


def name_run(run: Record) -> dict[str, int]:
    """Return what tells a run from the others of its row: its `seed`, and its `world` if there are several."""
    return {name: run[name] for name in ("seed", "world") if name in run}


def list_answers(runs: Mapping[str, list[Record]]) -> pd.DataFrame:
    """Return a line for each row, seed and question: its `relation` and `title`, the `answer` and its `probability`, whether it is `right`, the
    `surprisal` of the correct one in bits, and of GROUPINGS those that the world has; in several worlds the `world`.
    """
    columns = {"relation": "relations", "title": "titles", "answer": "answers", "probability": "probabilities"}
    columns |= {"right": "right", "surprisal": "surprisals"} | {column: column for column in GROUPINGS}
    tables = []
    for name, run in ((name, run) for name, of_row in runs.items() for run in of_row):
        own = {column: run[key] for column, key in columns.items() if key in run}
        tables.append(pd.DataFrame({"row": name} | name_run(run) | own))
    return pd.concat(tables, ignore_index=True)


def list_results(answers: pd.DataFrame) -> pd.DataFrame:
    """Return a line for each row, seed, world if there are several, and relation: how many `questions` there are, their `accuracy` and mean
    `surprisal` in bits.
    """
    groups = answers.groupby([*answers.columns.intersection(["row", "seed", "world", "relation"])], sort=False)
    measures = {"questions": ("right", "size"), "accuracy": ("right", "mean"), "surprisal": ("surprisal", np.mean)}
    return groups.agg(**measures).reset_index()


def average_by(column: str, runs: list[Record]) -> dict[int, float]:
    """Return the share of answered questions, 0 to 1, by the groups of one of GROUPINGS; nothing if the runs' world does not have it.

    What no person's document tells does not count.
    """
    pairs = [pair for run in runs if column in run for pair in zip(run[column], run["right"], strict=True)]
    numbers, right = (np.array([pair[i] for pair in pairs if pair[0] is not None]) for i in (0, 1))
    groups = GROUPINGS[column].group(numbers)
    return {int(each): float(right[groups == each].mean()) for each in np.unique(groups)}


def list_curves(runs: Mapping[str, list[Record]]) -> pd.DataFrame:
    """Return a line for each time that models were asked during pretraining: `row`, `seed`, `world` if there are several, `step`, `exposures`
    and shares that were answered, `accuracy` of all and `accuracy_RELATION` of each.
    """
    lines = []
    for name, of_row in runs.items():
        for run in of_row:
            stage = run.get("pretrain", {})
            for asked in stage.get("asked", []):
                shares = {key.removeprefix("eval_"): value for key, value in asked.items() if key != "step"}
                exposures = stage["exposures"] * asked["step"] / stage["steps"]
                lines.append({"row": name} | name_run(run) | {"step": asked["step"], "exposures": exposures} | shares)
    return pd.DataFrame(lines)


def find_halves(runs: list[Record]) -> list[float]:
    """Return after how many steps of pretraining each run first answered half of the questions, in a straight line from the time that it
    was asked before, or from nothing at step 0; NaN: it never did. Nothing if none was asked on the way.
    """
    halves = []
    for run in runs:
        if asked := run.get("pretrain", {}).get("asked"):
            steps, shares = zip((0, 0.0), *((each["step"], each["eval_accuracy"]) for each in asked), strict=True)
            first = next((index for index, share in enumerate(shares) if share >= 0.5), None)
            if first is None:
                halves.append(math.nan)
            else:
                around = slice(first - 1, first + 1)
                halves.append(float(np.interp(0.5, shares[around], steps[around])))
    return halves


def draw_rows(runs: dict[str, list[Record]], path: Path) -> None:
    """Save a PNG: each row's accuracy with its interval and seeds, by relation, the training loss of all runs by stage, what was
    answered on the way, and how that depends on how often it is told, and where.
    """
    stages = [stage for stage in STAGES if any(stage in of_row[0] for of_row in runs.values())]
    in_all = set.intersection(*({*chain(*(run["relations"] for run in of_row))} for of_row in runs.values()))
    relations = [each for each in list_relations(next(iter(runs.values()))) if each in in_all]
    curves = list_curves(runs)
    num_panels = max(len(relations), 1)
    columns = [column for column in GROUPINGS if any(column in of_row[0] for of_row in runs.values())]
    count = num_panels + len(stages) + len(columns) + (not curves.empty)
    figure, panels = make_panels(count, 4.5, 1.6 + 0.35 * max(len(runs), 6))
    dots, over_time = panels[:num_panels], panels[num_panels:]
    colors = [f"C{number}" for number in range(10)]
    styles = cycle({"color": color, "ls": line} for line, color in product(("-", "--", ":"), colors))
    style_of: dict[str, dict[str, Any]] = dict(zip(runs, styles, strict=False))
    for axes, relation in zip(dots, relations or [""], strict=True):
        own = {name: take_relation(of_row, relation) if relation else of_row for name, of_row in runs.items()}
        shares = {
            name: [float(np.mean(run["right"])) for run in of_row if run["right"]] for name, of_row in own.items()
        }
        intervals = {name: count_right(of_row).interval for name, of_row in own.items()}
        draw_seeds(axes, {name: (shares[name], intervals[name]) for name in runs}, colors)
        axes.set_title(relation)
        axes.set_xlabel("answered, %; dots: seeds, line: mean, band: 95 % interval" if count < 3 else "answered (%)")
        if not axes.get_subplotspec().is_first_col():
            axes.set_yticklabels([])
    (best, best_runs), *others = runs.items()
    compared = [compare_rows(best_runs, of_row) for _, of_row in others]
    # Rows that are asked other questions are not compared.
    near = [less <= 2 * error for less, error in compared if not math.isnan(less)]
    title = f"{best} leads; {sum(near)} of {len(near)} others are within two standard errors" if near else ""
    figure.suptitle(title if others else best, fontsize="large")
    if len(runs) > len(colors):
        # Colours alone no longer tell which line is whose.
        lines = [dots[0].plot([], label=name, **style)[0] for name, style in style_of.items()]
        figure.legend(handles=lines, loc="outside lower center", ncols=4, fontsize="small")
    for stage, axes in zip(stages, over_time[: len(stages)], strict=True):
        last = []
        for name, of_row in runs.items():
            for run in (run for run in of_row if stage in run):
                axes.plot(*zip(*run[stage]["losses"], strict=True), lw=1, **style_of[name])
                last.append(run[stage]["losses"][-1][1])
        axes.set(yscale="log", xlabel="optimizer step", ylabel="loss (nats per character)")
        ends = dict.fromkeys(f"{loss:.3f}" for loss in (min(last), max(last)))
        axes.set_title(f"{STAGES[stage]}: last loss {' to '.join(ends)}")
    if not curves.empty:
        for (name, *_), own in curves.groupby([*curves.columns.intersection(["row", "seed", "world"])]):
            over_time[-1].plot(own["exposures"], 100 * own["accuracy"], lw=1, **style_of[str(name)])
        over_time[-1].set(xlabel="exposures", ylabel="answered (%)", title="during pretraining")
    for axes, column in zip(over_time[len(stages) :], columns, strict=False):
        shares_of = {name: average_by(column, of_row) for name, of_row in runs.items()}
        for name, by_group in shares_of.items():
            axes.plot([*by_group], [100 * share for share in by_group.values()], marker="o", **style_of[name])
        axes.set_xscale(**GROUPINGS[column].scale)
        groups = sorted({*chain(*shares_of.values())})
        # As numbers, not as powers.
        axes.set_xticks(groups, labels=map(str, groups))
        axes.set(xlabel=GROUPINGS[column].label, ylabel="answered (%)")
    save_picture(figure, path)
