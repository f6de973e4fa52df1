"""What a library refuses, said in one line."""

from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub.errors import StrictDataclassError

from data_scripts.errors import BadInput
from data_scripts.options import shorten_error

# For `reraise_as_bad_input`, where transformers or torch refuse arguments.
ARGUMENTS = ("these arguments are not compatible", "change or remove one of them.", ValueError, TypeError, ImportError)


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
        # The error of a large file's upload names the file alone, that of a configuration its class; the cause says what is wrong.
        cause = error.__cause__ if isinstance(error, RuntimeError | StrictDataclassError) else None
        raise BadInput(f"{problem}: {shorten_error(cause or error).rstrip('.')}; {fix}") from None
