"""Hints: for each reason for which records are rejected what to try, and where to read about it."""

from __future__ import annotations

from collections.abc import Iterable

from transforms.steps.checks import CHECKS

_RECORDS = "docs/records.md"
HINTS = {
    "unknown_schema": "--columns messages=YOURS or text=YOURS names the column, --formatter reads what fits no schema",
    "missing_column": "--schema auto reads each record by its own columns, --columns NAME=YOURS names yours",
    "ambiguous": "--columns says which of the two is meant, as the detail shows",
    "one_message": "a record is a whole conversation: join its messages before the build, or with --formatter",
    "unknown_role": "--roles YOURS=assistant says which role it is",
    "bad_message": "--message_fields role=YOURS",
    "bad_tool_calls": "--tool_arguments keep gives the arguments of calls to the template as strings",
    "bad_weight": "a weight is 0 or 1",
    "bad_prompt_completion": "--as_chat true renders prompt and completion with the chat template",
    "preference_data": "--schema chosen trains on the chosen answers; trainers tokenize pairs themselves",
    "trace_branches": "--trace_branches examples or main reads such a session (docs/traces.md)",
    "too_long": "--max_record_bytes allows longer records",
    "formatter": "the detail has the exception of your --formatter",
    "no_chat_template": "--chat_template gives one",
    "template": "--chat_template gives another template; `chatmill masks` shows what one does",
    "forged_turn": "--special_tokens_in_content plain encodes special tokens in contents as plain text",
    "special_tokens_in_content": "--special_tokens_in_content plain or report keeps such records",
    "not_printed": "--chat_template gives another template, --unprinted report keeps such records (docs/masks.md)",
    "loss_not_applicable": "--loss_on auto trains on what each record has",
    "parts_not_established": "without --train_parts the whole turn is trained on (docs/masks.md)",
    "spans_not_established": "`chatmill masks` shows what the template does (docs/masks.md)",
    "prompt_not_a_prefix": "`chatmill masks` shows what the template does (docs/masks.md)",
    "differs_from_inference": "--parity expand writes a row for each context that a server renders (docs/masks.md)",
    "not_expandable": "--parity report keeps such records and counts them (docs/masks.md)",
}


def hints(reasons: Iterable[str]) -> list[str]:
    """A line for each of some reasons that has a hint: what to try, and where to read about it."""
    of_checks = {name: f"--check {name}=report keeps such records (docs/checks.md)" for name in CHECKS}
    pairs = [(reason, hint) for reason in reasons if (hint := HINTS.get(reason, of_checks.get(reason)))]
    return [f"hint for {reason}: {hint if 'docs/' in hint else f'{hint} ({_RECORDS})'}." for reason, hint in pairs]
