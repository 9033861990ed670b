"""The job: options, plan, graph, launch; the command line."""

from transforms import __version__

__all__ = ["__version__"]
