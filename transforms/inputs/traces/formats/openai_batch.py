"""OpenAI's Batch API: the file of the requests and that of the results, in one file, paired by custom_id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transforms.base.errors import RecordError
from transforms.inputs.traces import Trace, TraceFormat
from transforms.inputs.traces.formats.openai_responses import read_exchange

_JOIN = "Join the files of the requests and of the results: cat requests.jsonl results.jsonl > batch.jsonl"


def read(session: list[Mapping[str, Any]]) -> Trace:
    """Read the lines of a request: itself and its result. Raises RecordError."""
    requests = [line["body"] for line in session if isinstance(line.get("body"), dict)]
    results = [line for line in session if "response" in line or "error" in line]
    if len(requests) > 1 or len(results) > 1:
        raise RecordError("bad_trace", f"the custom_id {session[0]['custom_id']!r} has several requests or results")
    if not requests:
        raise RecordError("no_prompt", f"the result has no request with its custom_id. {_JOIN}")
    response: Any = None
    if results:
        answer = results[0].get("response") or {}
        response = answer.get("body")
        if results[0].get("error") or answer.get("status_code", 200) != 200 or not isinstance(response, dict):
            raise RecordError("failed_request", f"the result is an error: {results[0].get('error') or response}"[:500])
    elif not any(isinstance(m, dict) and m.get("role") == "assistant" for m in requests[0].get("messages") or ()):
        raise RecordError("no_answer", f"the request has no result with its custom_id. {_JOIN}")
    trace = read_exchange(requests[0], response)
    trace.session_id = str(session[0]["custom_id"])
    return trace


def _recognizes(value: Mapping[str, Any]) -> bool:
    return "custom_id" in value and ("response" in value or ("url" in value and "body" in value))


FORMAT = TraceFormat("OpenAI Batch", _recognizes, read, lambda value: str(value.get("custom_id")))
