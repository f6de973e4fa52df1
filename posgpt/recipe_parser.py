"""Command lines of the training commands: `[RECIPE] --option value ...`.

A recipe is a YAML file with a section of options per command; the command line overrides it.
"""

import dataclasses
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from transformers.utils import logging

from data_scripts.errors import BadInput
from data_scripts.files import load_yaml
from data_scripts.objective_config import ObjectiveConfig
from data_scripts.objectives import OBJECTIVES
from data_scripts.options import OptionParser
from posgpt.training.architecture import ArchitectureArguments, refuse_unused_architecture
from posgpt.training.arguments import (
    SCHEDULE_OPTIONS,
    PosGPTTrainingArguments,
    check_training_arguments,
    refuse_other_schedule,
    refuse_unused_optimizer,
)

FOLDER = Path(str(files("posgpt"))) / "recipes"
DEFAULT_RECIPE = "course"
# The second option is meant for the section's value of the first one, and is dropped where another value is chosen.
_DEPENDENT_OPTIONS = {
    "lr_scheduler_type": "lr_scheduler_kwargs",
    "per_device_train_batch_size": "total_train_batch_size",
}

logger = logging.get_logger(__name__)


def list_recipes() -> list[str]:
    """Return the names of the recipes that come with PosGPT."""
    return sorted(file.stem for file in FOLDER.glob("*.yaml"))


def find_recipe(name: str) -> Path:
    """Return the file of a recipe that is named by file or, if it comes with PosGPT, by its bare name.

    Raises:
        BadInput: there is none.
    """
    # `recipes/windows.yaml` names the one that comes with PosGPT from any folder.
    for file in (Path(name), FOLDER / f"{name}.yaml", FOLDER.parent / name):
        if file.is_file():
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
    if not isinstance(base, str):
        raise BadInput(f"{recipe}: its base is {repr(base)[:60]}; give the name of another recipe.")
    beside = recipe.parent / base
    try:
        based_on = beside if beside.is_file() else find_recipe(base)
    except BadInput as error:
        raise BadInput(f"{recipe}: its base {error}") from None
    except OSError as error:
        raise BadInput(f"{recipe}: its base {base[:60]!r}: {error.strerror}; name another recipe.") from None
    if based_on.resolve() in [file.resolve() for file in (recipe, *derived)]:
        raise BadInput(f"{recipe}: its base {base} is based on itself; name another recipe.")
    inherited = read_recipe(based_on, (recipe, *derived))
    return {name: lay_over(inherited.get(name, {}), sections.get(name, {})) for name in inherited | sections}


