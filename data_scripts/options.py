"""Command-line options: each is one field of a dataclass, with its type, default, range and help.

    share: Annotated[float, Range(0, 1)] = option("How often.", default=0.3)

Parser, checks of ranges and choices, and `--help` all follow from the field. What a file or Python says is checked as if it had
been typed.
"""

import dataclasses
import math
import re
import sys
from argparse import SUPPRESS, Action, ArgumentError, ArgumentParser, Namespace
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from inspect import get_annotations
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, get_args, get_origin, get_type_hints

from transformers import HfArgumentParser
from transformers.hf_argparser import string_to_bool

from data_scripts.errors import BadInput

_SEE_HELP = "--help lists the options."


def option(help: str, **settings: Any) -> Any:
    """Declare a dataclass field that is an option.

    Args:
        help: What `--help` says of it.
        settings: `default` or `default_factory`; `choices`, where the type does not list them; `positional`, if it is given
            by its place on the command line, without its name.
    """
    # argparse takes a percent sign for a place to fill in.
    metadata = {"help": help.replace("%", "%%")} | {
        name: settings.pop(name) for name in ("choices", "positional") if name in settings
    }
    return dataclasses.field(metadata=metadata, **settings)


class Range(NamedTuple):
    """The numbers that an option may be."""

    at_least: float
    at_most: float | None = None

    def __str__(self) -> str:
        if self.at_most is None:
            return f"at least {self.at_least:,}"
        return f"a number from {self.at_least:,} to {self.at_most:,}"

    def check(self, name: str, value: Any) -> None:
        """Check that the value of the option `name` is in the range.

        Raises:
            BadInput: it is not, or it is not a finite number.
        """
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise BadInput(f"{name} is {value!r}; choose {self}.")
        if math.isinf(value):
            raise BadInput(f"{name} is {value}; choose a finite number.")
        # NaN is in no range.
        if not self.at_least <= value <= (math.inf if self.at_most is None else self.at_most):
            raise BadInput(f"{name} is {value:,}; choose {self}.")


def find_range(hint: Any) -> Range | None:
    """Return the range that is part of a type, None when any value will do."""
    if isinstance(hint, Range):
        return hint
    # `Annotated[int, Range(1)] | None` has it inside.
    return next(filter(None, map(find_range, get_args(hint))), None)


def find_choices(field: dataclasses.Field) -> list | None:
    """Return the values that a field may have, None when it has no list of them."""
    if get_origin(field.type) is Literal:
        return list(get_args(field.type))
    return field.metadata.get("choices")


def check_options(options: Any) -> None:
    """Check that the fields of a dataclass instance are in their ranges and among their choices; None passes.

    Raises:
        BadInput: one is not.
    """
    hints = get_type_hints(type(options), include_extras=True)
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if value is None:
            continue
        choices, limits = find_choices(field), find_range(hints[field.name])
        for each in value if isinstance(value, list) else [value]:
            if choices is not None and each not in choices:
                raise BadInput(f"{field.name} is {each!r}; choose {' or '.join(map(str, choices))}.")
            if limits is not None:
                limits.check(field.name, each)


