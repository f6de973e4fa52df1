"""`python -m studies few_questions`, as its command was until version 0.4."""

import sys

from studies.sweep import main

if __name__ == "__main__":
    main(["few_questions", *sys.argv[1:]])
