"""Command lines of the training commands, `[RECIPE] --option value ...`, and the same from Python.

A recipe is a YAML file with a section of options per command; what is given besides overrides it.
"""

import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from transformers.utils import logging

from data_scripts.errors import BadInput
from data_scripts.files import load_yaml
from data_scripts.objective_config import ObjectiveConfig
from data_scripts.objectives import DEFAULT_OBJECTIVE, OBJECTIVES
from data_scripts.options import OptionParser
from modeling_posgpt import POSITION_EMBEDDINGS, PosGPTConfig
from posgpt.training.arguments import SCHEDULE_OPTIONS

FOLDER = Path(str(files("posgpt"))) / "recipes"
DEFAULT_RECIPE = "course"
# A recipe's options that belong to its value of another option: dropped where another value is chosen.
_BELONGING = {"lr_scheduler_kwargs": "lr_scheduler_type", "total_train_batch_size": "per_device_train_batch_size"}

logger = logging.get_logger(__name__)


def list_recipes() -> list[str]:
    """Return the names of the recipes that come with PosGPT."""
    return sorted(file.stem for file in FOLDER.glob("*.yaml"))


def find_recipe(name: str, folder: Path = Path()) -> Path:
    """Return the file of a recipe that is named by file, from `folder`, or by its bare name if it comes with PosGPT."""
    # `recipes/windows.yaml` names the one that comes with PosGPT from any folder.
    for file in (folder / name, Path(name), FOLDER / f"{name}.yaml", FOLDER.parent / name):
        # Path.is_file raises for names that are too long.
        if os.path.isfile(file):
            return file
    raise BadInput(f"{name}: no such recipe; give a YAML file, or one of {', '.join(list_recipes())}.")


def read_recipe(recipe: Path, derived: Sequence[Path] = ()) -> dict[str, dict[str, Any]]:
    """Return a recipe's sections, each on top of that of the recipe's `base`, a file that its folder may have.

    `derived` are the recipes that have this one as their base.
    """
    sections = load_yaml(recipe, "recipe")
    sections = sections if isinstance(sections, dict) else {}
    base = sections.pop("base", None)
    if wrong := [name for name, values in sections.items() if not isinstance(values, dict)]:
        raise BadInput(f"{recipe}: {wrong[0]!r} has to be a section, with an option per line.")
    if base is None:
        return sections
    derived = (*derived, recipe.resolve())
    if (base_file := find_recipe(str(base), recipe.parent)).resolve() in derived:
        raise BadInput(f"{recipe}: its base is this recipe itself, or derived from it; name another one.")
    inherited = read_recipe(base_file, derived)
    return {name: overlay(inherited.get(name, {}), sections.get(name, {})) for name in inherited | sections}


