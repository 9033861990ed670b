"""chatmill build: builds a dataset."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pipeline.cli.console import error_text, show_phase
from pipeline.cli.options import BUILD, parse_options

SUMMARY = BUILD


def run(arguments: Sequence[str]) -> int:
    """Build a dataset."""
    result: dict[str, Any] = {"status": "failed"}
    has_json = any(word.partition("=")[0] == "--json" for word in arguments)
    try:
        options, beam_flags = parse_options(arguments)
        result["output"], has_json = options.output, options.json
        show_phase(f"building {options.output}")
        from pipeline.job import Request
        from pipeline.recipe import read_sources
        from pipeline.run import run as run_request

        result |= run_request(Request(options, read_sources(options), beam_flags))
    except (Exception, KeyboardInterrupt) as error:
        if has_json:
            _print(result | {"error": error_text(error)})
        raise
    if has_json:
        _print(result)
    return 0


def _print(result: dict[str, Any]) -> None:
    """Print what became of a build as JSON: the last line of standard output, which escapes what is not UTF-8."""
    print(json.dumps(result, ensure_ascii=False, separators=(",", ":")), flush=True)
