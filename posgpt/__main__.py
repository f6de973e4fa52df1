"""`python -m posgpt COMMAND ...` is `posgpt COMMAND ...`."""

from posgpt.cli import main

if __name__ == "__main__":
    main()
