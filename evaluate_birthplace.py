"""Ask a PosGPT where people were born: `python evaluate_birthplace.py` is `posgpt evaluate`; see posgpt/evaluate.py."""

from posgpt.evaluate import main

if __name__ == "__main__":
    main()
