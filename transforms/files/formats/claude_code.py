"""Sessions of Claude Code, as `inputs.traces.claude_code` reads them."""

from __future__ import annotations

from transforms.traces.session_files import trace_input

FORMAT = trace_input("claude_code")
