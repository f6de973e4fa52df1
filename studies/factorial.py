"""Which factor does it: objective × optimizer × dropout, under the course's protocol and with about equal characters.

    python -m studies.factorial --data_dir data --output_dir runs/factorial

Every model is pretrained on the documents alone, finetuned on the pairs, and asked about pairs that were held out. Objective
and optimizer are first trained without dropout at three learning rates; the rate with the most right answers (then: with the
lowest loss) is the one that is used with dropout and for the other seeds. It is chosen on the same people, so the first
seed's figure without dropout is slightly optimistic. Finetuning is that of the recipe `windows` after windows and that of `quick`
after span corruption; everything else is the recipe `windows`. Finished runs are kept and
interrupted ones are resumed; the table and the chart grow with each.
"""

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from data_scripts.errors import exit_on_bad_input
from data_scripts.files import CORPUS_FILE, TRAIN_FILE, check_is_folder_or_new
from data_scripts.options import Range, option, parse_options
from posgpt.plots import BLUE, GREY, make_figure, save_picture
from posgpt.training.architecture import PositionArguments
from studies.cache import Record
from studies.course_stages import Task, finetune, load_task, pretrain
from studies.tables import format_known, write_table

RECIPE = "windows"
# How each objective reads its share of the characters in a training step: documents of random length are about 60
# characters long, so that 64 of them have as many as 32 rows of windows.
OBJECTIVES: dict[str, dict[str, Any]] = {
    "name_windows": {},
    "span_corruption": {
        "objective": "span_corruption",
        "per_device_train_batch_size": 64,
        "train_sampling_strategy": "group_by_length",
    },
}
# The finetuning of a recipe of the same objective: that of `windows` is too gentle to teach a form that the model has never read.
FINETUNING = {"name_windows": "windows", "span_corruption": "quick"}
OPTIMIZERS: dict[str, dict[str, Any]] = {"Muon": {"use_muon": True}, "AdamW": {"use_muon": False}}
DROPOUTS = (0.0, 0.1)


@dataclass
class FactorialArguments(PositionArguments):
    """The data, the budget and the learning rates to choose from."""

    data_dir: str = option(f"Folder with {CORPUS_FILE} and {TRAIN_FILE}.")
    output_dir: str = option("Folder for models, table and chart.", default="runs/factorial")
    held_out: Annotated[int, Range(1)] = option("How many training pairs are held out to measure on.", default=300)
    max_steps: Annotated[int, Range(1)] = option("Training steps per pretraining.", default=1650)
    muon_rates: list[float] = option("Learning rates for Muon.", default_factory=lambda: [1e-3, 2e-3, 4e-3])
    adamw_rates: list[float] = option("Learning rates for AdamW.", default_factory=lambda: [3e-4, 1e-3, 3e-3])
    seeds: list[int] = option("One training of each combination per seed.", default_factory=lambda: [42, 43])


class Cell(NamedTuple):
    """One combination."""

    objective: str
    optimizer: str
    learning_rate: float
    dropout: float


def run_cell(cell: Cell, seed: int, task: Task, arguments: FactorialArguments, output_dir: Path) -> Record:
    """Pretrain, finetune and ask one model, unless that is done; return its figures."""
    options = {
        "recipe": RECIPE,
        "position_embedding_type": arguments.position_embedding_type,
        "max_steps": arguments.max_steps,
        "learning_rate": cell.learning_rate,
        "dropout": cell.dropout,
        **OBJECTIVES[cell.objective],
        **OPTIMIZERS[cell.optimizer],
    }
    name = f"{cell.objective}_{cell.optimizer}_{cell.learning_rate:g}_{cell.dropout:g}_{seed}"
    pretrained = pretrain(name, options, task, seed, output_dir / name / "pretrain")
    tuning = {"recipe": FINETUNING[cell.objective], "dropout": cell.dropout}
    finetuned = finetune(name, tuning, output_dir / name / "pretrain", task, seed, output_dir / name / "finetune")
    return {
        "right": float(np.mean(finetuned["right"])),
        "recalled": pretrained["recall"]["recalled as read"],
        "loss": pretrained["losses"][-1][1],
        "characters": pretrained["characters"],
        "minutes": pretrained["minutes"],
    }


