"""The command line, run in this process."""

from __future__ import annotations

import os
from itertools import pairwise

from pipeline import main
from support.laws import broken_laws


def chatmill(*arguments: object) -> int:
    """Run a command in this process, as `chatmill ARGUMENT ..` does, and return its exit code.

    If it builds a dataset on this machine, its rows and its manifest obey the laws of tests/support/laws.
    """
    given = [*map(str, arguments)]
    code = main(given)
    outputs = [option.removeprefix("--output=") for option in given if option.startswith("--output=")]
    outputs += [value for name, value in pairwise(given) if name == "--output"]
    if code == 0 and outputs and os.path.exists(f"{outputs[-1]}/manifest.json"):
        assert broken_laws(outputs[-1]) == []
    return code