class OptionParser(HfArgumentParser):
    """transformers' parser of dataclasses, with one line instead of pages of usage before what is wrong.

    It reads what is given and then makes the dataclasses of it, whose defaults hold. An option of several dataclasses is one.
    """

    def __init__(self, dataclass_types: Sequence[Any], **kwargs: Any):
        if Path(sys.argv[0]).stem == "posgpt":
            kwargs["prog"] = " ".join(["posgpt", *sys.argv[1:2]])
        super().__init__(dataclass_types, allow_abbrev=False, add_help=False, **kwargs)
        # Shown by `build`, with a recipe's values as the defaults.
        self.add_argument("-h", "--help", action="store_true", help="Show this help and exit.")
        self.usage = self.usage or self.format_usage().removeprefix("usage: ")
        self._hints: dict[str, Any] = {}
        for each in dataclass_types:
            for name, hint in get_type_hints(each, include_extras=True).items():
                if name not in self._hints and (limits := find_range(hint)):
                    action = self._option_string_actions[f"--{name}"]
                    action.help = f"{(action.help or '').rstrip('.')}; {limits}."
            self._hints |= get_type_hints(each)
        # `--help` lists what has to be given first, and the options that several commands have last.
        own = {name for each in dataclass_types for name in get_annotations(each)}
        for group in self._action_groups:
            group._group_actions.sort(key=lambda each: (not each.required, each.dest not in {"help", *own}))
        self._required = {
            each.dest: (each.option_strings or [each.dest])[0] for each in self._actions if each.required
        }
        for action in self._actions:
            # It may come from a recipe.
            action.required = False
            # `--help` shows each option under one name, with its default unless None or an empty text stands for none.
            action.option_strings = [name for name in action.option_strings if "-" not in name[2:]]
            if action.const is False:
                action.help = f"The same as --{action.dest} false."
            if action.const is False or action.default in (None, "") or action.dest == "help":
                action.default = SUPPRESS
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

    def _check_value(self, action: Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise BadInput(f"{action.dest} is {value!r}; choose {' or '.join(map(str, action.choices))}.")

    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message}; {_SEE_HELP}")

    def read(self, argv: Sequence[str]) -> dict[str, Any]:
        """Return the options that a command line gives, by name.

        Raises:
            BadInput: an option does not exist, or its value is refused.
        """
        if bad := next((argument for argument in argv if re.search("[\ud800-\udfff]", argument)), None):
            raise BadInput(f"{bad!r} is not UTF-8; type it in a terminal that is set to UTF-8, or rename the file.")
        nothing = object()
        try:
            given, unknown = self.parse_known_args(argv, Namespace(**{each.dest: nothing for each in self._actions}))
        # argparse makes a list without a value of `--option=--`.
        except (ValueError, TypeError) as error:
            raise error if isinstance(error, BadInput) else BadInput(f"an option has no value; {_SEE_HELP}") from None
        if unknown:
            name = unknown[0].partition("=")[0]
            raise BadInput(f"there is no option {name}; {_suggest(name, self._option_string_actions)}")
        return {name: value for name, value in vars(given).items() if value is not nothing}

    def read_value(self, name: str, value: Any) -> Any:
        """Return an option's value from a file or from Python, converted and checked as if it had been typed.

        Raises:
            BadInput: there is no such option, or its value is refused. None is refused unless the option can do without.
        """
        if (action := self._option_string_actions.get(f"--{name}")) is None:
            names = [action.dest for action in self._actions]
            raise BadInput(f"{name!r} is not an option of this command; {_suggest(str(name), names)}")
        hint, several = self._hints[action.dest], action.nargs == "+"
        kinds = [get_origin(kind) or kind for kind in get_args(hint) or (hint,)]
        if (value is None and type(None) not in kinds) or (value == [] and name in self._required):
            raise BadInput(f"{name} has no value; give one, or leave it out.")
        if value is None or (isinstance(value, dict | list) and type(value) in kinds and not several):
            return value
        if isinstance(value, dict) or (isinstance(value, list) and not several):
            raise BadInput(f"{name} is {str(value)[:60]}; give one value.")
        if value is False and "no" in (action.choices or ()):
            # YAML's `no`.
            value = "no"
        try:
            return self._get_values(action, list(map(str, value if isinstance(value, list) else [value])))
        except ArgumentError as error:
            self.error(str(error))

    def read_values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of `read_value` by name."""
        return {name: self.read_value(name, value) for name, value in values.items()}

    def build(self, values: Mapping[str, Any], dataclass_types: Sequence[type] = ()) -> tuple:
        """Return an instance of each dataclass (default: the parser's) with the values of options; they are checked.

        Raises:
            BadInput: one is refused, or missing.
            SystemExit: `--help` is among them, and shown.
        """
        if values.get("help"):
            for action in self._actions:
                if action.dest in values.keys() - {"help"} and action.const is not False:
                    action.default = values[action.dest]
            self.print_help()
            sys.exit(0)
        if missing := [shown for name, shown in self._required.items() if values.get(name) in (None, [])]:
            self.error(f"the following arguments are required: {', '.join(missing)}")
        built = []
        for dataclass_type in dataclass_types or self.dataclass_types:
            names = [field.name for field in dataclasses.fields(dataclass_type) if field.init and field.name in values]
            try:
                built.append(dataclass_type(**{name: values[name] for name in names}))
            except (ValueError, ImportError, TypeError) as error:
                reason = f"an option was refused: {shorten_error(error)}; change or remove it."
                raise error if isinstance(error, BadInput) else BadInput(reason) from None
            check_options(built[-1])
        return tuple(built)


def _suggest(name: str, names: Iterable[str]) -> str:
    near = get_close_matches(name, names, n=1, cutoff=0.75)
    return f"did you mean {near[0]}?" if near else _SEE_HELP


def parse_options(
    dataclass_types: type | Sequence[type], argv: Sequence[str] | None = None, options: Mapping[str, Any] | None = None
) -> Any:
    """Parse a command line (default: this program's), or options from Python, into one dataclass, or several.

    Raises as `OptionParser` does.
    """
    parser = OptionParser([dataclass_types] if isinstance(dataclass_types, type) else dataclass_types)
    built = parser.build(
        parser.read_values(options) if options else parser.read(sys.argv[1:] if argv is None else argv)
    )
    return built[0] if isinstance(dataclass_types, type) else built


def shorten_error(error: BaseException) -> str:
    """Return an exception's message on one line, at most 300 characters."""
    return " ".join(str(error).split())[:300]
