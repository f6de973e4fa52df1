"""Ask a PosGPT where people were born: `python evaluate_birthplace.py` is `posgpt evaluate`; see posgpt/evaluate.py."""

from functools import partial

from posgpt import cli

main = partial(cli.main, prefix=["evaluate"])

if __name__ == "__main__":
    main()
