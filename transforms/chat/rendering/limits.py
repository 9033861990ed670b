"""Limits of what a chat template may do while it renders: it is a program, and often one of a stranger.

A rendering that takes too long, or prints too much, costs its record. How much memory there is depends on the machine,
so that no record is rejected for it: a template that takes more than `limit_memory` allows ends the run.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from typing import Any

from transforms.base.errors import RecordError
from transforms.inputs.deadline import OutOfTime, call_within

# The templates of models have at most 20 KB. Jinja takes a second for each MB.
MAX_TEMPLATE_CHARACTERS = 1 << 20
# Of the processor, for one rendering.
_MAX_SECONDS = 10
# The bytes that a process may always have, also on a small machine.
_LEAST_MEMORY = 4 << 30


class TemplateLimit(RecordError):
    """A template takes longer, or prints more, than it may."""


class OutOfMemory(Exception):
    """A template takes more memory than its process may have."""

    def __init__(self) -> None:
        super().__init__("the chat template takes more memory than a process may have here. Give another template.")


def limited(render: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that renders a template once, or compiles one.

    Raises:
        TemplateLimit: if it takes too long.
        OutOfMemory: if it takes too much memory.

    Raises whatever the function raises, too.
    """
    try:
        return call_within(_MAX_SECONDS, render, *arguments, of_processor=True)
    except OutOfTime:
        found = f"the chat template takes more than {_MAX_SECONDS} s of the processor"
        raise TemplateLimit("template_limit", found) from None
    except MemoryError:
        raise OutOfMemory from None


def limit_memory() -> None:
    """Let this process, and those that it starts, have half of the machine's memory, unless it has a limit already."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if soft == resource.RLIM_INFINITY:
        half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        resource.setrlimit(resource.RLIMIT_DATA, (max(half, _LEAST_MEMORY), hard))
