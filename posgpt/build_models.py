"""Models to start from: of the fictional world, each with its card and report, and a page that asks them.

    posgpt build-models --output_dir runs/models

Writes the world, one folder per model, `page/`, and `SHA256SUMS` over all files, so that the folder can be published as it
is. Prints the commands that it runs. What is finished is kept, and an interrupted training is resumed, so the same command can
be given again.
"""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from tqdm import tqdm

from data_scripts.errors import BadInput, check_installed, exit_on_bad_input
from data_scripts.files import (
    CORPUS_FILE,
    DEV_FILE,
    TRAIN_FILE,
    check_is_folder_or_new,
    hash_file,
    load_json,
    write_atomically,
)
from data_scripts.options import Range, option, parse_options
from data_scripts.synthetic_world import MAX_PEOPLE, MIN_PEOPLE
from modeling_posgpt import POSITION_EMBEDDINGS
from posgpt.evaluation.card import load_card
from posgpt.page.write import find_npm
from posgpt.quickstart import run_module
from posgpt.recipe_parser import read_settings
from posgpt.training.checkpoints import WEIGHTS_FILE, list_checkpoints

HASHES_FILE, ARGUMENTS_FILE, PAGE_FOLDER = "SHA256SUMS", "arguments.json", "page"


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


def build_model(positions: str, arguments: ModelsArguments, folder: Path, world: Path) -> Path:
    """Train and evaluate one model, unless that is done; return its folder."""
    model, report = folder / f"posgpt-world-{positions}", folder / "reports" / positions
    train_file = world / TRAIN_FILE
    if not (model / WEIGHTS_FILE).is_file():
        # They would be those of a model that is gone.
        for outdated in (report, folder / PAGE_FOLDER):
            shutil.rmtree(outdated, ignore_errors=True)
        run_module(
            f"A model with {positions} positions",
            "posgpt.pretrain",
            arguments.recipe,
            position_embedding_type=positions,
            train_file=world / CORPUS_FILE,
            questions_file=train_file,
            seed=arguments.seed,
            output_dir=model,
            resume_from_checkpoint="auto",
        )
    for checkpoint in list_checkpoints(model):
        shutil.rmtree(checkpoint)
    # The card's figures are written last.
    if not (report.exists() and load_card(model).data.get("eval_results")):
        run_module(
            f"Its report, and its figures in its card ({positions})",
            "posgpt.evaluate",
            model_name_or_path=model,
            test_file=world / DEV_FILE,
            train_file=train_file,
            corpus_file=world / CORPUS_FILE,
            report=report,
            update_model_card=True,
        )
    return model


def keep_arguments(arguments: ModelsArguments, folder: Path) -> None:
    """Write what the folder's models are made of into it, where that is not known yet.

    Raises:
        BadInput: they were made with other arguments, or there is no such recipe.
    """
    # What a recipe says may change.
    recipe = read_settings(arguments.recipe, "pretrain")
    values = asdict(arguments) | {"output_dir": None, "recipe": recipe}
    file = folder / ARGUMENTS_FILE
    if not file.exists():
        with write_atomically(file) as stream:
            json.dump(values, stream, indent=2)
    elif (before := load_json(file, "arguments of the models in this folder")) != values:
        changed = ", ".join(f"--{name}" for name in values if values[name] != before.get(name))
        raise BadInput(f"{folder}: its models were made with another {changed}; give another --output_dir.")


def write_hashes(folder: Path) -> None:
    """Write the SHA-256 of all files below a folder, in the form of `sha256sum --check`."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / HASHES_FILE)
    hashes = [hash_file(path) for path in tqdm(paths, desc="Hashing", unit="file", disable=None)]
    with write_atomically(folder / HASHES_FILE) as file:
        file.writelines(
            f"{hash_}  {path.relative_to(folder).as_posix()}\n" for hash_, path in zip(hashes, paths, strict=True)
        )


@exit_on_bad_input()
def main(argv: list[str] | None = None) -> None:
    arguments = parse_options(ModelsArguments, argv)
    folder = check_is_folder_or_new(arguments.output_dir).resolve()
    check_installed("report", "matplotlib")
    check_installed("page", "onnx")
    find_npm()
    keep_arguments(arguments, folder)
    world, page = folder / "world", folder / PAGE_FOLDER
    if not (world / CORPUS_FILE).exists():
        run_module(
            "A fictional world", "data_scripts.synthetic_world", output_dir=world, num_people=arguments.num_people
        )
    models = [build_model(positions, arguments, folder, world) for positions in arguments.position_embedding_types]
    if not page.exists():
        run_module(
            "A page that asks them",
            "posgpt.page.write",
            model_name_or_path=models[:2],
            corpus_file=world / CORPUS_FILE,
            output_dir=page,
        )
    write_hashes(folder)
    print(f"\nModels: {', '.join(map(str, models))}\nPage: {page}\nChecksums: {folder / HASHES_FILE}")


if __name__ == "__main__":
    main()
