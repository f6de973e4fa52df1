"""`python -m posgpt COMMAND ...` is `posgpt COMMAND ...`."""

import os
import sys
from pathlib import Path

if sys.path[0] == os.getcwd() and Path("modeling_posgpt.py").is_file():
    # In a model's folder, which `python -m` looks into first, this file would stand for the package.
    sys.path.append(sys.path.pop(0))

from posgpt.cli import main

if __name__ == "__main__":
    main()
