"""Keep what other code trained for a study, because what has changed since cannot matter to it.

    python -m studies.accept runs/positions/rotary_42

A study stops at a folder that was trained before the code changed: its figures may no longer be what the code gives. Whether
they are, only a person can tell: a comment or a position embedding that was added changes nothing, a fix of the objective may.
This command says that they are, for good, and trains and removes nothing. The JSON file beside the figures then has the hash
of the code that trained them.
"""

from dataclasses import dataclass
from pathlib import Path

from data_scripts.errors import exit_on_bad_input
from data_scripts.options import option, parse_options
from studies.cache import accept_code


@dataclass
class AcceptArguments:
    """What to keep."""

    folder: str = option("The folder of a single training, as the study's message names it.", positional=True)


@exit_on_bad_input()
def main() -> None:
    for path in accept_code(Path(parse_options(AcceptArguments).folder)):
        print(f"{path}: kept, whatever the code.")


if __name__ == "__main__":
    main()