def overlay(inherited: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section's options with others in their place, without those that belong to a value that was replaced."""
    replaced = {name for name in own if own[name] != inherited.get(name)}
    return {name: value for name, value in inherited.items() if _BELONGING.get(name) not in replaced} | dict(own)


def read_section(recipe: str | Path, section: str, **options: Any) -> dict[str, Any]:
    """Return the options of a section of a recipe, a file or a name, with others in their place; see `overlay`."""
    sections = read_recipe(find_recipe(str(recipe)))
    if section not in sections:
        names = ", ".join(map(str, sections)) or "none"
        raise BadInput(f"{recipe}: has no section {section!r} (only: {names}); add one, or a `base` that has it.")
    return overlay(sections[section], options)


def parse_with_recipe(
    dataclass_types: Sequence[type],
    section: str,
    argv: Sequence[str] | None = None,
    default: str = DEFAULT_RECIPE,
    options: Mapping[str, Any] | None = None,
) -> tuple:
    """Read a recipe and what is given besides, which overrides it; return an instance of each dataclass.

    Args:
        dataclass_types: `ObjectiveConfig` stands for that of the chosen `objective`.
        section: The recipe's section for this command.
        argv: The command line without the program, `[RECIPE] --option value ...` (default: this program's).
        default: The recipe if none is named.
        options: From Python, instead of a command line.

    Raises:
        BadInput: the recipe cannot be read, has no such section or names an option that does not exist; or what is given
            is refused, or belongs to another objective, schedule of the learning rate, optimizer or position embedding.
    """
    types: list[type] = []
    for each in dataclass_types:
        types += [each, *OBJECTIVES.values()] if each is ObjectiveConfig else [each]
    for name, objective in OBJECTIVES.items():
        objective._argument_group_name = f"options of the objective {name}"
    parser = OptionParser(types, usage="%(prog)s [RECIPE] --OPTION VALUE ...")
    described = f"A YAML file, or one of {', '.join(list_recipes())}."
    parser.add_argument("recipe", nargs="?", default=default, help=described)
    argv = sys.argv[1:] if argv is None else argv
    given = parser.read(argv) if options is None else parser.read_values(options)
    recipe = find_recipe(given.pop("recipe", default))
    sections = read_recipe(recipe)
    # (A preview is told the section.)
    if section == "finetune" and "finetune_from_scratch" in sections and "section" not in given:
        if not (sections.get(section, {}) | given).get("model_name_or_path"):
            section = "finetune_from_scratch"
    try:
        values = {"eval_strategy": "epoch"} | parser.read_values(read_section(recipe, section))
    except BadInput as error:
        raise BadInput(f"{recipe}, section {section!r}: {error}") from None
    # What is typed takes precedence over the recipe's strategy.
    values |= {f"{name}_strategy": "steps" for name in ("save", "eval") if f"{name}_steps" in given}
    if not (values | given).get("validation_file"):
        if given.get("eval_strategy", "no") != "no" or given.get("eval_on_start"):
            raise BadInput("there is nothing to evaluate on; add --validation_file, or leave evaluation out.")
        # A recipe evaluates if there is something to evaluate on.
        for name in ("eval_strategy", "load_best_model_at_end", "eval_on_start"):
            values.pop(name, None)
    values = drop_unused(overlay(values, given), given, ObjectiveConfig in dataclass_types)
    chosen = OBJECTIVES[values.get("objective") or DEFAULT_OBJECTIVE]
    built = parser.build(values, [chosen if each is ObjectiveConfig else each for each in dataclass_types])
    if int(os.environ.get("RANK", 0)) == 0 and options is None:
        print(f"Recipe: {recipe}, section {section!r}; command line: {' '.join(argv) or 'nothing more'}", flush=True)
    return built


def drop_unused(values: dict[str, Any], given: Collection[str], has_objective: bool) -> dict[str, Any]:
    """Return options without those that belong to values not chosen; refuse those `given`, and warn of a recipe's."""
    positions = {name: each.settings for name, each in POSITION_EMBEDDINGS.items()}
    objectives = {name: [field.name for field in fields(each)] for name, each in OBJECTIVES.items()}
    owners: list[tuple[str, Any, Mapping[str, Iterable[str]]]] = [
        ("position_embedding_type", PosGPTConfig.position_embedding_type, positions),
        ("lr_schedule", "steps", SCHEDULE_OPTIONS),
        ("use_muon", False, {"False": ["optim", "optim_args"]}),
        ("objective", DEFAULT_OBJECTIVE, objectives if has_objective else {}),
    ]
    unused = []
    for chooser, default, options_of in owners:
        chosen = str(values.get(chooser, default))
        for name in values:
            owning = [value for value, names in options_of.items() if name in names]
            if owning and chosen not in owning and name in given:
                reason = f"--{name} is an option of {chooser} {' and '.join(owning)}, not of {chosen}"
                raise BadInput(f"{reason}; leave it out, or add --{chooser} {' or '.join(owning)}.")
            # A recipe's settings of other positions stay: the configuration has them all.
            if owning and chosen not in owning and options_of is not positions:
                unused.append(name)
    if unused:
        logger.warning(f"not used, because other options are chosen: {', '.join(unused)}.")
    return {name: value for name, value in values.items() if name not in unused}
