"""The program: `chatmill`, and `python -m pipeline`."""

import faulthandler
import sys

import pipeline


def main() -> int:
    """Run a command. A library that crashes leaves Python's stack on standard error. Returns the exit code."""
    faulthandler.enable()
    return pipeline.main()


if __name__ == "__main__":
    sys.exit(main())
