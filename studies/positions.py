"""How the way positions are encoded changes what a model knows: every member of the family, same data, same budget.

    python -m studies.positions --data_dir data --output_dir runs/positions
    python -m studies.positions --data_dir data --output_dir runs/positions --members rotary alibi --seeds 42 43 44

Trains each member once a seed with a recipe that needs no finetuning, asks it about dev, and writes a table and a chart.
Finished trainings are kept and interrupted ones go on, so the same command can be given again, also with more seeds.
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import yaml

from data_scripts.birthplaces import load_birthplaces
from data_scripts.synthetic_world import CORPUS_FILE, DEV_FILE, TRAIN_FILE
from data_scripts.text_files import bad_input_in_one_line, check_is_folder_or_new, save_picture, written_whole
from modeling_posgpt import POSITION_EMBEDDINGS
from reporting.confidence import wilson_interval
from studies.tables import chosen, show_table
from studies.training_runs import ROOT, trained
from training import OneLineArgumentParser, load_model, parse_into

BATCH_SIZE = "per_device_train_batch_size"


@dataclass
class PositionsArguments:
    """The data, and what to train."""

    data_dir: str = field(metadata={"help": f"Folder with {CORPUS_FILE}, {TRAIN_FILE} and {DEV_FILE}."})
    output_dir: str = field(default="runs/positions", metadata={"help": "Folder for models, table and chart."})
    recipe: str = field(default="recipes/windows.yaml", metadata={"help": "A recipe that needs no finetuning."})
    members: list[str] | None = field(default=None, metadata={"help": "position_embedding_type's (default: all)."})
    seeds: list[int] = field(default_factory=lambda: [42, 43], metadata={"help": "A training each."})
    max_steps: int | None = field(default=None, metadata={"help": "Steps a training (default: the recipe's)."})
    processes: int = field(default=1, metadata={"help": "Processes a training, through accelerate."})


def measure(member: str, seed: int, arguments: PositionsArguments, folder: Path) -> dict:
    """Train one model unless it is there, ask it about dev, and return its figures."""
    data = Path(arguments.data_dir).resolve()
    command = [arguments.recipe, "--train_file", str(data / CORPUS_FILE), "--questions_file", str(data / TRAIN_FILE)]
    command += ["--position_embedding_type", member, "--seed", str(seed)]
    command += ["--max_steps", str(arguments.max_steps)] if arguments.max_steps is not None else []
    if arguments.processes > 1:
        # The batch stays the recipe's.
        batch_size = yaml.safe_load((ROOT / arguments.recipe).read_text(encoding="utf-8"))["pretrain"][BATCH_SIZE]
        command += [f"--{BATCH_SIZE}", str(max(batch_size // arguments.processes, 1))]
        command += [] if torch.accelerator.is_available() else ["--use_cpu", "true"]
    figures = trained(f"{member}, seed {seed}", command, folder, arguments.processes)
    answers_file = folder / "dev.json"
    if not answers_file.is_file():
        model, tokenizer = load_model(str(folder))
        pairs = load_birthplaces(data / DEV_FILE, answers=True)
        answers = model.answer(list(pairs["question"]), tokenizer)
        right = [answer.text == place for answer, place in zip(answers, pairs["place"], strict=True)]
        with written_whole(answers_file) as file:
            json.dump({"right": right, "parameters": model.num_parameters()}, file)
    return figures | json.loads(answers_file.read_text(encoding="utf-8"))


def summary(runs: list[dict]) -> dict:
    """A member's row: the mean over its seeds; the interval is that of one seed's answers, for all ask the same people."""
    accuracy, people = float(np.mean([run["right"] for run in runs])), len(runs[0]["right"])
    return {
        "accuracy": accuracy,
        "interval": wilson_interval(round(accuracy * people), people),
        "seeds": [float(np.mean(run["right"])) for run in runs],
        "parameters": runs[0]["parameters"],
        "loss": float(np.mean([run["losses"][-1][1] for run in runs])),
        "characters": runs[0]["characters"],
        "minutes": float(np.mean([run["minutes"] for run in runs])),
        "memory": max(run["memory"] for run in runs),
    }


def behind(first: list[dict], runs: list[dict]) -> tuple[float, float]:
    """How much less is right in `runs` than in `first`, and that difference's standard error over people, 0 to 1 each.

    All are asked the same people, who are hard or easy for everyone, so that this tells more apart than two intervals do.
    """
    differences = np.mean([run["right"] for run in first], axis=0) - np.mean([run["right"] for run in runs], axis=0)
    return float(differences.mean()), float(differences.std(ddof=1) / np.sqrt(len(differences)))


def write_table(runs: dict[str, list[dict]], folder: Path) -> None:
    """Write `table.md` and `chart.png`, the best member first."""
    from matplotlib.figure import Figure

    rows = {member: summary(of_member) for member, of_member in runs.items()}
    rows = dict(sorted(rows.items(), key=lambda item: -item[1]["accuracy"]))
    lines = [
        "| positions | parameters | dev, exact match | 95 % interval | points behind the first | each seed | last loss"
        " | characters read | minutes | memory |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    first = next(iter(rows))
    for member, row in rows.items():
        low, high = row["interval"]
        less, error = (100 * value for value in behind(runs[first], runs[member]))
        points = "" if member == first else f"{less:.1f} ± {error:.1f}"
        seeds = ", ".join(f"{accuracy:.1%}" for accuracy in row["seeds"])
        lines.append(
            f"| {member} | {row['parameters']:,} | **{row['accuracy']:.1%}** | {low:.1%} to {high:.1%} | {points} |"
            f" {seeds} | {row['loss']:.3f} | {row['characters'] / 1e6:.1f} M | {row['minutes']:.0f} | {row['memory']:,.0f} MiB |"
        )
    show_table(lines, folder)

    figure = Figure(figsize=(12, 1.6 + 0.45 * max(len(rows), 5)), layout="constrained")
    bars, curves = figure.subplots(1, 2)
    at = np.arange(len(rows))[::-1]
    values = np.array([100 * row["accuracy"] for row in rows.values()])
    low, high = (np.array([100 * row["interval"][side] for row in rows.values()]) for side in (0, 1))
    colours = [f"C{number}" for number in range(len(rows))]
    bars.barh(at, values, 0.6, color=colours, alpha=0.6, xerr=[values - low, high - values], capsize=3)
    for height, value, end, row in zip(at, values, high, rows.values(), strict=True):
        bars.plot([100 * accuracy for accuracy in row["seeds"]], [height] * len(row["seeds"]), "k.", markersize=4)
        bars.annotate(f"{value:.1f}", (end, height), (6, 0), textcoords="offset points", va="center")
    bars.set(yticks=at, yticklabels=list(rows), xlim=(0, 108), xlabel="dev, exact match (%); dots: seeds")
    for colour, (member, of_member) in zip(colours, ((member, runs[member]) for member in rows), strict=True):
        for number, run in enumerate(of_member):
            curves.plot(*zip(*run["losses"], strict=True), color=colour, lw=1, label=member if number == 0 else None)
    curves.set(yscale="log", xlabel="step", ylabel="training loss (nats a span character)")
    curves.legend(frameon=False, fontsize="small")
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    save_picture(figure, folder / "chart.png")


def main() -> None:
    (arguments,) = parse_into(OneLineArgumentParser(PositionsArguments), sys.argv[1:])
    members = chosen(arguments.members, POSITION_EMBEDDINGS, "position_embedding_type")
    output_dir = check_is_folder_or_new(arguments.output_dir).resolve()
    runs: dict[str, list[dict]] = {}
    # A seed after the other, so that an early table compares all members.
    for seed in arguments.seeds:
        for member in members:
            figures = measure(member, seed, arguments, output_dir / f"{member}_{seed}")
            runs.setdefault(member, []).append(figures)
            write_table(runs, output_dir)


if __name__ == "__main__":
    with bad_input_in_one_line():
        main()
