"""Command-line options: each is one field of a dataclass, with its type, default, range and help.

    share: Annotated[float, Range(0, 1)] = option("How often.", default=0.3)

Parser, checks and `--help` follow from the field. What a file or Python says is read as if it had been typed.
"""

import dataclasses
import math
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn, get_args, get_origin, get_type_hints

from transformers import HfArgumentParser
from transformers.hf_argparser import string_to_bool

from data_scripts.errors import REFUSED_OPTIONS, BadInput, reraise_as_bad_input


def option(help: str, **settings: Any) -> Any:
    """Declare a dataclass field that is an option.

    Args:
        settings: `default` or `default_factory`; `choices`, where the type does not list them; `positional`, if it is given
            by its place on the command line, without its name.
    """
    metadata = {name: settings.pop(name) for name in ("choices", "positional") if name in settings}
    # argparse takes a percent sign for a place to fill in.
    return dataclasses.field(metadata=metadata | {"help": help.replace("%", "%%")}, **settings)


def list_given(arguments: Any, names: Iterable[str]) -> list[str]:
    """Return which of these options are not at their default."""
    defaults = {each.name: each.default for each in dataclasses.fields(arguments)}
    return [name for name in names if getattr(arguments, name) != defaults[name]]


class Range(NamedTuple):
    """The numbers that an option may be."""

    at_least: float
    at_most: float = math.inf

    def __str__(self) -> str:
        if self.at_most == math.inf:
            return f"at least {self.at_least:,}"
        return f"a number from {self.at_least:,} to {self.at_most:,}"

    def check(self, name: str, value: float) -> None:
        """Raise BadInput if the option `name` is not in the range, or not finite. NaN is in no range."""
        if not self.at_least <= value <= self.at_most or value == math.inf:
            raise BadInput(f"{name} is {value:,}; choose {self}.")


def list_ranges(dataclass_type: Any) -> dict[str, Range]:
    """Return the ranges of a dataclass's fields by name."""
    hints = get_type_hints(dataclass_type, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if get_origin(hint) is Annotated}


def _is_whole(hint: Any) -> bool:
    return hint is int or any(map(_is_whole, get_args(hint)))


def check_options(options: Any) -> None:
    """Raise BadInput if a field of a dataclass instance is no whole number or no boolean where it has to be, not in its range or not among
    its `choices`; None passes.
    """
    ranges, hints = list_ranges(type(options)), get_type_hints(type(options))
    for field in dataclasses.fields(options):
        value, choices = getattr(options, field.name), field.metadata.get("choices")
        if hints[field.name] in (str, str | None) and not isinstance(value, str | PathLike | None):
            raise BadInput(f"{field.name} is {str(value)[:60]!r}; choose a text.")
        for each in value if isinstance(value, list) else [] if value is None else [value]:
            if _is_whole(hints[field.name]) and not isinstance(each, int):
                raise BadInput(f"{field.name} is {each!r}; choose a whole number.")
            if hints[field.name] is bool and not isinstance(each, bool):
                raise BadInput(f"{field.name} is {each!r}; choose true or false.")
            if field.name in ranges:
                ranges[field.name].check(field.name, each)
            if choices and each not in choices:
                raise BadInput(f"{field.name} is {each!r}; choose {' or '.join(map(str, choices))}.")


