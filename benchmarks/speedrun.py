"""The record: how few characters and minutes take a model to 90 % of dev.

    python -m benchmarks.speedrun --data_dir data --recipe runs/recipe.yaml --output_dir runs/speedrun

Trains with a recipe whose length is fixed beforehand, once per seed, asks dev once at the end of each, and prints a line for the
table in docs/speedrun.md, which has the rules. Finished trainings are kept and interrupted ones are resumed. Ideas are
tried on training pairs that are held out: `posgpt hold-out` writes such a folder, and `--test_file` names its questions.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.throughput import count_training_flops, describe_machine, list_fast_dtypes, measure_matmul
from data_scripts.errors import exit_on_bad_input
from data_scripts.files import CORPUS_FILE, DEV_FILE, TRAIN_FILE, check_is_folder_or_new, load_json
from data_scripts.options import option, parse_options
from modeling_posgpt import PosGPTConfig
from posgpt.generate_questions import QUESTIONS_FILE
from posgpt.training.architecture import PositionArguments
from studies.cache import Record
from studies.positions import summarize_member
from studies.tables import format_known, write_table
from studies.training_runs import build_command, train, train_and_ask


@dataclass
class SpeedrunArguments(PositionArguments):
    """What enters the race."""

    data_dir: str = option(f"Folder with {CORPUS_FILE}, {TRAIN_FILE} and {DEV_FILE}.")
    output_dir: str = option("Folder for models and table.", default="runs/speedrun")
    recipe: str = option("A recipe that needs no finetuning.", default="windows")
    seeds: list[int] = option("One training per seed.", default_factory=lambda: [42, 43, 44])
    generate_questions: Literal["from_scratch", "pretrained"] | None = option(
        "Another model first writes questions to train on as well. It is trained from scratch, or first pretrained like the one"
        " that is asked, but without written questions. What it reads, and its time, count.",
        default=None,
    )
    test_file: str | None = option(f"What is asked at the end (default: {DEV_FILE} in data_dir).", default=None)


def run_seed(seed: int, arguments: SpeedrunArguments, folder: Path) -> Record:
    """Train one model and ask it, unless that is done; return its figures."""
    data = Path(arguments.data_dir).resolve()
    name, recipe = f"{arguments.recipe}, seed {seed}", arguments.recipe
    positions: dict[str, object] = {"position_embedding_type": arguments.position_embedding_type}
    read: dict[str, object] = {"train_file": data / CORPUS_FILE, "questions_file": data / TRAIN_FILE, "seed": seed}
    before: list[Record] = []
    if arguments.generate_questions:
        start = positions
        if arguments.generate_questions == "pretrained":
            start = {"model_name_or_path": folder / "pretrained"}
            command = build_command(recipe, **read, **positions)
            before.append(train(f"{name}, before questions", command, folder / "pretrained"))
        writer = folder / "questions"
        command = build_command(recipe, **read, **start)
        before.append(train(f"{name}, questions", command, writer, section="generate_questions"))
        seconds = load_json(writer / "generate_results.json", "time of a generation")["generate_runtime"]
        before.append({"characters": 0, "minutes": seconds / 60})
        read["questions_file"] = [data / TRAIN_FILE, writer / QUESTIONS_FILE]
    test_file = Path(arguments.test_file) if arguments.test_file else data / DEV_FILE
    asked = train_and_ask(name, build_command(recipe, **read, **positions), folder / "model", test_file)
    spent = {figure: sum(each[figure] for each in [*before, asked]) for figure in ("characters", "minutes")}
    return asked | spent


def write_record(runs: list[Record], limit: float, arguments: SpeedrunArguments, config: PosGPTConfig) -> None:
    """Write the line of the table of records.

    Args:
        runs: From `run_seed`, one per seed.
        limit: The machine's best rate at multiplying matrices, in FLOP/s.
        config: The models'.
    """
    mean = summarize_member(runs)
    flops = count_training_flops(config, config.max_position_embeddings) * mean["characters"]
    used = flops / (60 * mean["minutes"]) / limit
    cells = {
        "recipe": arguments.recipe,
        "positions": arguments.position_embedding_type,
        "answered": f"{mean['accuracy']:.1%}",
        "95 % interval": mean["share"].format_interval(),
        "each seed": ", ".join(f"{accuracy:.1%}" for accuracy in mean["seeds"]),
        "generated questions": arguments.generate_questions or "no",
        "characters": f"{mean['characters'] / 1e6:.1f} M",
        "minutes": format_known(mean["minutes"], ".1f"),
        "share of the matmul limit": f"{format_known(used, '.0%')} of {limit / 1e9:.0f} GFLOP/s",
        "machine": describe_machine(),
    }
    write_table(Path(arguments.output_dir), [cells])


@exit_on_bad_input()
def main() -> None:
    arguments = parse_options(SpeedrunArguments)
    output_dir = check_is_folder_or_new(arguments.output_dir).resolve()
    limit = max(map(measure_matmul, list_fast_dtypes().values()))
    folders = {seed: output_dir / f"{arguments.position_embedding_type}_{seed}" for seed in arguments.seeds}
    runs = [run_seed(seed, arguments, folder) for seed, folder in folders.items()]
    write_record(runs, limit, arguments, PosGPTConfig.from_pretrained(next(iter(folders.values())) / "model"))


if __name__ == "__main__":
    main()
