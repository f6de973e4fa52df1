"""Pretrain a PosGPT on a corpus: `python train_pretrain.py` is `posgpt pretrain`; see posgpt/pretrain.py."""

import sys
from collections.abc import Sequence

from posgpt import cli


def main(argv: Sequence[str] | None = None) -> None:
    cli.main(["pretrain", *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    main()
