"""How the way positions are encoded changes what a model knows: every member of the family, same data, same budget.

    python -m studies.positions --data_dir data --output_dir runs/positions
    python -m studies.positions --data_dir data --output_dir runs/positions --members rotary alibi --seeds 42 43 44

Trains each member once per seed with a recipe that needs no finetuning, asks it the dev questions, and writes a table and
a chart. Finished runs are kept and interrupted ones are resumed, so the same command can be given again, also with
more seeds.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from data_scripts.errors import exit_on_bad_input
from data_scripts.files import CORPUS_FILE, DEV_FILE, TRAIN_FILE, check_is_folder_or_new
from data_scripts.options import Range, option, parse_options
from modeling_posgpt import POSITION_EMBEDDINGS
from posgpt.evaluation.accuracy import Share
from posgpt.plots import make_figure, save_picture
from studies.cache import Record
from studies.tables import choose_rows, format_known, write_table
from studies.training_runs import build_command, count_rows_per_step, train_and_ask


@dataclass
class PositionsArguments:
    """The data, and what to train."""

    data_dir: str = option(f"Folder with {CORPUS_FILE}, {TRAIN_FILE} and {DEV_FILE}.")
    output_dir: str = option("Folder for models, table and chart.", default="runs/positions")
    recipe: str = option("A recipe that needs no finetuning.", default="windows")
    members: list[str] | None = option("Which position_embedding_type to train with (default: all).", default=None)
    seeds: list[int] = option("One training per seed.", default_factory=lambda: [42, 43])
    max_steps: Annotated[int | None, Range(1)] = option(
        "Optimizer steps per training (default: the recipe's).", default=None
    )
    processes: Annotated[int, Range(1)] = option("Processes per training, started by accelerate.", default=1)


def build_member_command(member: str, seed: int, arguments: PositionsArguments) -> list[str]:
    """Return the command line of one training."""
    options: dict[str, object] = {"max_steps": arguments.max_steps}
    if arguments.processes > 1:
        # The batch over all processes stays the recipe's; training refuses what it cannot divide.
        options["total_train_batch_size"] = count_rows_per_step(arguments.recipe, "pretrain")
    data = Path(arguments.data_dir).resolve()
    files = {"train_file": data / CORPUS_FILE, "questions_file": data / TRAIN_FILE}
    return build_command(arguments.recipe, **files, position_embedding_type=member, seed=seed, **options)


def measure_member(member: str, seed: int, arguments: PositionsArguments, folder: Path) -> Record:
    """Train one model and ask it the dev questions, unless that is done; return its figures."""
    command = build_member_command(member, seed, arguments)
    name, dev_file = f"{member}, seed {seed}", Path(arguments.data_dir) / DEV_FILE
    return train_and_ask(name, command, folder, dev_file, arguments.processes)


def summarize_member(runs: list[Record]) -> Record:
    """Summarize a member's runs, one per seed: means over the seeds, and the interval of one seed's answers.

    More seeds do not narrow the interval, for all ask the same people.
    """
    accuracy, people = float(np.mean([run["right"] for run in runs])), len(runs[0]["right"])
    return {
        "accuracy": accuracy,
        "share": Share(round(accuracy * people), people),
        "seeds": [float(np.mean(run["right"])) for run in runs],
        "parameters": runs[0]["parameters"],
        "loss": float(np.mean([run["losses"][-1][1] for run in runs])),
        "characters": runs[0]["characters"],
        "minutes": float(np.mean([run["minutes"] for run in runs])),
        "memory": max(run["memory"] for run in runs),
    }


def compare_members(first: list[Record], runs: list[Record]) -> tuple[float, float]:
    """Compute how much less is right in `runs` than in `first`, and that difference's standard error, 0 to 1 each.

    All are asked the same people, some of whom are hard for every model and some easy. So the difference is taken person by
    person, which tells more members apart than two intervals do.
    """
    differences = np.mean([run["right"] for run in first], axis=0) - np.mean([run["right"] for run in runs], axis=0)
    return float(differences.mean()), float(differences.std(ddof=1) / np.sqrt(len(differences)))


def write_members(runs: dict[str, list[Record]], folder: Path) -> None:
    """Write `table.md` and `chart.png`, the best member first."""
    rows = {member: summarize_member(of_member) for member, of_member in runs.items()}
    rows = dict(sorted(rows.items(), key=lambda item: -item[1]["accuracy"]))
    first, table = next(iter(rows)), []
    for member, row in rows.items():
        less, error = (100 * value for value in compare_members(runs[first], runs[member]))
        cells = {
            "positions": member,
            "parameters": f"{row['parameters']:,}",
            "dev, exact match": f"**{row['accuracy']:.1%}**",
            "95 % interval": row["share"].format_interval(),
            "points behind the first": "" if member == first else f"{less:.1f} ± {error:.1f}",
            "each seed": ", ".join(f"{accuracy:.1%}" for accuracy in row["seeds"]),
            "last loss": f"{row['loss']:.3f}",
            "characters read": f"{row['characters'] / 1e6:.1f} M",
            "minutes": format_known(row["minutes"], ".0f"),
            "memory": f"{row['memory']:,.0f} MiB",
        }
        table.append(cells)
    write_table(folder, table)
    draw_members(rows, runs, folder / "chart.png")


def draw_members(rows: dict[str, Record], runs: dict[str, list[Record]], path: Path) -> None:
    """Save a PNG: bars of the accuracy in `rows`, and the training loss of all `runs`."""
    figure, (bars, curves) = make_figure(12, 1.6 + 0.45 * max(len(rows), 5), columns=2)
    for number, (member, row) in enumerate(rows.items()):
        color = f"C{number}"
        accuracy, low, high = (100 * share for share in (row["accuracy"], *row["share"].interval))
        error = [[accuracy - low], [high - accuracy]]
        bars.barh(member, accuracy, 0.6, color=color, alpha=0.6, xerr=error, capsize=3)
        bars.plot([100 * share for share in row["seeds"]], [member] * len(row["seeds"]), "k.", markersize=4)
        bars.annotate(f"{accuracy:.1f}", (high, member), (6, 0), textcoords="offset points", va="center")
        for run in runs[member]:
            (curve,) = curves.plot(*zip(*run["losses"], strict=True), color=color, lw=1)
        curve.set_label(member)
    bars.set(xlim=(0, 108), xlabel="dev, exact match (%); dots: seeds")
    bars.invert_yaxis()
    curves.set(yscale="log", xlabel="optimizer step", ylabel="training loss (nats per character)")
    curves.legend(fontsize="small")
    save_picture(figure, path)


@exit_on_bad_input()
def main() -> None:
    arguments = parse_options(PositionsArguments)
    members = choose_rows(arguments.members, POSITION_EMBEDDINGS, "position_embedding_type")
    output_dir = check_is_folder_or_new(arguments.output_dir).resolve()
    runs: dict[str, list[Record]] = {}
    # One seed after the other, so that an early table compares all members.
    for seed in arguments.seeds:
        for member in members:
            figures = measure_member(member, seed, arguments, output_dir / f"{member}_{seed}")
            runs.setdefault(member, []).append(figures)
            write_members(runs, output_dir)


if __name__ == "__main__":
    main()
