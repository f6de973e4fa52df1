"""Finetune a PosGPT on questions, or train one on them from scratch: `python train_finetune.py` is `posgpt finetune`; see posgpt/finetune.py."""

from functools import partial

from posgpt import cli

main = partial(cli.main, prefix=["finetune"])

if __name__ == "__main__":
    main()
