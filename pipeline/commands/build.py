"""chatmill build: builds a dataset."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.cli.console import error_text, show_phase
from pipeline.cli.options import parse_options
from transforms.base.errors import Unavailable, UserError

SUMMARY = "[RECIPE] OPTIONS", "build a dataset"


def run(arguments: Sequence[str]) -> int:
    """Build a dataset."""
    try:
        options, beam_flags = parse_options(arguments)
        show_phase(f"building {options.output}")
        from pipeline.recipe import read_sources

        sources = read_sources(options)
    except (UserError, Unavailable) as error:
        if any(word.partition("=")[0] == "--json" for word in arguments):
            from pipeline.run import print_result

            print_result({"status": "failed", "error": error_text(error)})
        raise
    from pipeline.job import Request
    from pipeline.run import run as run_request

    run_request(Request(options, sources, beam_flags))
    return 0
