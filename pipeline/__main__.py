"""python -m pipeline: the same program as the console command `chatmill`."""

import sys

from pipeline.cli import main

if __name__ == "__main__":
    sys.exit(main())
