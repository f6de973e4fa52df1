"""Command lines of the training commands, `[RECIPE] --option value ...`, and the same from Python.

A recipe is a YAML file with a section of options per command; what is given besides overrides it.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from transformers.utils import logging

from data_scripts.errors import BadInput
from data_scripts.files import load_yaml
from data_scripts.objective_config import ObjectiveConfig
from data_scripts.objectives import OBJECTIVES
from data_scripts.options import OptionParser
from modeling_posgpt import POSITION_EMBEDDINGS, PosGPTConfig
from posgpt.training.arguments import SCHEDULE_OPTIONS, PosGPTTrainingArguments

FOLDER = Path(str(files("posgpt"))) / "recipes"
DEFAULT_RECIPE = "course"
# A recipe's options that belong to its value of another option: dropped where another value is chosen.
_BELONGING = {
    "lr_scheduler_type": ["lr_scheduler_kwargs"],
    "per_device_train_batch_size": ["total_train_batch_size"],
    "lr_schedule": [name for names in SCHEDULE_OPTIONS.values() for name in names],
}

logger = logging.get_logger(__name__)


def list_recipes() -> list[str]:
    """Return the names of the recipes that come with PosGPT."""
    return sorted(file.stem for file in FOLDER.glob("*.yaml"))


def find_recipe(name: str, folder: Path = Path()) -> Path:
    """Return the file of a recipe that is named by file, from `folder`, or by its bare name if it comes with PosGPT.

    Raises:
        BadInput: there is none.
    """
    # `recipes/windows.yaml` names the one that comes with PosGPT from any folder.
    for file in (folder / name, Path(name), FOLDER / f"{name}.yaml", FOLDER.parent / name):
        # Path.is_file raises for names that are too long.
        if os.path.isfile(file):
            return file
    raise BadInput(f"{name}: no such recipe; give a YAML file, or one of {', '.join(list_recipes())}.")


def read_recipe(recipe: Path, derived: Sequence[Path] = ()) -> dict[str, dict[str, Any]]:
    """Return a recipe's sections, each on top of that of the recipe's `base`, if it names one.

    Args:
        recipe: The YAML file; a base that is a file is looked for in its folder first.
        derived: The recipes that have this one as their base.

    Raises:
        BadInput: the file or its base cannot be read, a section is not a list of options, or a recipe is its own base.
    """
    sections = load_yaml(recipe, "recipe")
    sections = sections if isinstance(sections, dict) else {}
    base = sections.pop("base", None)
    for name, values in sections.items():
        if not isinstance(values, dict):
            raise BadInput(
                f"{recipe}: {name!r} has to be a section, with an option per line; it is {repr(values)[:60]}."
            )
    if base is None:
        return sections
    try:
        based_on = find_recipe(str(base)[:1000], recipe.parent)
    except BadInput as error:
        raise BadInput(f"{recipe}: its base {error}") from None
    if based_on.resolve() in [file.resolve() for file in (recipe, *derived)]:
        raise BadInput(f"{recipe}: its base {base} is based on itself; name another recipe.")
    inherited = read_recipe(based_on, (recipe, *derived))
    return {name: overlay(inherited.get(name, {}), sections.get(name, {})) for name in inherited | sections}


def overlay(inherited: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section's options with others in their place, without those that belong to a value that was replaced."""
    before = {"lr_schedule": PosGPTTrainingArguments.lr_schedule, **inherited}
    replaced = [name for name in _BELONGING if name in own and str(own[name]) != str(before.get(name))]
    dropped = {belonging for name in replaced for belonging in _BELONGING[name]}
    return {name: value for name, value in inherited.items() if name not in dropped} | dict(own)


def read_section(recipe: Path, section: str) -> dict[str, Any]:
    """Return a recipe's options for one command.

    Raises:
        BadInput: the file cannot be read or has no such section.
    """
    sections = read_recipe(recipe)
    if section not in sections:
        names = ", ".join(map(str, sections))[:200] or "none"
        raise BadInput(
            f"{recipe}: has no section {section!r} with options (only: {names}); add one, or a `base` that has it."
        )
    return sections[section]


def read_settings(recipe: str, section: str, **options: Any) -> dict[str, Any]:
    """Return the options of a section of a recipe, a file or a name, with others in their place; see `overlay`."""
    return overlay(read_section(find_recipe(recipe), section), options)


