"""Finetune a PosGPT on questions, or train one on them from scratch: `python train_finetune.py` is `posgpt finetune`; see posgpt/finetune.py."""

from posgpt.finetune import main

if __name__ == "__main__":
    main()
