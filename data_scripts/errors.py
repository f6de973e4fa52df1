"""The one exception for input that cannot be used, what a library refuses as such, and how a command ends on it."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from io import TextIOWrapper


class BadInput(ValueError):
    """The user's input cannot be used. The message is one line: file, line number, what is wrong and the fix."""


# For `reraise_as_bad_input`, where transformers or torch refuse options.
REFUSED_OPTIONS = ("these options cannot be used", "change or remove one of them.", ValueError, TypeError, ImportError)


def shorten_error(error: BaseException) -> str:
    """Return an exception's message on one line, at most 300 characters; its kind if it has none."""
    return " ".join(str(error).split())[:300] or type(error).__name__


@contextmanager
def reraise_as_bad_input(problem: str, fix: str, *kinds: type[BaseException]) -> Iterator[None]:
    """Turn exceptions of these kinds into one line: the problem, what the library says, the fix.

    A BadInput passes as it is, unless it is among them.
    """
    try:
        yield
    except kinds as error:
        if isinstance(error, BadInput) and BadInput not in kinds:
            raise
        # Of a configuration or a large file's upload, the cause alone says why. The system's errors say it themselves.
        reason = error if isinstance(error, OSError) else error.__cause__ or error
        raise BadInput(f"{problem}: {shorten_error(reason).rstrip('.')}; {fix}") from None


@contextmanager
def prefix_bad_input(where: str) -> Iterator[None]:
    """Say in messages what they are about, such as a section of a recipe or a row of a study."""
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None


def check_installed(extra: str, *modules: str) -> None:
    """Check that the libraries of one of PosGPT's optional extras are installed."""
    for module in modules:
        if find_spec(module) is None:
            raise BadInput(f"this needs {module}, which is not installed: pip install 'posgpt[{extra}]'.")


@contextmanager
def exit_on_termination() -> Iterator[None]:
    """Have a SIGTERM raise SystemExit: what ends processes on an exception ends those that were started here."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def exit_on_bad_input() -> Iterator[None]:
    """End the program with one line on standard error and exit status 1 when the input is bad or the system refuses a file.

    A context manager, and a decorator of `posgpt.cli.main`, through which every command is called.
    """
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Windows reads and writes files and pipes in a code page, in which `⁇` and most names cannot be written.
            encoding = "utf-8" if sys.platform == "win32" and not stream.isatty() else None
            # Characters that cannot be encoded, or bytes decoded, become escapes; file names may contain some.
            stream.reconfigure(encoding=encoding, errors="backslashreplace")
    try:
        yield
    except BadInput as error:
        # A file's name may hold line breaks.
        sys.exit(f"error: {' '.join(str(error).splitlines())}")
    except KeyboardInterrupt:
        sys.exit("error: interrupted.")
    except BrokenPipeError:
        # Whoever read the output, such as `head`, has seen enough. Python would complain when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        # The system's refusals are the user's to settle: a file without permission, a name that is too long, a full disk.
        if error.errno is None:
            raise
        # Writing, unlike opening, does not say which file it was.
        file = f"{error.filename}: " if error.filename else ""
        sys.exit(f"error: {file}{error.strerror}; give another path, or fix this.")
