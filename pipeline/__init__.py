"""The job: options, plan, graph, launch, finish; the command line."""

__version__ = "0.1.0"