def lay_over(inherited: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return a section's options with others in their place, without those that belong to a value that was replaced."""
    left_over = list_left_over(inherited, own)
    return {name: value for name, value in inherited.items() if name not in left_over} | own


def read_settings(recipe: str, section: str, **options: Any) -> dict[str, Any]:
    """Return the options of a section of a recipe, a file or a name, with others in their place (see `lay_over`).

    Raises:
        BadInput: there is no such recipe, or it has no such section.
    """
    return lay_over(read_section(find_recipe(recipe), section), options)


def list_left_over(values: dict[str, Any], chosen: dict[str, Any]) -> set[str]:
    """Return which of a section's options belong to a value that another one is chosen for.

    Args:
        values: The section's options.
        chosen: What is chosen instead, by option.
    """
    return {
        other
        for name, other in _DEPENDENT_OPTIONS.items()
        if name in chosen and str(chosen[name]) != str(values.get(name))
    } | _list_of_other_schedule(values, chosen)


def _list_of_other_schedule(values: dict[str, Any], chosen: dict[str, Any]) -> set[str]:
    schedule = values.get("lr_schedule", PosGPTTrainingArguments.lr_schedule)
    return set(SCHEDULE_OPTIONS.get(schedule, ())) if chosen.get("lr_schedule", schedule) != schedule else set()


def read_section(recipe: Path, section: str) -> dict[str, Any]:
    """Return a recipe's options for one command.

    Raises:
        BadInput: the file cannot be read or has no such section.
    """
    sections = read_recipe(recipe)
    values = sections.get(section)
    if values is None:
        raise BadInput(
            f"{recipe}: has no section {section!r} with options (only: {', '.join(map(str, sections))[:200] or 'none'}); add one,"
            " or a `base` that has it."
        )
    return values


def read_given(argv: list[str]) -> dict[str, str]:
    """Return the options on a command line before it is parsed, each with its first value; empty for a flag."""
    given = {}
    for argument, following in pairwise([*argv, "--"]):
        if argument.startswith("--"):
            name, _, value = argument.removeprefix("--").partition("=")
            given[name.replace("-", "_")] = value or ("" if following.startswith("--") else following)
    return given


def split_recipe(argv: list[str] | None, default: str = DEFAULT_RECIPE) -> tuple[Path, list[str]]:
    """Split `[RECIPE] --option value ...` (default: this program's command line) into the recipe's file and the rest.

    Args:
        default: The recipe if none is named.

    Raises:
        BadInput: see `find_recipe`.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    named = bool(argv) and not argv[0].startswith("-")
    return find_recipe(argv.pop(0) if named else default), argv


def parse_with_recipe(
    dataclass_types: list[type], section: str, argv: list[str] | None = None, default: str = DEFAULT_RECIPE
) -> tuple:
    """Read `[RECIPE] --option value ...` into dataclasses; the command line overrides the recipe.

    Args:
        dataclass_types: What to fill; TrainingArguments last. `ObjectiveConfig` stands for that of the chosen `--objective`.
        section: The recipe's section for this command.
        argv: The command line without the program (default: this program's).
        default: The recipe if none is named.

    Returns:
        An instance of each dataclass.

    Raises:
        BadInput: the recipe cannot be read, has no such section or names an option that does not exist; an option
            belongs to another objective, another schedule of the learning rate or another optimizer; or a value is refused.
    """
    recipe, argv = split_recipe(argv, default)
    values = read_section(recipe, section)
    try:
        parsed = _parse_over(values, dataclass_types, argv)
    except BadInput as error:
        with suppress(BadInput):
            _parse_over({}, dataclass_types, argv)
            # The command line alone would do.
            error = BadInput(f"{recipe}, section {section!r}: {error}")
        raise error from None
    if int(os.environ.get("RANK", 0)) == 0:
        print(f"Recipe: {recipe}, section {section!r}; command line: {' '.join(argv) or 'nothing more'}", flush=True)
        for objective in (options for options in parsed if isinstance(options, ObjectiveConfig)):
            foreign = list_foreign_options(type(objective))
            if unused := [name for name in values if name in foreign]:
                logger.warning(f"{recipe}: not used by the objective {objective.name}: {', '.join(unused)}.")
    return parsed


def _parse_over(values: dict[str, Any], dataclass_types: list[type], argv: list[str]) -> tuple:
    """Do what `parse_with_recipe` does, with `values` for the recipe's section."""
    given = read_given(argv)
    foreign: dict[str, list[str]] = {}
    if ObjectiveConfig in dataclass_types:
        objective = choose_objective(given.get("objective") or values.get("objective"))
        dataclass_types = [objective if each is ObjectiveConfig else each for each in dataclass_types]
        foreign = list_foreign_options(objective)
        refuse_foreign_options(objective, foreign, given)
    usage = "%(prog)s [RECIPE] --OPTION VALUE ..."
    parser = OptionParser(dataclass_types, usage=usage, epilog=_describe_other_objectives(foreign))
    decisive = given.keys() & {*_DEPENDENT_OPTIONS, "lr_schedule"}
    left_over = list_left_over(values, {name: given[name] for name in decisive})
    if given.get("validation_file") or values.get("validation_file"):
        parser.set_defaults(eval_strategy="epoch")
    else:
        # A recipe evaluates if there is something to evaluate on.
        left_over |= {"eval_strategy", "load_best_model_at_end", "eval_on_start"}
    # --save_steps and --eval_steps take precedence over the recipe's strategy.
    for name in ("save", "eval"):
        if f"{name}_steps" in given and f"{name}_strategy" not in given and f"{name}_strategy" not in left_over:
            parser.set_defaults(**{f"{name}_strategy": "steps"})
            left_over |= {f"{name}_strategy"}
    for name, value in values.items():
        if name not in foreign.keys() | left_over:
            parser.set_option(name, value)
    parsed = parser.parse(argv)
    check_training_arguments(parsed[-1])
    if {"per_device_train_batch_size", "total_train_batch_size"} <= given.keys():
        raise BadInput(
            "per_device_train_batch_size follows from total_train_batch_size; leave one of them out, and add"
            " --gradient_accumulation_steps for smaller batches."
        )
    chosen = given.keys() | {name for name, value in values.items() if value is not None}
    refuse_unused_optimizer(parsed[-1], chosen)
    refuse_other_schedule(parsed[-1], chosen - (left_over - given.keys()))
    for options in parsed:
        if isinstance(options, ArchitectureArguments):
            refuse_unused_architecture(options, set(given))
    return parsed


def choose_objective(name: str | None) -> type[ObjectiveConfig]:
    """Return the config class of the objective called `name` (default: the table's first).

    Raises:
        BadInput: there is none of this name.
    """
    if name is None:
        return next(iter(OBJECTIVES.values()))
    if str(name) not in OBJECTIVES:
        raise BadInput(f"objective is {name!r}; choose {' or '.join(OBJECTIVES)}.")
    return OBJECTIVES[name]


def list_foreign_options(objective: type[ObjectiveConfig]) -> dict[str, list[str]]:
    """Return the options that only other objectives have, each with these objectives' names."""
    own = {field.name for field in dataclasses.fields(objective)}
    foreign: dict[str, list[str]] = {}
    for other in OBJECTIVES.values():
        for field in dataclasses.fields(other):
            if field.name not in own:
                foreign.setdefault(field.name, []).append(other.name)
    return foreign


def refuse_foreign_options(
    objective: type[ObjectiveConfig], foreign: dict[str, list[str]], given: dict[str, str]
) -> None:
    """Refuse options that only other objectives have.

    Raises:
        BadInput: one of them is on the command line.
    """
    for name, others in foreign.items():
        if given.keys() & {name, f"no_{name}"}:
            raise BadInput(
                f"--{name} is an option of the objective {' and '.join(others)}, not of {objective.name}; leave it out or"
                f" choose --objective {' or '.join(others)}."
            )


def _describe_other_objectives(foreign: dict[str, list[str]]) -> str | None:
    parts = [
        f"--objective {other} also has {', '.join(f'--{name}' for name in foreign if other in foreign[name])}"
        for other in dict.fromkeys(chain.from_iterable(foreign.values()))
    ]
    return f"{'; '.join(parts)}: add it to --help to see them." if parts else None
