"""Command lines of the training commands, `[RECIPE] --option value ...`, and the same from Python.

A recipe is a YAML file with a section of options per command; what is given besides overrides it.
"""

import os
import shlex
import sys
from argparse import SUPPRESS
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from transformers.utils import logging

from data_scripts.errors import BadInput, prefix_bad_input
from data_scripts.files import load_yaml
from data_scripts.objective_config import ObjectiveConfig
from data_scripts.objectives import DEFAULT_OBJECTIVE, OBJECTIVES
from data_scripts.options import OptionParser
from modeling_posgpt import POSITION_EMBEDDINGS
from modeling_posgpt.composition import list_names

FOLDER = Path(str(files("posgpt"))) / "recipes"
DEFAULT_RECIPE = "course"
# A recipe's options that belong to its value of another option: dropped where another value is chosen.
_BELONGING = {"lr_scheduler_kwargs": "lr_scheduler_type", "total_train_batch_size": "per_device_train_batch_size"}
# Each says how long training is.
LENGTHS = ("max_steps", "num_train_epochs", "exposures", "minutes")
# The options that are given most often; `--help` lists them alone.
_COMMON = """help recipe section documents examples train_file questions_file validation_file vocabulary_file
model_name_or_path objective max_spans question_share hidden_size num_hidden_layers position_embedding_type output_dir
overwrite_output_dir resume_from_checkpoint num_train_epochs max_steps exposures minutes learning_rate
per_device_train_batch_size seed""".split()

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
    dropped = {name for name in inherited if _BELONGING.get(name) in replaced}
    if lengths := [name for name in LENGTHS if own.get(name) is not None]:
        # A number of epochs may stay, since one of steps holds in its place.
        dropped.update(LENGTHS[2:] if lengths == ["max_steps"] else LENGTHS)
    return {name: value for name, value in inherited.items() if name not in dropped} | dict(own)


def read_section(recipe: str | Path, section: str, **options: Any) -> dict[str, Any]:
    """Return the options of a section of a recipe, a file or a name, with others in their place; see `overlay`."""
    sections = read_recipe(find_recipe(str(recipe)))
    if section not in sections:
        names = ", ".join(map(str, sections)) or "none"
        having = ", ".join(name for name in list_recipes() if section in read_recipe(FOLDER / f"{name}.yaml"))
        raise BadInput(
            f"{recipe}: has no section {section!r} (only: {names}); choose a recipe that has one ({having}), or add it to yours."
        )
    return overlay(sections[section], options)


