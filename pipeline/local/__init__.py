"""Local: the worker processes of a build on this machine."""
