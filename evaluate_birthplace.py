"""Ask a PosGPT where people were born: `python evaluate_birthplace.py` is `posgpt evaluate`; see posgpt/evaluate.py."""

import sys
from collections.abc import Sequence

from posgpt import cli


def main(argv: Sequence[str] | None = None) -> None:
    cli.main(["evaluate", *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    main()
