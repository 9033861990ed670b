"""Concerns: what of a finished dataset is worth a warning, in one line each, and where to read more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.cli.console import counted
from transforms.catalog.manifest import records_compared
from transforms.chat.parity.contexts import KINDS
from transforms.chat.special_tokens.typed_tokens import FOREIGN_TOKENS
from transforms.model.receipts import DIFFERS

# The keys of the manifest that count records by the reason why the reference and not the fast engine handled them.
_BY_REFERENCE = {"rendered_by_reference": "rendered", "tokenized_by_reference": "tokenized"}
# The user chose the reference, or the input is so small that the fast engine would not be faster.
_EXPECTED_REASONS = {"engine", "small_input"}
# Of fewer records it is not worth a line.
_NOTED_FRACTION = 0.01
_SHOWN = 2
_SOURCES_SHOWN = 4


def concerns(manifest: Mapping[str, Any], max_reject_fraction: float) -> Iterator[str]:
    """Yield a line for each concern, and one about where their first records are.

    Args:
        manifest: of the dataset.
        max_reject_fraction: a source of which more was rejected is a concern.
    """
    found = [
        *_of_notes(manifest),
        *(line for what in _BY_REFERENCE for line in _of_reference(what, manifest)),
    ]
    yield from _of_sources(manifest, max_reject_fraction)
    yield from _of_max_length(manifest)
    yield from found
    if found and manifest["first_examples"]:
        yield "first_examples in manifest.json has the first record of each, and report.html shows it."


def most_of(counts: Mapping[str, int], shown: int = _SHOWN) -> str:
    """The largest counts by name, such as `tools 12, kwargs 3 and 2 more`."""
    largest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    text = ", ".join(f"{name} {count:,}" for name, count in largest[:shown])
    return text if len(counts) <= shown else f"{text} and {len(counts) - shown} more"


def kinds_of_differences(notes: Mapping[str, int]) -> str:
    """The most frequent kinds of turns that differ from inference, with their counts. notes: of a manifest."""
    of_kinds = {kind.replace("_", " "): notes.get(f"parity_turns_{kind}", 0) for kind in KINDS}
    return most_of({kind: count for kind, count in of_kinds.items() if count})


def _of_notes(manifest: Mapping[str, Any]) -> Iterator[str]:
    notes, options = manifest["notes"], manifest["job"]["options"]
    if DIFFERS in notes:
        first = manifest["first_examples"][DIFFERS]
        yield (
            f"warning: the fast engine differed from transformers ({first['source']}, {first['position']}: "
            f"{first['detail']}), so that the rows were made by the reference (docs/engines.md)"
        )
    if turns := notes.get("turns_without_end"):
        closed = "1 turn that is trained on is" if turns == 1 else f"{turns:,} turns that are trained on are"
        advice = "none of --eot_tokens follows" if options.get("eot_tokens") else "--eot_tokens"
        yield f"warning: {closed} not closed: a model does not learn to stop ({advice}, docs/masks.md)"
    if records := notes.get("records_without_generation_prompt"):
        yield (
            f"warning: in {counted(records, 'record')} the header of answers is trained on: the template ignores "
            "add_generation_prompt (docs/masks.md)"
        )
    if records := notes.get("not_printed"):
        yield (
            f"warning: of {counted(records, 'record')} the template does not print all; --unprinted reject rejects "
            "them (docs/masks.md)"
        )
    records, read = notes.get("last_reasoning_not_printed", 0), manifest["records"]["read"]
    if records > _NOTED_FRACTION * read:
        yield (
            f"warning: of {records:,} of {counted(read, 'record')} the template does not print the reasoning of the "
            "last answer: a model does not learn to write it (docs/masks.md)"
        )
    if records := notes.get("records_with_special_tokens_in_content"):
        typed = most_of(manifest["special_tokens_in_content"], 1)
        have = "has" if records == 1 else "have"
        yield (
            f"warning: {counted(records, 'record')} {have} special tokens in contents: {typed} "
            "(--special_tokens_in_content, docs/records.md)"
        )
    records = notes.get(FOREIGN_TOKENS, 0)
    if records > _NOTED_FRACTION * read:
        each = f"{FOREIGN_TOKENS} "
        tokens = {name.removeprefix(each): count for name, count in notes.items() if name.startswith(each)}
        yield (
            f"warning: {records:,} of {counted(read, 'record')} have control tokens of other templates as plain text: "
            f"{most_of(tokens, 1)} (docs/records.md)"
        )
    if turns := notes.get("parity_turns_differing"):
        kinds = kinds_of_differences(notes)
        done = {
            "report": "--parity expand writes each context",
            "expand": "expanded, or rejected",
            "reject": "rejected",
        }[options["parity"]]
        sample = f" of {records_compared(notes)}" * bool(notes.get("parity_records_not_checked"))
        differ = "differs" if turns == 1 else "differ"
        yield f"warning: {counted(turns, 'turn')}{sample} {differ} from inference ({kinds}); {done} (docs/masks.md)"


def _of_max_length(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Trained tokens that are cut off, and the smallest longer rows that keep nearly all of them."""
    lost, options = manifest["trained_tokens_lost"], manifest["job"]["options"]
    if not lost:
        return
    records = counted(manifest["notes"].get("records_that_lost_trained_tokens", 0), "record")
    line = f"warning: {records} lost {counted(lost, 'trained token')} to --max_length {options['max_length']}"
    beyond = {int(limit): of.get("trained_tokens") for limit, of in manifest["statistics"]["limits"].items()}
    longer = {limit: cut for limit, cut in beyond.items() if limit > (options["max_length"] or 0) and cut < lost}
    advice = []
    if longer:
        limit = next((limit for limit, cut in longer.items() if 10 * cut <= lost), max(longer))
        advice.append(f"{limit} loses {longer[limit]:,}")
    if options["packing"] == "bfd":
        advice.append("--packing bfd_split loses none")
    yield f"{line}; {', '.join(advice)}" if advice else line


def _of_reference(what: str, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Records that the fast engine could not handle, if they are so many that the build took longer."""
    reasons = {reason: count for reason, count in manifest.get(what, {}).items() if reason not in _EXPECTED_REASONS}
    records, read = sum(reasons.values()), manifest["records"]["read"]
    if records > _NOTED_FRACTION * read:
        yield (
            f"note: {records:,} of {read:,} records ({records / read:.1%}) were {_BY_REFERENCE[what]} by the slower "
            f"reference: {most_of(reasons)} (docs/engines.md)"
        )


def _of_sources(manifest: Mapping[str, Any], max_reject_fraction: float) -> Iterator[str]:
    """Sources that are rejected or empty: a small one is a small fraction of a large dataset."""
    sources = manifest.get("sources", [])
    lines = []
    for source in sources if len(sources) > 1 else []:
        read, rejected = source["records"]["read"], source["records"]["rejected"]
        if (count := sum(rejected.values())) > max_reject_fraction * read:
            of_source = f"{count:,} of {read:,} records of the source {source['name']}"
            lines.append(f"warning: {of_source} were rejected ({most_of(rejected)}).")
        elif not source["rows"]:
            lines.append(f"warning: the source {source['name']} has no row in the dataset.")
    yield from lines[:_SOURCES_SHOWN]
    if len(lines) > _SOURCES_SHOWN:
        yield f"warning: the same for {len(lines) - _SOURCES_SHOWN:,} more sources (manifest.json lists them)"
