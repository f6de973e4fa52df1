"""The record: how few characters and minutes take a model to 90 % of dev.

    python -m benchmarks.speedrun --data_dir data --recipe runs/recipe.yaml --output_dir runs/speedrun

Trains with a recipe whose length is fixed beforehand, once per seed, asks dev once at the end of each, and prints a line with
the figures. docs/results.md has the rules. Finished runs are kept and interrupted ones are resumed. Ideas are tried on
training pairs that are held out: `posgpt hold-out` writes such a folder, and `--test_file` names its questions.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.throughput import count_training_flops, describe_machine, measure_matmul
from data_scripts.errors import exit_on_bad_input
from data_scripts.files import CORPUS_FILE, DEV_FILE, TRAIN_FILE, check_is_folder_or_new
from data_scripts.options import option, parse_options
from modeling_posgpt import PosGPTConfig
from posgpt.training.architecture import PositionArguments
from studies.rows import average_right
from studies.sweep import ask
from studies.tables import write_table
from studies.training_runs import Record, train


@dataclass
class SpeedrunArguments(PositionArguments):
    """What enters the race."""

    data_dir: str = option(f"Folder with {CORPUS_FILE}, {TRAIN_FILE} and {DEV_FILE}.")
    output_dir: str = option("Folder for models and table.", default="runs/speedrun")
    recipe: str = option("A recipe that needs no finetuning.", default="windows")
    seeds: list[int] = option("One training per seed.", default_factory=lambda: [42, 43, 44])
    test_file: str | None = option(f"What is asked at the end (default: {DEV_FILE} in data_dir).", default=None)


def run_seed(seed: int, arguments: SpeedrunArguments, folder: Path) -> Record:
    """Train one model and ask it, unless that is done; return its figures."""
    data, model = Path(arguments.data_dir).resolve(), folder / "model"
    read = {"recipe": arguments.recipe, "train_file": data / CORPUS_FILE, "questions_file": data / TRAIN_FILE}
    read |= {"seed": seed, "position_embedding_type": arguments.position_embedding_type}
    spent = train(f"{arguments.recipe}, seed {seed}", "pretrain", read, model)
    test_file = Path(arguments.test_file) if arguments.test_file else data / DEV_FILE
    return spent | ask(model, test_file, model / "asked.json")


def describe_record(runs: list[Record], arguments: SpeedrunArguments, config: PosGPTConfig) -> dict[str, str]:
    """Return the cells of the table of records; `runs` are from `run_seed`, and `config` is the models'."""
    accuracy, share = average_right(runs)
    minutes = float(np.mean([run["minutes"] for run in runs]))
    flops = count_training_flops(config, config.max_position_embeddings) * runs[0]["characters"]
    limit = measure_matmul()
    return {
        "recipe": arguments.recipe,
        "positions": arguments.position_embedding_type,
        "answered": f"{accuracy:.1%}",
        "95 % interval": share.format_interval(),
        "each seed": ", ".join(f"{np.mean(run['right']):.1%}" for run in runs),
        "characters": f"{runs[0]['characters'] / 1e6:.1f} M",
        "minutes": f"{minutes:.1f}",
        "share of the matmul limit": f"{flops / (60 * minutes) / limit:.0%} of {limit / 1e9:.0f} GFLOP/s",
        "machine": describe_machine(),
    }


@exit_on_bad_input()
def main() -> None:
    arguments = parse_options(SpeedrunArguments)
    output_dir = check_is_folder_or_new(arguments.output_dir).resolve()
    folders = {seed: output_dir / f"{arguments.position_embedding_type}_{seed}" for seed in arguments.seeds}
    runs = [run_seed(seed, arguments, folder) for seed, folder in folders.items()]
    config = PosGPTConfig.from_pretrained(next(iter(folders.values())) / "model")
    write_table(output_dir, [describe_record(runs, arguments, config)])


if __name__ == "__main__":
    main()
