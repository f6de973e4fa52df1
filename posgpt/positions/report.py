"""What runs on tasks come to: a table, a heat map and curves over the lengths."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_scripts.files import write_file
from posgpt.plots import GREY, make_figure, make_panels, save_picture
from posgpt.positions.tasks import Task
from posgpt.positions.train import Record
from posgpt.tables import format_table, write_table

# Below this accuracy within the lengths of training, what comes beyond them says nothing of the encoding.
LEARNED = 0.99
NOT_LEARNED = "not learned"
MEASURES = {"exact": "exact answers", "tokens": "correct tokens"}


@dataclass(frozen=True)
class Cell:
    """The runs of one encoding on one task, by seed."""

    name: str
    task: Task
    encoding: str
    records: list[Record]

    @property
    def seeds(self) -> list[int]:
        return [record["seed"] for record in self.records]

    def average(self, measure: str, is_beyond: bool) -> np.ndarray:
        """Return each seed's mean over the tested lengths, either those beyond training or the others."""
        chosen = self.task.is_beyond == is_beyond
        return np.array([np.array(record[measure])[chosen].mean() for record in self.records])

    def find_median(self, measure: str, is_beyond: bool) -> float:
        return float(np.median(self.average(measure, is_beyond)))

    @property
    def is_learned(self) -> bool:
        return self.find_median("exact", False) >= LEARNED

    def describe(self) -> dict[str, str]:
        """Return the cells of a row of the table: medians in percent."""
        cells = {"task": self.name, "encoding": self.encoding}
        for measure in MEASURES:
            for place, is_beyond in (("within", False), ("beyond", True)):
                cells[f"{measure} {place}"] = f"{self.find_median(measure, is_beyond):.1%}"
        cells["tokens beyond, guessed"] = f"{self.task.guesses[self.task.is_beyond].mean():.1%}"
        cells["exact beyond, each seed"] = ", ".join(f"{share:.1%}" for share in self.average("exact", True))
        learned = int((self.average("exact", False) >= LEARNED).sum())
        cells["learned"] = f"{learned} of {len(self.records)}" if self.is_learned else NOT_LEARNED
        cells["minutes"] = f"{np.median([record['seconds'] for record in self.records]) / 60:.1f}"
        return cells


def group_runs(tasks: Mapping[str, Task], records: list[Record]) -> list[Cell]:
    """Return the cells that have runs, the best encoding of each task first."""
    records, cells = sorted(records, key=lambda record: record["seed"]), []
    for name, task in tasks.items():
        encodings = dict.fromkeys(record["encoding"] for record in records if record["task"] == name)
        of_task = [
            Cell(name, task, each, [run for run in records if (run["task"], run["encoding"]) == (name, each)])
            for each in encodings
        ]
        cells += sorted(of_task, key=lambda cell: (not cell.is_learned, -cell.find_median("tokens", True)))
    return cells


def draw_mean_ranks(cells: list[Cell], draws: int = 10_000) -> dict[str, np.ndarray]:
    """Return each encoding's mean rank over the tasks, by exact answers beyond training, (1 + draws,).

    The first is of all seeds, or as long as no encoding has these on each task, of the first ones. The others are of as many seeds drawn
    with replacement, the same ones for all encodings. What is not learned shares the last rank, and equals share the mean of theirs.
    Encodings that lack a run are left out.
    """
    from scipy.stats import rankdata

    tasks, encodings = list_names(cells)
    by_place = {(cell.name, cell.encoding): cell for cell in cells}
    seeds, complete = 0, list[str]()
    # Seeds are trained one after the other: until an encoding has all, those that it has on each task count.
    for most in sorted((cell.seeds for cell in cells), key=len):
        having = [
            each
            for each in encodings
            if all((task, each) in by_place and by_place[task, each].seeds[: len(most)] == most for task in tasks)
        ]
        seeds, complete = (len(most), having) if having else (seeds, complete)
    chosen = np.random.default_rng(0).integers(seeds, size=(draws, seeds))
    chosen = np.concatenate([np.arange(seeds)[None], chosen])
    ranks = np.zeros((len(complete), len(chosen)))
    for task in tasks if complete else ():
        own = [by_place[task, each] for each in complete]
        within, beyond = (
            np.median(np.array([cell.average("exact", is_beyond)[:seeds] for cell in own])[:, chosen], axis=2)
            for is_beyond in (False, True)
        )
        ranks += rankdata(-np.where(within >= LEARNED, beyond, -1), axis=0) / len(tasks)
    return dict(zip(complete, ranks, strict=True))