class OptionParser(HfArgumentParser):
    """transformers' parser of dataclasses, with one line instead of pages of usage before what is wrong.

    It reads what is given and then makes the dataclasses of it, whose defaults hold. An option of several dataclasses is one.
    """

    def __init__(self, dataclass_types: Sequence[Any], **kwargs: Any):
        if Path(sys.argv[0]).stem == "posgpt":
            kwargs["prog"] = " ".join(["posgpt", *sys.argv[1:2]])
        described = (sys.modules[dataclass_types[0].__module__].__doc__ or "").partition("\n\n")[0]
        super().__init__(dataclass_types, allow_abbrev=False, description=described, **kwargs)
        ranges = {name: limits for each in dataclass_types for name, limits in list_ranges(each).items()}
        self._required = {each.dest: each.option_strings or [each.dest] for each in self._actions if each.required}
        for action in self._actions:
            notes = [str(ranges[action.dest])] if action.dest in ranges else []
            notes += ["required"] if action.required else []
            if len(choices := [*(action.choices or ())]) > 7:
                # Usage would have them twice.
                notes.append(f"one of {', '.join(map(repr, choices))}")
                action.metavar = action.dest.upper()
            # `--no_keep_names` is read, but `--keep_names false` says it, too.
            action.help = SUPPRESS if action.const is False else "; ".join([(action.help or "").rstrip("."), *notes])
            # `--help` shows each option under one name, and no default that is none.
            action.option_strings = action.option_strings[:1]
            if action.default in (None, ""):
                action.default = SUPPRESS
            # It may come from a recipe.
            action.required = False
            if action.type is string_to_bool and action.nargs is None:
                # `--use_cpu` alone turns it on, whatever its default is.
                action.nargs, action.const = "?", True

    @staticmethod
    def _parse_dataclass_field(parser: ArgumentParser, field: dataclasses.Field) -> None:
        if field.metadata.get("positional"):
            nargs = "+" if get_origin(field.type) is list else None
            parser.add_argument(field.name, help=field.metadata["help"], nargs=nargs)
        elif f"--{field.name}" not in parser._option_string_actions:
            HfArgumentParser._parse_dataclass_field(parser, field)

    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message}; --help lists the options.")

    def read(self, argv: Sequence[str] | None) -> dict[str, Any]:
        """Return the options that a command line (default: this program's) gives, by name."""
        nothing = object()
        given, unknown = self.parse_known_args(argv, Namespace(**{each.dest: nothing for each in self._actions}))
        if unknown:
            name = unknown[0].partition("=")[0]
            near = get_close_matches(name, self._option_string_actions, n=1, cutoff=0.75)
            texts = [key for key, each in self._option_string_actions.items() if (each.nargs, each.type) == ("+", str)]
            if " " in name and len(texts) == 1:
                # A question, say, without the option that takes questions.
                near = [f"{texts[0]} {name!r}"]
            self.error(f"unknown option {name}" + (f"; did you mean {near[0]}?" if near else ""))
        return {name: value for name, value in vars(given).items() if value is not nothing}

    def read_values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return options from a file or from Python, read as `read` does. None and an empty list unset an option."""
        argv, unread = [], {}
        for name, value in values.items():
            action = self._option_string_actions.get(f"--{name}")
            value = [*value] if isinstance(value, tuple) else value
            is_list = isinstance(value, list) and value != []
            # Texts such as `-M-` would be options.
            is_unread = is_list and action and action.type is str and any(str(each).startswith("-") for each in value)
            if action and action.nargs == "+" and is_list and not is_unread:
                argv += [f"--{name}", *map(str, value)]
            # A dictionary or a list would be JSON on a command line.
            elif action and (value in (None, []) or (isinstance(value, dict | list) and action.type is str)):
                unread[action.dest] = value
            else:
                # YAML reads `no` as false.
                argv.append(f"--{name}={'no' if value is False else value}")
        return self.read(argv) | unread

    def build(self, values: Mapping[str, Any]) -> tuple:
        """Return an instance of each of `dataclass_types` with the values of options; they are checked."""
        values = {name: value for name, value in values.items() if value not in (None, [])}
        if empty := [name for name, value in values.items() if value == ""]:
            # A shell's variable that is not set, say: as a folder, it would be the current one.
            raise BadInput(f"--{empty[0]} is empty; give a value, or leave it out.")
        if missing := [names[0] for name, names in self._required.items() if name not in values]:
            self.error(f"the following arguments are required: {', '.join(missing)}")
        with reraise_as_bad_input(*REFUSED_OPTIONS):
            built = self.parse_dict(values, allow_extra_keys=True)
        for options in built:
            check_options(options)
        return built


def parse_options(dataclass_type: type, argv: Sequence[str] | None = None, **options: Any) -> Any:
    """Parse a command line (default: this program's, if there are no options), and options from Python, into a dataclass.

    Raises as `OptionParser` does.
    """
    parser = OptionParser([dataclass_type])
    given = {} if argv is None and options else parser.read(argv)
    return parser.build(given | parser.read_values(options))[0]
