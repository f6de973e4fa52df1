"""The whole task in minutes on a small fictional world: what pretraining is for.

    posgpt quickstart --output_dir runs/quickstart

Runs the same commands a person would, prints them, and ends with a table and a chart.
"""

import shlex
import time
from dataclasses import dataclass
from pathlib import Path

from data_scripts.files import CORPUS_FILE, DEV_FILE, TRAIN_FILE, check_is_folder_or_new, load_json, write_file
from data_scripts.options import option, parse_options
from data_scripts.relations import BIRTH_YEAR, BIRTHPLACE
from posgpt import cli
from posgpt.evaluation.arguments import METRICS_FILE
from posgpt.plots import BLUE, GREY, make_figure, save_picture
from posgpt.tables import format_table
from posgpt.training.architecture import PositionArguments
from posgpt.training.checkpoints import read_state

RECIPE = "quickstart"
# Fewer exposures than the recipe's are enough for the world (docs/results.md), with larger steps.
LENGTH = {"num_train_epochs": 10, "per_device_train_batch_size": 32}
ASKED = (BIRTHPLACE, BIRTH_YEAR)


@dataclass
class QuickstartArguments(PositionArguments):
    """Where to write, and how large a world."""

    output_dir: str = option("Folder for everything; earlier results are overwritten.", default="runs/quickstart")
    # The world's own command checks these.
    num_people: int = option("People in the fictional world.", default=300)
    num_places: int = option("Places they may be born in.", default=60)
    biographies_per_person: int = option("How many documents the corpus has about each person.", default=2)


def run_command(title: str, *command: str, **options: object) -> None:
    """Print the command `posgpt COMMAND …` and run it in this process, since importing the libraries again takes seconds.

    An option of True is a flag, one with a list has several values. A command that fails ends the program with its message.
    """
    words = [*command]
    for name, value in options.items():
        values = value if isinstance(value, list) else [] if value is True else [value]
        words += [f"--{name}", *map(str, values)]
    print(f"\n== {title}\n$ posgpt {shlex.join(words)}", flush=True)
    cli.main(words)


def train_and_evaluate(arguments: QuickstartArguments, folder: Path) -> tuple[dict[str, dict[str, float]], int]:
    """Write the world, train two models and ask about other people; return all accuracies by relation, and how many were asked."""
    corpus, train_file, dev_file = (folder / "world" / name for name in (CORPUS_FILE, TRAIN_FILE, DEV_FILE))
    sizes = {name: getattr(arguments, name) for name in ("num_people", "num_places", "biographies_per_person")}
    names = [relation.name for relation in ASKED]
    run_command("A fictional world", "world", output_dir=corpus.parent, overwrite=True, relations=names, **sizes)
    common = {"position_embedding_type": arguments.position_embedding_type, "overwrite_output_dir": True}
    title = "Pretraining: read the biographies, and the questions about some of the people"
    files = {"train_file": corpus, "questions_file": train_file, "output_dir": folder / "pretrain"}
    run_command(title, "pretrain", RECIPE, **common, **files, **LENGTH)
    files = {"vocabulary_file": corpus, "train_file": train_file, "validation_file": dev_file}
    title = "For comparison: the questions alone"
    run_command(title, "finetune", RECIPE, **common, **files, output_dir=folder / "scratch")

    accuracies, metrics = {}, {}
    for name, model in {"PosGPT, pretrained": "pretrain", "PosGPT, not pretrained": "scratch"}.items():
        title, output_dir = f"Evaluation: ask about other people ({name})", folder / f"eval_{model}"
        files = {"model_name_or_path": folder / model, "test_file": dev_file, "train_file": train_file}
        run_command(title, "evaluate", **files, output_dir=output_dir)
        metrics = load_json(output_dir / METRICS_FILE, "metrics of an evaluation")["relations"]
        accuracies[name] = {relation: each["accuracy"] for relation, each in metrics.items()}
    frequent = {relation: each["majority_accuracy"] for relation, each in metrics.items()}
    birthplace = metrics[BIRTHPLACE.name]
    baseline = {BIRTHPLACE.name: birthplace["baseline_accuracy"]}
    named = {"the most frequent answer": frequent, f'"{BIRTHPLACE.baseline}" for everyone': baseline}
    return accuracies | named, birthplace["total"]


def draw_results(
    path: Path, accuracies: dict[str, dict[str, float]], log_history: list[dict], num_questions: int
) -> None:
    """Save a PNG: the accuracies of each row of the table, and the loss of pretraining over its epochs."""
    figure, (bars, curve) = make_figure(11, 3.6, columns=2)
    height = 0.8 / len(ASKED)
    for i, (relation, color) in enumerate(zip(ASKED, (BLUE, GREY), strict=True)):
        rows = [(y, 100 * each[relation.name]) for y, each in enumerate(accuracies.values()) if relation.name in each]
        places = [y + (i - (len(ASKED) - 1) / 2) * height for y, _ in rows]
        drawn = bars.barh(places, [share for _, share in rows], height, color=color, label=relation.form)
        bars.bar_label(drawn, fmt="%.1f %%", padding=3)
    bars.set_yticks(range(len(accuracies)), list(accuracies))
    bars.invert_yaxis()
    bars.legend(loc="lower right")
    bars.set(xlim=(0, 115), xlabel=f"accuracy on {num_questions} people it was never asked about (%)")
    losses = [(entry["epoch"], entry["loss"]) for entry in log_history if "loss" in entry]
    curve.plot(*zip(*losses, strict=True), color=BLUE)
    curve.set(xlabel="pretraining epoch", ylabel="loss (nats per character)", ylim=(0, None))
    pretrained, scratch, *_ = (each[BIRTHPLACE.name] for each in accuracies.values())
    figure.suptitle(f"Of the birthplaces, {pretrained:.0%} are known after pretraining, {scratch:.0%} without it")
    save_picture(figure, path)


def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(QuickstartArguments, argv)
    folder = check_is_folder_or_new(arguments.output_dir).resolve()
    start = time.perf_counter()
    accuracies, total = train_and_evaluate(arguments, folder)
    draw_results(folder / "chart.png", accuracies, read_state(folder / "pretrain")["log_history"], total)
    rows = [
        (name, *(f"{each[relation.name]:.1%}" if relation.name in each else "" for relation in ASKED))
        for name, each in accuracies.items()
    ]
    table = format_table((f"{total} held-out people, answers by", *(relation.form for relation in ASKED)), rows)
    write_file(folder / "results.md", table + "\n")
    minutes = (time.perf_counter() - start) / 60
    print(f"\n{table}\n\n{minutes:.1f} minutes. Table: {folder / 'results.md'}  Chart: {folder / 'chart.png'}")
