"""The job: its options, plan and graph, how it is launched, and the command line."""

import os
from collections.abc import Sequence

from transforms.base.version import __version__

__all__ = ["__version__", "main"]

# For this process and its workers, before pyarrow is imported. With its own allocator, which gives free memory back to
# the system again and again, it takes a seventh more to write Parquet, and more memory.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, as `chatmill ARGUMENT ..` does; None: with the arguments of this process.

    Returns:
        The exit code: 0, or 1 if the command failed, 2 if the user has to change something.
    """
    from pipeline.cli.program import main

    return main(arguments)
