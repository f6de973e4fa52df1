"""Finetune a PosGPT on questions, or train one on them from scratch: `python train_finetune.py` is `posgpt finetune`; see posgpt/finetune.py."""

import sys
from collections.abc import Sequence

from posgpt import cli


def main(argv: Sequence[str] | None = None) -> None:
    cli.main(["finetune", *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    main()
