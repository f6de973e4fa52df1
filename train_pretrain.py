"""Pretrain a PosGPT on a corpus: `python train_pretrain.py` is `posgpt pretrain`; see posgpt/pretrain.py."""

from posgpt.pretrain import main

if __name__ == "__main__":
    main()
