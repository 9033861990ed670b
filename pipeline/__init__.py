"""The job: its options, plan and graph, how it is launched, and the command line."""

from transforms import __version__

__all__ = ["__version__"]
