"""Command-line options: each is one field of a dataclass, with its type, default, range and help.

    share: Annotated[float, Range(0, 1)] = option("How often.", default=0.3)

Parser, checks of ranges and choices, and `--help` all follow from the field.
"""

import copy
import dataclasses
import math
import sys
from argparse import Action, ArgumentDefaultsHelpFormatter, ArgumentError, ArgumentParser
from collections.abc import Iterable
from difflib import get_close_matches
from inspect import get_annotations
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


def find_range(dataclass_type: type, name: str) -> Range | None:
    """Return the range that is part of a field's type, None when any value will do."""
    return _find_range(get_type_hints(dataclass_type, include_extras=True)[name])


def _find_range(hint: Any) -> Range | None:
    if isinstance(hint, Range):
        return hint
    # `Annotated[int, Range(1)] | None` has it inside.
    return next(filter(None, map(_find_range, get_args(hint))), None)


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
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if value is None:
            continue
        choices, limits = find_choices(field), find_range(type(options), field.name)
        for each in value if isinstance(value, list) else [value]:
            if choices is not None and each not in choices:
                raise BadInput(f"{field.name} is {each!r}; choose {' or '.join(map(str, choices))}.")
            if limits is not None:
                limits.check(field.name, each)


class HelpFormatter(ArgumentDefaultsHelpFormatter):
    """Shows each option under one name in `--help`, with its default unless None or an empty text stands for none.

    An option such as `--no_ask_dates` has the description and the default of the one that it turns off: it says that instead.
    """

    def _get_help_string(self, action: Action) -> str | None:
        if action.const is False:
            return f"The same as --{action.dest} false."
        return action.help if action.default in (None, "") else super()._get_help_string(action)

    def _format_action_invocation(self, action: Action) -> str:
        # transformers adds a name with hyphens to every name with underscores.
        shown = copy.copy(action)
        shown.option_strings = [name for name in action.option_strings if "-" not in name.lstrip("-")]
        return super()._format_action_invocation(shown)


class OptionParser(HfArgumentParser):
    """transformers' parser of dataclasses, with one line instead of pages of usage before what is wrong.

    Abbreviated options are refused: they would be missed by code that looks for an option on the command line.
    """

    def __init__(self, dataclass_types: list[Any], **kwargs):
        super().__init__(dataclass_types, allow_abbrev=False, formatter_class=HelpFormatter, **kwargs)
        for action in self._actions:
            if action.type is string_to_bool and action.nargs is None:
                # `--use_cpu` alone turns it on, whatever its default is.
                action.nargs, action.const = "?", True
        # `--help` lists what has to be given first, and the options that several commands have last.
        own = {name for dataclass_type in dataclass_types for name in get_annotations(dataclass_type)}
        for group in self._action_groups:
            group._group_actions.sort(
                key=lambda action: (action.dest != "help", not action.required, action.dest not in own)
            )
        self._hints: dict[str, Any] = {}
        for dataclass_type in dataclass_types:
            self._hints |= get_type_hints(dataclass_type)
            for field in dataclasses.fields(dataclass_type):
                if limits := find_range(dataclass_type, field.name):
                    action = self._option_string_actions[f"--{field.name}"]
                    action.help = f"{(action.help or '').rstrip('.')}; {limits}."

    @staticmethod
    def _parse_dataclass_field(parser: ArgumentParser, field: dataclasses.Field) -> None:
        if field.metadata.get("positional"):
            nargs = "+" if get_origin(field.type) is list else None
            parser.add_argument(field.name, help=field.metadata["help"], nargs=nargs)
        else:
            HfArgumentParser._parse_dataclass_field(parser, field)

    def set_option(self, name: str, value: Any) -> None:
        """Set the default of an option to a value from a file; it is checked as if it were on the command line.

        Raises:
            BadInput: there is no such option, or its value is refused.
        """
        action = next((action for action in self._actions if action.dest == name), None)
        if action is None:
            names = [action.dest for action in self._actions]
            raise BadInput(f"{name!r} is not an option of this command; {_suggest(name, names)}")
        hint = self._hints.get(name)
        kinds = [get_origin(kind) or kind for kind in get_args(hint) or (hint,)]
        if value is None and type(None) not in kinds or value == [] and action.required:
            raise BadInput(f"{name} has no value; give one, or leave it out.")
        if action.nargs == "+" and value is not None:
            # The parser does not convert the values of a list.
            try:
                value = [
                    self._get_value(action, str(each)) for each in (value if isinstance(value, list) else [value])
                ]
            except ArgumentError as error:
                self.error(str(error))
        elif isinstance(value, dict | list) and type(value) not in kinds:
            raise BadInput(f"{name} is {str(value)[:60]}; give one value.")
        elif value is False and "no" in (action.choices or ()):
            # YAML's `no`.
            value = "no"
        elif not isinstance(value, dict | list | None):
            # The parser converts and checks defaults that are texts as it does what was typed.
            value = str(value)
        if "\0" in str(value):
            raise BadInput(f"{name} has a NUL character; remove it.")
        action.required = False
        self.set_defaults(**{name: value})

    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message}; {_SEE_HELP}")

    def parse(self, argv: list[str]) -> tuple:
        """Parse a command line into the parser's dataclasses and check their ranges and choices.

        Raises:
            BadInput: an option does not exist or its value is refused.
        """
        for argument in argv:
            if not argument.isprintable() and any("\ud800" <= character <= "\udfff" for character in argument):
                raise BadInput(
                    f"{argument!r} on the command line is not UTF-8; type it in a terminal that is set to UTF-8, or rename"
                    " the file."
                )
            # argparse would first miss the required option that was mistyped.
            name = argument.partition("=")[0]
            if name.startswith("--") and name != "--" and name not in self._option_string_actions:
                raise BadInput(f"there is no option {name}; {_suggest(name, self._option_string_actions)}")
        try:
            *parsed, unknown = self.parse_args_into_dataclasses(
                argv, return_remaining_strings=True, look_for_args_file=False
            )
        except BadInput:
            raise
        # argparse makes an empty list of `--option=--`, which transformers compares with numbers.
        except (ValueError, ImportError, TypeError) as error:
            raise BadInput(f"an option was refused: {shorten_error(error)}; change or remove it.") from None
        if unknown:
            raise BadInput(f"there is no option {' '.join(unknown)}; {_SEE_HELP}")
        for options in parsed:
            check_options(options)
        return tuple(parsed)


def _suggest(name: str, names: Iterable[str]) -> str:
    near = get_close_matches(name, names, n=1, cutoff=0.75)
    return f"did you mean {near[0]}?" if near else _SEE_HELP


def parse_options(dataclass_type: type, argv: list[str] | None = None) -> Any:
    """Parse a command line (default: this program's) into one dataclass; raises as `OptionParser.parse` does."""
    (options,) = OptionParser([dataclass_type]).parse(sys.argv[1:] if argv is None else argv)
    return options


def shorten_error(error: BaseException) -> str:
    """Return an exception's message on one line, at most 300 characters."""
    return " ".join(str(error).split())[:300]