def parse_with_recipe(
    dataclass_types: Sequence[Any],
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
    """
    objectives = OBJECTIVES if ObjectiveConfig in dataclass_types else {}
    types: list[type] = []
    for each in dataclass_types:
        types += [each, *objectives.values()] if each is ObjectiveConfig else [each]
    for name, objective in objectives.items():
        objective._argument_group_name = f"options of the objective {name}"
    parser = OptionParser(types, usage="%(prog)s [RECIPE] --OPTION VALUE ...")
    described = f"A YAML file, or one of {', '.join(list_recipes())}."
    parser.add_argument("recipe", nargs="?", default=default, help=described)
    argv = sys.argv[1:] if argv is None else argv
    if options is None and {"-h", "--help"} & {*argv} and argv[-1] != "all":
        first = next((each for each in argv if each not in ("-h", "--help")), "-")
        shown = read_recipe(find_recipe(default if first.startswith("-") else first))
        shorten_help(parser, shown.get(section) or shown.get(f"{section}_from_scratch", {}))
    given = parser.read(argv) if options is None else parser.read_values(options)
    recipe = find_recipe(given.pop("recipe", default))
    sections = read_recipe(recipe)
    # (A preview is told the section.)
    if section == "finetune" and "section" not in given:
        finetuning = sections.get(section, {}) | given
        # The sections for pretrained models that come with PosGPT are much too short for a new one.
        is_new = "finetune_from_scratch" in sections or (recipe.parent == FOLDER and finetuning.get("vocabulary_file"))
        if is_new and not finetuning.get("model_name_or_path"):
            section = "finetune_from_scratch"
    own = read_section(recipe, section)
    with prefix_bad_input(f"{recipe}, section {section!r}"):
        values = {"eval_strategy": "epoch"} | parser.read_values(check_lengths(own))
    check_lengths(given)
    if given.get("total_train_batch_size") is not None and given.get("per_device_train_batch_size") is not None:
        raise BadInput("--total_train_batch_size sets --per_device_train_batch_size; leave out one of them.")
    # What is typed takes precedence over the recipe's strategy.
    values |= {
        f"{name}_strategy": "steps" for name in ("save", "eval", "logging") if given.get(f"{name}_steps") is not None
    }
    if not (values | given).get("validation_file"):
        wanted = ("eval_on_start", "load_best_model_at_end", "metric_for_best_model")
        if (
            given.get("eval_strategy", "no") != "no"
            or given.get("eval_steps") is not None
            or given.get("save_strategy") == "best"
            or any(given.get(name) for name in wanted)
        ):
            raise BadInput("there is nothing to evaluate on; add --validation_file, or leave evaluation out.")
        # A recipe evaluates if there is something to evaluate on.
        values |= dict.fromkeys(("eval_strategy", "load_best_model_at_end", "eval_on_start"))
    values = drop_unused(overlay(values, given), given, objectives)
    chosen: Any = OBJECTIVES[values.get("objective") or DEFAULT_OBJECTIVE]
    parser.dataclass_types = [chosen if each is ObjectiveConfig else each for each in dataclass_types]
    built = parser.build(values)
    if int(os.environ.get("RANK", 0)) == 0 and options is None:
        print(f"Recipe: {recipe}, section {section!r}; command line: {shlex.join(argv) or 'nothing more'}", flush=True)
    return built


def shorten_help(parser: OptionParser, values: Mapping[str, Any]) -> None:
    """Have `--help` list the common options alone, with a recipe's values for defaults."""
    for action in parser._actions:
        if action.dest not in _COMMON:
            action.help = SUPPRESS
        elif action.dest in values:
            action.help = str(action.help).partition(" (default: ")[0]
            action.default = values[action.dest]
    parser.epilog = "--help all lists the other options, too."


def check_lengths(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options, or raise BadInput if two of them say how long training is; `max_steps` holds before epochs."""
    lengths = [name for name in LENGTHS if options.get(name) is not None]
    if len(lengths) > 1 and lengths != ["max_steps", "num_train_epochs"]:
        raise BadInput(f"--{lengths[0]} and --{lengths[1]} both say how long training is; leave one of them out.")
    return options


def drop_unused(
    values: Mapping[str, Any], given: Mapping[str, Any], objectives: Mapping[str, type[ObjectiveConfig]]
) -> dict[str, Any]:
    """Return options without those that belong to values not chosen; refuse those `given`, and warn of a recipe's."""
    # What only some values of an option use, by value; the first one is the default.
    uses: dict[str, dict[str, Sequence[str]]] = {
        "position_embedding_type": {name: each.settings for name, each in POSITION_EMBEDDINGS.items()},
        "lr_schedule": {
            "steps": ("lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps"),
            "tokens": ("warmup_tokens", "final_tokens"),
        },
        "use_muon": {"False": ("optim", "optim_args")},
        "objective": {name: [field.name for field in fields(each)] for name, each in objectives.items()},
    }
    unused: list[str] = []
    for chooser, used in uses.items():
        # There may be a position embedding for each layer, or several in one.
        chosen = list_names(values.get(chooser) or next(iter(used), None))
        others = {name for names in used.values() for name in names}
        others = others.difference(*(used.get(each, ()) for each in chosen))
        for name in sorted(others & given.keys()):
            users = [value for value, names in used.items() if name in names]
            reason = f"--{name} is an option of {chooser} {' and '.join(users)}, not of {' and '.join(chosen)}"
            raise BadInput(f"{reason}; leave it out, or add --{chooser} {' or '.join(users)}.")
        # A recipe's settings of other positions stay: the configuration has them all.
        unused += [name for name in values if name in others and chooser != "position_embedding_type"]
    if unused:
        logger.warning(f"not used, because other options are chosen: {', '.join(unused)}.")
    return {name: value for name, value in values.items() if name not in unused}
