"""The course's experiment, whole: pretraining on the documents, finetuning on the pairs, and what others reached.

    python -m studies.course --data_dir data --output_dir runs/course
    python -m studies.course --data_dir data --output_dir runs/course --rows rotary --seeds 42 43
    python -m studies.course --data_dir data --output_dir runs/course --rows rotary --held_out 300

`course.yaml` beside this file holds the rows; the table and the chart are of the rows and seeds of one command. A model is
measured twice: after pretraining, how many birthplaces it recalls in the words that it has read and how many it answers
without ever having seen a question; after finetuning, how many questions of dev it answers, or with `--held_out` of training
pairs that are held out, in a subfolder. Finished runs are kept and interrupted ones are resumed.

On a CPU, `--micro_batch_size 32` splits each training step into smaller batches, sorted by length while pretraining: the same
result in less time. Give the same in every command: a folder with a model that was trained with another is refused.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from data_scripts.errors import exit_on_bad_input
from data_scripts.files import CORPUS_FILE, DEV_FILE, TRAIN_FILE, check_is_folder_or_new, make_file_name
from data_scripts.options import Range, option, parse_options
from posgpt.evaluation.accuracy import Share
from posgpt.plots import GREY, make_figure, save_picture
from studies.cache import Record
from studies.course_stages import Task, finetune, load_task, pretrain
from studies.tables import format_known, load_rows, write_table

ROWS = Path(__file__).with_suffix(".yaml")
STAGES = {"pretrain": "pretraining", "finetune": "finetuning"}


@dataclass
class CourseArguments:
    """The data, and which rows to train."""

    data_dir: str = option(f"Folder with {CORPUS_FILE}, {TRAIN_FILE} and {DEV_FILE}.")
    output_dir: str = option("Folder for models, table and chart.", default="runs/course")
    rows: list[str] | None = option(f"Rows of {ROWS.name} (default: all).", default=None)
    seeds: list[int] = option("One training of each row per seed.", default_factory=lambda: [42])
    held_out: Annotated[int | None, Range(1)] = option(
        "Measure on this many training pairs, held out, instead of on dev.", default=None
    )
    micro_batch_size: Annotated[int | None, Range(1)] = option(
        "The largest batch of a training step; larger steps are made of several (default: the recipe's batch).",
        default=None,
    )


def run_row(
    name: str, row: dict[str, Any], task: Task, seed: int, output_dir: Path, results: Path
) -> dict[str, Record]:
    """Train and measure one row with one seed; return the figures of each stage.

    Args:
        output_dir: For pretrained models, which do not depend on who is held out.
        results: For finetuned ones.
    """
    folder = f"{make_file_name(name)}_{seed}"
    stages: dict[str, Record] = {}
    start = None
    if row.get("pretrain"):
        start = output_dir / folder / "pretrain"
        stages["pretrain"] = pretrain(f"{name}, seed {seed}", row["pretrain"], task, seed, start)
    finetuned = results / folder / "finetune"
    stages["finetune"] = finetune(f"{name}, seed {seed}", row["finetune"], start, task, seed, finetuned)
    return stages


def describe_row(name: str, row: dict[str, Any], runs: list[dict[str, Record]]) -> dict[str, str]:
    """Return a row's cells; figures of one run per seed are averaged, counts are the first seed's."""
    accuracies = [float(np.mean(stages["finetune"]["right"])) for stages in runs]
    people = len(runs[0]["finetune"]["right"])
    mean = Share(round(float(np.mean(accuracies)) * people), people)
    public, first = row.get("public"), runs[0].get("pretrain")
    cells = {
        "row": name,
        "answered": ", ".join(f"{accuracy:.1%}" for accuracy in accuracies),
        "95 % interval": mean.format_interval(),
        "public: median (quartiles), best, n": "",
    }
    if public:
        quartiles = "-".join(f"{quartile:.1f}" for quartile in public["quartiles"])
        summary = f"{public['median']} ({quartiles}), {public['best']}, {public['n']}"
        cells["public: median (quartiles), best, n"] = summary
    for stage, title in STAGES.items():
        losses = [stages[stage]["losses"][-1][1] for stages in runs if stage in stages]
        cells[f"last loss, {title}"] = f"{np.mean(losses):.2f}" if losses else ""
    for measure, (right, total) in (first["recall"] if first else {}).items():
        cells[f"pretrained: {measure}"] = f"{right / max(total, 1):.1%}"
    spent = [stage for stages in runs[:1] for stage in stages.values()]
    cells["characters read"] = f"{sum(stage['characters'] for stage in spent) / 1e6:.1f} M"
    cells["minutes"] = format_known(sum(stage["minutes"] for stage in spent), ".0f")
    return cells


def draw_losses(runs: dict[str, list[dict[str, Record]]], path: Path) -> None:
    """Save a PNG: the training loss of every run, pretraining on the left and finetuning on the right."""
    figure, panels = make_figure(12, 5, columns=2)
    for axes, (stage, title) in zip(panels, STAGES.items(), strict=True):
        for number, (name, of_row) in enumerate(runs.items()):
            with_stage = [stages[stage]["losses"] for stages in of_row if stage in stages]
            for losses in with_stage:
                steps, values = zip(*losses, strict=True)
                label = name if losses is with_stage[0] else None
                axes.plot(np.array(steps) / steps[-1], values, color=f"C{number}", lw=1, label=label)
        axes.set(
            title=title, xlabel="share of the training", ylabel="training loss (nats per character)", yscale="log"
        )
        axes.grid(color=GREY, alpha=0.3, which="both")
        if axes.lines:
            axes.legend(fontsize="small")
    save_picture(figure, path)


@exit_on_bad_input()
def main() -> None:
    arguments = parse_options(CourseArguments)
    rows, wanted = load_rows(ROWS, arguments.rows)
    output_dir = check_is_folder_or_new(arguments.output_dir).resolve()
    results = output_dir / f"held_out_{arguments.held_out}" if arguments.held_out else output_dir
    task = load_task(Path(arguments.data_dir).resolve(), results, arguments.held_out, arguments.micro_batch_size)
    runs: dict[str, list[dict[str, Record]]] = {}
    for name in wanted:
        for seed in arguments.seeds:
            runs.setdefault(name, []).append(run_row(name, rows[name], task, seed, output_dir, results))
            people = len(runs[name][0]["finetune"]["right"])
            table = [describe_row(done, rows[done], runs[done]) for done in runs]
            write_table(results, table, f"{people} questions of {task.asked_file.name}")
            draw_losses(runs, results / "losses.png")


if __name__ == "__main__":
    main()