def choose_rate(runs: dict[Cell, dict[int, Record]], objective: str, optimizer: str) -> float:
    """Return the learning rate whose first run has the most right answers, then the lowest loss."""
    tried = [cell for cell in runs if cell[:2] == (objective, optimizer) and cell.dropout == 0]
    first = {cell: next(iter(runs[cell].values())) for cell in tried}
    return max(tried, key=lambda cell: (first[cell]["right"], -first[cell]["loss"])).learning_rate


def write_cells(runs: dict[Cell, dict[int, Record]], held_out: int, folder: Path) -> None:
    """Write `table.md` and `chart.png`."""
    table = []
    for cell, seeds in runs.items():
        records = list(seeds.values())
        right, total = (sum(record["recalled"][part] for record in records) for part in (0, 1))
        cells = {
            "objective": cell.objective,
            "optimizer": cell.optimizer,
            "learning rate": f"{cell.learning_rate:g}",
            "dropout": f"{cell.dropout:g}",
            "answered": f"{np.mean([record['right'] for record in records]):.1%}",
            "each seed": ", ".join(f"{record['right']:.1%}" for record in records),
            "recalled before finetuning": f"{right / max(total, 1):.1%}",
            "last loss": f"{np.mean([record['loss'] for record in records]):.3f}",
            "characters read": f"{records[0]['characters'] / 1e6:.1f} M",
            "minutes": format_known(records[0]["minutes"], ".0f"),
        }
        table.append(cells)
    write_table(folder, table, f"{held_out} training pairs that were held out")
    figure, axes = make_figure(9, 1 + 0.4 * len(runs))
    labels = [f"{cell.objective}, {cell.optimizer} {cell.learning_rate:g}, dropout {cell.dropout:g}" for cell in runs]
    shares = [100 * float(np.mean([record["right"] for record in seeds.values()])) for seeds in runs.values()]
    colors = [BLUE if cell.optimizer == "Muon" else GREY for cell in runs]
    axes.barh(labels, shares, 0.7, color=colors)
    for label, share, seeds in zip(labels, shares, runs.values(), strict=True):
        each = [100 * record["right"] for record in seeds.values()]
        axes.plot(each, [label] * len(each), "k.", markersize=4)
        # Beside the rightmost dot, which may be beyond the bar.
        axes.annotate(f"{share:.1f}", (max(each), label), (6, 0), textcoords="offset points", va="center")
    axes.set(xlim=(0, 108), xlabel=f"answered, % of {held_out} people whose question was held out; dots: seeds")
    axes.invert_yaxis()
    save_picture(figure, folder / "chart.png")


@exit_on_bad_input()
def main() -> None:
    arguments = parse_options(FactorialArguments)
    output_dir = check_is_folder_or_new(arguments.output_dir).resolve()
    output_dir /= f"{arguments.position_embedding_type}_{arguments.max_steps}_held_out_{arguments.held_out}"
    task = load_task(Path(arguments.data_dir).resolve(), output_dir, arguments.held_out)
    rates = {"Muon": arguments.muon_rates, "AdamW": arguments.adamw_rates}
    runs: dict[Cell, dict[int, Record]] = {}

    def fill(cell: Cell, seed: int) -> None:
        runs.setdefault(cell, {})[seed] = run_cell(cell, seed, task, arguments, output_dir)
        write_cells(runs, arguments.held_out, output_dir)

    for objective, optimizer in product(OBJECTIVES, OPTIMIZERS):
        for rate in rates[optimizer]:
            fill(Cell(objective, optimizer, rate, 0.0), arguments.seeds[0])
    # One seed after the other, so that an early table compares all combinations.
    for seed, objective, optimizer, dropout in product(arguments.seeds, OBJECTIVES, OPTIMIZERS, DROPOUTS):
        fill(Cell(objective, optimizer, choose_rate(runs, objective, optimizer), dropout), seed)


if __name__ == "__main__":
    main()
