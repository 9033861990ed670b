"""Warnings: what of a finished dataset is worth a look. The summary of a build and the report show them."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from transforms.base.phrases import counted, describe_largest
from transforms.chat.parity.contexts import KINDS, OWN_WAY
from transforms.report.texts import records_compared
from transforms.rows.packing import longer_segments

# Of fewer records it is not worth a line of the summary.
_MANY = 0.01
# The keys of the manifest that count records by the reason why the reference and not the fast engine handled them.
_BY_REFERENCE = {"rendered_by_reference": "rendered", "tokenized_by_reference": "tokenized"}
# The user chose the reference, or the input is so small that the fast engine would not be faster.
_EXPECTED_REASONS = {"engine", "small_input"}
# What was done, or can be done, about turns that are not as at inference, by the option parity.
_AFTER_PARITY = {
    "report": "--parity expand writes each context, ",
    "expand": "expanded, or rejected, ",
    "reject": "rejected, ",
}


class DatasetWarning(NamedTuple):
    """Something to look at.

    Attributes:
        part: the part of the report that has the details.
        text: what was found.
        hint: what to do about it, or where to read more; may be empty.
        is_rare: whether it is about so few records that the report alone shows it.
        name: of the note that counts it, if the manifest has its first record.
    """

    part: str
    text: str
    hint: str = ""
    is_rare: bool = False
    name: str = ""


class _Note(NamedTuple):
    """A note of the manifest that says that something may be wrong with the data or the options.

    Attributes:
        noun: what it counts.
        text: what was found of these, after their number.
        hint: as of a DatasetWarning.
        is_severe: whether a single one is worth a line of the summary.
    """

    noun: str
    text: str
    hint: str
    is_severe: bool = False


_NOTES = {
    "compiled_template_differs": _Note(
        "record",
        "whose compiled template differs from apply_chat_template: they were rendered one by one, their rows are right",
        "docs/engines.md",
        is_severe=True,
    ),
    "turns_without_end": _Note(
        "trained turn",
        "without an end of turn: a model does not learn to stop there",
        "--eot_tokens, with + before one that a last turn lacks: docs/masks.md",
        is_severe=True,
    ),
    "records_without_generation_prompt": _Note(
        "record",
        "with trained headers of answers: the template ignores add_generation_prompt",
        "docs/masks.md",
        is_severe=True,
    ),
    "answers_after_end": _Note(
        "record",
        "with text of an answer after the end of a turn, without a header: it is not trained on",
        "docs/masks.md",
        is_severe=True,
    ),
    "turns_with_token_across_prompt_end": _Note(
        "trained turn",
        "with a first token that also has the end of the generation prompt, which a server never sees",
        "docs/masks.md",
    ),
    "not_printed": _Note(
        "record",
        "of which the template does not print all",
        "--unprinted reject rejects them, docs/masks.md",
        is_severe=True,
    ),
    "last_reasoning_not_printed": _Note(
        "record",
        "with a last answer whose reasoning the template does not print: a model does not learn to write it",
        "docs/masks.md",
    ),
    "records_with_special_tokens_in_content": _Note(
        "record",
        "with special tokens in contents",
        "--special_tokens_in_content, docs/records.md",
        is_severe=True,
    ),
    "traces_without_tools": _Note(
        "trace",
        "with calls and no tool definitions, which a model is given at inference",
        "--trace_tools gives them, docs/traces.md",
        is_severe=True,
    ),
    "contaminated": _Note(
        "record",
        "with a run of words of an evaluation set",
        "chatmill inspect OUT --reason contaminated shows them, --contaminated drop leaves them out, docs/corpus.md",
        is_severe=True,
    ),
    "not_compared_with_evaluations": _Note(
        "record", "of token ids, which are not compared with evaluation sets", "docs/corpus.md", is_severe=True
    ),
    "empty_answers": _Note("record", "with an empty turn of which only the end is trained on", "docs/masks.md"),
    "train_flags_not_understood": _Note(
        "record",
        "with a key that looks as if it said what is trained on, and is not known",
        "--train_field, docs/records.md",
    ),
}


def warnings(manifest: Mapping[str, Any], max_reject_fraction: float | None = None) -> Iterator[DatasetWarning]:
    """Find what is worth a look.

    Args:
        manifest: of the dataset.
        max_reject_fraction: a source of which more was rejected has a warning; None for that of the build.

    Returns:
        What was found of stops, of sources, of labels, of max_length, of the notes, and of the engine, in this order.
    """
    options = manifest["job"]["options"]
    if max_reject_fraction is None:
        max_reject_fraction = options.get("max_reject_fraction", 1)
    yield from _warn_about_stops(manifest.get("statistics", {}))
    yield from _warn_about_sources(manifest, max_reject_fraction)
    if undesirable := manifest["records"].get("dropped", {}).get("undesirable"):
        text = f"{counted(undesirable, 'record')} dropped ({undesirable / manifest['records']['read']:.1%})"
        yield DatasetWarning("outcomes", f"{text} whose label or kto_tag is false", "docs/records.md")
    yield from _warn_about_max_length(manifest)
    yield from _warn_about_notes(manifest)
    for what in _BY_REFERENCE:
        yield from _warn_about_reference(what, manifest)


def count_difference_kinds(notes: Mapping[str, int], left_out: Collection[str] = ()) -> str:
    """The most frequent kinds of turns that differ from inference, with their counts. notes: of a manifest."""
    counts = {kind.replace("_", " "): notes.get(f"parity_turns_{kind}", 0) for kind in KINDS if kind not in left_out}
    return describe_largest({kind: count for kind, count in counts.items() if count})


def _warn_about_stops(statistics: Mapping[str, Any]) -> Iterator[DatasetWarning]:
    """Conversations of which nothing that is trained on ends with what looks like a stop."""
    ends = statistics.get("span_ends", {})
    if "turns" in statistics.get("histograms", {}) and {*ends} == {"others"}:
        text = f"none of {counted(ends['others'], 'span')} of trained tokens ends with an added token, such as"
        yield DatasetWarning("contents", f"{text} <|im_end|>: a model may not learn to stop", "docs/masks.md")


def _warn_about_notes(manifest: Mapping[str, Any]) -> Iterator[DatasetWarning]:
    notes, read = manifest["notes"], manifest["records"]["read"]
    for name, (noun, text, hint, is_severe) in _NOTES.items():
        if count := notes.get(name):
            tokens = manifest["special_tokens_in_content"] if name == "records_with_special_tokens_in_content" else {}
            which = describe_largest(tokens, 1)
            if name == "train_flags_not_understood":  # which key it is
                which = manifest.get("first_examples", {}).get(name, {}).get("detail", "")
                if which.startswith("the record has "):  # in a column
                    hint = hint.replace("--train_field", "--formatter")
            text = f"{counted(count, noun)} {text}" + f": {which}" * bool(which)
            yield DatasetWarning("checks", text, hint, not is_severe and count <= _MANY * read, name)
    kinds = {kind: count for kind in KINDS if kind not in OWN_WAY and (count := notes.get(f"parity_turns_{kind}"))}
    if kinds:
        sample = f" of {records_compared(notes)}" * bool(notes.get("parity_records_not_checked"))
        text = f"{counted(sum(kinds.values()), 'trained turn')}{sample} not as at inference: "
        text += count_difference_kinds(notes, OWN_WAY)
        name = f"parity_turns_{max(kinds, key=kinds.__getitem__)}"
        if first := manifest.get("first_examples", {}).get(name):
            text += f", as {posixpath.basename(first['file'])}, {first['position']}"
        hint = _AFTER_PARITY.get(manifest["job"]["options"].get("parity"), "") + "docs/masks.md"
        yield DatasetWarning("checks", text, hint, name=name)


def _warn_about_max_length(manifest: Mapping[str, Any]) -> Iterator[DatasetWarning]:
    """Trained tokens that are cut off, and the smallest longer rows that keep nearly all of them."""
    lost, layout = manifest["trained_tokens_lost"], manifest["layout"]
    if not lost:
        return
    records = counted(manifest["notes"].get("records_that_lost_trained_tokens", 0), "record")
    cut_off = {
        int(limit): of.get("trained_tokens") for limit, of in manifest.get("statistics", {}).get("limits", {}).items()
    }
    longer = {limit: cut for limit, cut in cut_off.items() if limit > (layout["max_length"] or 0) and cut < lost}
    hint = []
    if longer:
        limit = next((limit for limit, cut in longer.items() if 10 * cut <= lost), max(longer))
        hint.append(f"{limit} loses {longer[limit]:,}")
    if longer_segments(layout["packing"]) == "truncate":
        hint.append("--truncation windows loses none")
    text = f"{counted(lost, 'trained token')} of {records} lost to --max_length {layout['max_length']}"
    yield DatasetWarning("limits", text, ", ".join(hint))


def _warn_about_reference(what: str, manifest: Mapping[str, Any]) -> Iterator[DatasetWarning]:
    """Records that the fast engine could not handle, if they are so many that the build took longer."""
    reasons = {reason: count for reason, count in manifest.get(what, {}).items() if reason not in _EXPECTED_REASONS}
    records, read = sum(reasons.values()), manifest["records"]["read"]
    if records > _MANY * read:
        text = (
            f"{counted(records, 'record')} {_BY_REFERENCE[what]} by the slower reference: {describe_largest(reasons)}"
        )
        yield DatasetWarning("checks", text, "docs/engines.md")


def _warn_about_sources(manifest: Mapping[str, Any], max_reject_fraction: float) -> Iterator[DatasetWarning]:
    """Sources that are rejected or empty: a small one is a small fraction of a large dataset."""
    sources = manifest.get("sources", [])
    for source in sources if len(sources) > 1 else []:
        read, rejected = source["records"]["read"], source["records"]["rejected"]
        if (count := sum(rejected.values())) > max_reject_fraction * read:
            text = (
                f"{count:,} of {read:,} records of the source {source['name']} rejected: {describe_largest(rejected)}"
            )
            yield DatasetWarning("sources", text)
        elif not source["tokens"]:  # its examples may be in rows that begin with others
            yield DatasetWarning("sources", f"no row of the source {source['name']} in the dataset")
