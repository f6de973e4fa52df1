"""`python -m studies course`, as its command was until version 0.4."""

import sys

from studies.sweep import main

if __name__ == "__main__":
    main(["course", *sys.argv[1:]])
