"""The job: its options, plan and graph, how it is launched, and the command line."""

import os

from transforms.base.version import __version__

__all__ = ["__version__"]

# For this process and its workers, before pyarrow is imported. With its own allocator, which gives free memory back to
# the system again and again, it takes a seventh more to write Parquet, and more memory.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