def parse_with_recipe(
    dataclass_types: Sequence[type],
    section: str | Callable[[Path, Mapping[str, Any]], str],
    argv: Sequence[str] | None = None,
    default: str = DEFAULT_RECIPE,
    options: Mapping[str, Any] | None = None,
) -> tuple:
    """Read a recipe and what is given besides, which overrides it, into dataclasses.

    Args:
        dataclass_types: What to fill; `ObjectiveConfig` stands for that of the chosen `objective`.
        section: The recipe's section for this command, or what returns it for a recipe and what is given.
        argv: The command line without the program, `[RECIPE] --option value ...` (default: this program's).
        default: The recipe if none is named.
        options: From Python, instead of a command line.

    Returns:
        An instance of each dataclass.

    Raises:
        BadInput: the recipe cannot be read, has no such section or names an option that does not exist; an option
            belongs to another objective, schedule of the learning rate, optimizer or position embedding; or a value is refused.
    """
    usage = "%(prog)s [RECIPE] --OPTION VALUE ..."
    types: list[type] = []
    for each in dataclass_types:
        types += [each, *OBJECTIVES.values()] if each is ObjectiveConfig else [each]
    for name, each in OBJECTIVES.items():
        each._argument_group_name = f"options of the objective {name}"
    parser = OptionParser(types, usage=usage)
    parser.add_argument(
        "recipe", nargs="?", default=default, help=f"A YAML file, or one of {', '.join(list_recipes())}."
    )
    if options is None:
        argv = sys.argv[1:] if argv is None else argv
        given = parser.read(argv)
    else:
        given = parser.read_values(options)
    recipe = find_recipe(given.pop("recipe", default))
    section = section if isinstance(section, str) else section(recipe, given)
    values = read_section(recipe, section)

    def build(values: Mapping[str, Any]) -> tuple:
        values = overlay(parser.read_values(values), given)
        return _build(parser, dataclass_types, values, given)

    try:
        built = build(values)
    except BadInput as error:
        with suppress(BadInput):
            build({})
            # What is given would do alone.
            error = BadInput(f"{recipe}, section {section!r}: {error}")
        raise error from None
    if int(os.environ.get("RANK", 0)) == 0 and argv is not None:
        print(f"Recipe: {recipe}, section {section!r}; command line: {' '.join(argv) or 'nothing more'}", flush=True)
    return built


def _build(
    parser: OptionParser, dataclass_types: Sequence[type], values: dict[str, Any], given: Mapping[str, Any]
) -> tuple:
    """Return an instance of each dataclass; `values` includes those that are `given` and not a recipe's."""
    values.setdefault("eval_strategy", "epoch")
    if not values.get("validation_file"):
        # A recipe evaluates if there is something to evaluate on.
        for name in {"eval_strategy", "load_best_model_at_end", "eval_on_start"} - given.keys():
            values.pop(name, None)
    # --save_steps and --eval_steps take precedence over the recipe's strategy.
    for name in ("save", "eval"):
        if f"{name}_steps" in given and f"{name}_strategy" in {"save_strategy", *values} - given.keys():
            values[f"{name}_strategy"] = "steps"
    objective = choose_objective(values.get("objective"))
    built = parser.build(values, [objective if each is ObjectiveConfig else each for each in dataclass_types])
    chosen = {name: value for options in built for name, value in vars(options).items() if value is not None}
    if ObjectiveConfig in dataclass_types:
        others = {field.name for other in OBJECTIVES.values() for field in fields(other)} - chosen.keys()
        if unused := [name for name in values if name in others - given.keys()]:
            logger.warning(f"not used by the objective {objective.name}: {', '.join(unused)}.")
    _refuse_unused(chosen, {name for name, value in values.items() if value is not None}, given)
    if {"per_device_train_batch_size", "total_train_batch_size"} <= given.keys():
        raise BadInput(
            "per_device_train_batch_size follows from total_train_batch_size; leave one of them out, and add"
            " --gradient_accumulation_steps for smaller batches."
        )
    return built


def _refuse_unused(chosen: Mapping[str, Any], named: set[str], given: Mapping[str, Any]) -> None:
    """Refuse options that only another value of another option has.

    Args:
        chosen: The values of all options.
        named: The options that are given or in the recipe.
        given: Those that are given. A recipe's may be for another objective or other positions.

    Raises:
        BadInput: there is one.
    """
    owners: dict[str, Mapping[str, Sequence[str]]] = {
        "objective": {name: [field.name for field in fields(each)] for name, each in OBJECTIVES.items()},
        "position_embedding_type": {name: each.settings for name, each in POSITION_EMBEDDINGS.items()},
        "lr_schedule": SCHEDULE_OPTIONS,
        "use_muon": {"False": ["optim", "optim_args"]},
    }
    for chooser, options_of in owners.items():
        value = str(chosen.get(chooser, getattr(PosGPTConfig, chooser, None)))
        for name in named if chooser in ("lr_schedule", "use_muon") else given:
            values = [each for each, names in options_of.items() if name in names]
            if values and value not in values:
                raise BadInput(
                    f"--{name} is an option of {chooser} {' and '.join(values)}, not of {value}; leave it out, or add"
                    f" --{chooser} {' or '.join(values)}."
                )


def choose_objective(name: str | None) -> type[ObjectiveConfig]:
    """Return the config class of an objective (default: the table's first)."""
    return OBJECTIVES[name or next(iter(OBJECTIVES))]
