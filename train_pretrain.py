"""Pretrain a PosGPT on a corpus: `python train_pretrain.py` is `posgpt pretrain`; see posgpt/pretrain.py."""

from functools import partial

from posgpt import cli

main = partial(cli.main, prefix=["pretrain"])

if __name__ == "__main__":
    main()