def describe_ranks(cells: list[Cell]) -> str:
    """Return a table of mean ranks, the best first, with 95 % intervals over seeds."""
    ranks = sorted(draw_mean_ranks(cells).items(), key=lambda each: each[1][0])
    # One seed drawn again and again is no sample.
    is_one, rows = all(np.ptp(of_draws) == 0 for _, of_draws in ranks), []
    for encoding, (rank, *drawn) in ranks:
        low, high = np.quantile(drawn, (0.025, 0.975))
        rows.append([encoding, f"{rank:.1f}", "" if is_one else f"{low:.1f} to {high:.1f}"])
    if not rows:
        return "No mean ranks yet: each encoding lacks a run of some task and seed."
    return format_table(["encoding", "mean rank", "95 %, seeds"], rows)


def list_names(cells: list[Cell]) -> tuple[list[str], list[str]]:
    """Return the tasks and the encodings of cells, each once."""
    return list(dict.fromkeys(cell.name for cell in cells)), list(dict.fromkeys(cell.encoding for cell in cells))


def draw_heat_maps(cells: list[Cell]) -> Any:
    """Return a figure: the accuracy beyond training by encoding and task. What is not learned is grey."""
    tasks, encodings = list_names(cells)
    reached = dict.fromkeys(encodings, 0.0)
    for cell in (cell for cell in cells if cell.is_learned):
        reached[cell.encoding] += cell.find_median("tokens", True)
    encodings.sort(key=lambda encoding: -reached[encoding])
    figure, panels = make_figure(3.2 + 1.7 * len(tasks), 1.6 + 0.32 * len(encodings), columns=2)
    for axes, (measure, title) in zip(panels, MEASURES.items(), strict=True):
        axes.set_facecolor("#e4e6ea")
        shares = np.full((len(encodings), len(tasks)), np.nan)
        for cell in cells:
            row, column = encodings.index(cell.encoding), tasks.index(cell.name)
            share = 100 * cell.find_median(measure, True) if cell.is_learned else np.nan
            shares[row, column], text = share, f"{share:.0f}" if cell.is_learned else "–"
            axes.text(column, row, text, ha="center", va="center", color="white" if share > 60 else "black")
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=100, aspect="auto")
        axes.set_xticks(range(len(tasks)), tasks, rotation=30, ha="right")
        axes.set_yticks(range(len(encodings)), encodings)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_title(f"{title}, %", fontsize="medium")
    figure.suptitle("Beyond the lengths of training, medians; –: not learned", fontsize="small")
    return figure


def draw_curves(cells: list[Cell], measure: str) -> Any:
    """Return a figure: a panel for each task with the accuracy over the length, by encoding."""
    tasks, encodings = list_names(cells)
    figure, panels = make_panels(len(tasks), 3.2, 3.0)
    # The legend has a line per encoding.
    figure.set_figheight(max(figure.get_figheight(), 0.8 + 0.2 * len(encodings)))
    for cell in cells:
        i, axes = encodings.index(cell.encoding), panels[tasks.index(cell.name)]
        medians = 100 * np.median([record[measure] for record in cell.records], axis=0)
        style = dict(color=f"C{i % 10}", ls=("-", "--", ":")[i // 10 % 3], marker="o", markersize=3, lw=1.4)
        axes.plot(cell.task.tested, medians, **style, label=cell.encoding, alpha=1 if cell.is_learned else 0.35)
    lines = {line.get_label(): line for axes in panels for line in axes.get_lines()}
    for name, axes in zip(tasks, panels, strict=True):
        task = next(cell.task for cell in cells if cell.name == name)
        axes.axvline(task.trained[1], color="black", lw=0.8, ls=":")
        if measure == "tokens":
            axes.plot(task.tested, 100 * task.guesses, color=GREY, lw=0.8, zorder=0)
        axes.set(title=name, xlabel="length", ylim=(-3, 103), xticks=task.tested)
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel(f"{MEASURES[measure]}, %")
    figure.legend([lines[each] for each in encodings], encodings, loc="outside right upper", fontsize="small")
    title = "Medians; dotted: longest in training; pale: not learned"
    figure.suptitle(title + ("; grey: guessed" if measure == "tokens" else ""), fontsize="small", x=0.02, ha="left")
    return figure


def write_report(folder: Path, tasks: Mapping[str, Task], records: list[Record]) -> None:
    """Write `table.md`, `ranks.md` and three charts, and print the tables."""
    cells = group_runs(tasks, records)
    ranks = describe_ranks(cells)
    write_table(folder, [cell.describe() for cell in cells])
    write_file(folder / "ranks.md", ranks + "\n")
    save_picture(draw_heat_maps(cells), folder / "heat_map.png")
    for measure in MEASURES:
        save_picture(draw_curves(cells, measure), folder / f"curves_{measure}.png")
    print(f"\n{ranks}\n\nTables, runs and charts: {folder}")
