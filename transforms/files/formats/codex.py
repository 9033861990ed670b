"""Sessions of Codex, as `inputs.traces.codex` reads them."""

from __future__ import annotations

from transforms.traces.session_files import trace_input

FORMAT = trace_input("codex")
