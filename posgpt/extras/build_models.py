"""Models to start from: of the fictional world, each with its card and report, and a page that asks them.

    posgpt build-models --output_dir runs/models

Writes the world, one folder per model, and `page/`, so that the folder can be published as it is. Prints the commands that it
runs. What is finished is kept, and an interrupted training is resumed, so the same command can be given again.
"""

import json
import shlex
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from data_scripts.errors import BadInput, check_installed, exit_on_bad_input
from data_scripts.files import (
    CORPUS_FILE,
    DEV_FILE,
    TRAIN_FILE,
    check_is_folder_or_new,
    load_json,
    write_atomically,
)
from data_scripts.options import Range, option, parse_options
from data_scripts.synthetic_world import MAX_PEOPLE, MIN_PEOPLE
from modeling_posgpt import POSITION_EMBEDDINGS
from posgpt.extras.page.write import find_npm
from posgpt.training.checkpoints import WEIGHTS_FILE, list_checkpoints


@dataclass
class ModelsArguments:
    """Which models, of which world."""

    output_dir: str = option("Folder for everything.", default="runs/models")
    recipe: str = option("The recipe that they are trained with.", default="windows")
    position_embedding_types: list[str] = option(
        "The positions of each model; the first two are on the page.",
        default_factory=lambda: ["learned", "rotary"],
        choices=list(POSITION_EMBEDDINGS),
    )
    num_people: Annotated[int, Range(MIN_PEOPLE, MAX_PEOPLE)] = option("People in the fictional world.", default=2937)
    seed: Annotated[int, Range(0)] = option("Determines the models.", default=42)


def run_command(*arguments: object) -> None:
    """Print a command of posgpt and run it; where it fails, the program ends as it did."""
    command = list(map(str, arguments))
    print(f"\nposgpt {shlex.join(command)}", flush=True)
    if status := subprocess.run([sys.executable, "-m", "posgpt", *command]).returncode:
        sys.exit(status)


def build_model(positions: str, arguments: ModelsArguments, folder: Path, world: Path) -> Path:
    """Train and evaluate one model, unless that is done; return its folder."""
    model, report = folder / f"posgpt-world-{positions}", folder / "reports" / positions
    corpus, train = world / CORPUS_FILE, world / TRAIN_FILE
    if not (model / WEIGHTS_FILE).is_file():
        # They would be those of a model that is gone.
        for outdated in (report, folder / "page"):
            shutil.rmtree(outdated, ignore_errors=True)
        run_command(
            "pretrain", arguments.recipe, "--position_embedding_type", positions, "--train_file", corpus,
            "--questions_file", train, "--seed", arguments.seed, "--output_dir", model, "--resume_from_checkpoint", "auto",
        )  # fmt: skip
    for checkpoint in list_checkpoints(model):
        shutil.rmtree(checkpoint)
    # The figures in its card are written last.
    if not report.exists() or "exact_match" not in (model / "README.md").read_text(encoding="utf-8"):
        run_command(
            "evaluate", "--model_name_or_path", model, "--test_file", world / DEV_FILE, "--train_file", train,
            "--corpus_file", corpus, "--report", report, "--update_model_card",
        )  # fmt: skip
    return model


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(ModelsArguments, argv)
    folder = check_is_folder_or_new(arguments.output_dir).resolve()
    check_installed("report", "matplotlib")
    check_installed("page", "onnx")
    find_npm()
    values, file = asdict(arguments) | {"output_dir": None}, folder / "arguments.json"
    if not file.exists():
        with write_atomically(file) as stream:
            json.dump(values, stream, indent=2)
    elif (before := load_json(file, "arguments of the models in this folder")) != values:
        changed = ", ".join(f"--{name}" for name in values if values[name] != before.get(name))
        raise BadInput(f"{folder}: its models were made with another {changed}; give another --output_dir.")
    world, page = folder / "world", folder / "page"
    if not (world / CORPUS_FILE).exists():
        run_command("world", "--output_dir", world, "--num_people", arguments.num_people)
    models = [build_model(positions, arguments, folder, world) for positions in arguments.position_embedding_types]
    if not page.exists():
        corpus = ["--corpus_file", world / CORPUS_FILE]
        run_command("page", "--model_name_or_path", *models[:2], *corpus, "--output_dir", page)
    print(f"\nModels: {', '.join(map(str, models))}\nPage: {page}")


if __name__ == "__main__":
    main()
