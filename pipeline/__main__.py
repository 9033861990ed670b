"""python -m pipeline OPTIONS: build a dataset."""

import sys

from pipeline.cli import build

if __name__ == "__main__":
    sys.exit(build(sys.argv[1:]))
