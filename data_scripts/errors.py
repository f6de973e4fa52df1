"""The one exception for input that cannot be used, and how a command ends on it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


class BadInput(ValueError):
    """The user's input cannot be used. The message is one line: file, line number, what is wrong and the fix."""


@contextmanager
def exit_on_bad_input() -> Iterator[None]:
    """End the program with the message alone on standard error and exit status 1 when the input is bad.

    A context manager, and a decorator for every command's `main`.
    """
    try:
        yield
    except BadInput as error:
        sys.exit(f"error: {error}")
