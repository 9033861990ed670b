"""chatmill build: builds a dataset."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.cli.console import error_text, show_phase
from pipeline.cli.options import find_summary_json, parse_options
from transforms.base.errors import Unavailable, UserError


def run(arguments: Sequence[str]) -> int:
    """Build a dataset.

    Args:
        arguments: what follows the command.

    Returns:
        0.

    Raises:
        UserError: if an option is wrong, or what it refers to.
        Unavailable: if a store, a hub or a cluster does not answer.
    """
    url = find_summary_json(arguments)
    try:
        options, beam_flags = parse_options(arguments)
        url = options.summary_json
        show_phase(f"building {options.output}")
        from pipeline.cli.sources import read_sources

        sources = read_sources(options)
    except (UserError, Unavailable) as error:
        if url:
            from pipeline.cli.summary_json import write_failure

            write_failure(error_text(error), url)
        raise
    from pipeline.job.launch import launch

    launch(options, sources, beam_flags)
    return 0
