"""The summary of a finished dataset: the sums of the manifest, the first row with its trained part, how to load it."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.console import marked_text
from transforms.chat.contexts import KINDS
from transforms.dataset.layout import Folder
from transforms.dataset.manifest import counts_of_source
from transforms.errors import StoreError, UserError
from transforms.outputs import loading_code
from transforms.rows import IGNORED
from transforms.storage.files import check_reachable, full_url, is_inside, join, kind_of, open_input, read_bytes
from transforms.storage.writing import write_atomically
from transforms.tokens.tokenizer import load_tokenizer

_TOKENS_SHOWN = 160
# A file of summary_json is only replaced if it has this.
_MARK, _COMMAND = "written_by", "chatmill build"
# The keys of the manifest that count records by the reason why the reference and not the fast engine handled them.
_BY_REFERENCE = {"rendered_by_reference": "rendered", "tokenized_by_reference": "tokenized"}
# The user chose the reference, or the input is so small that the fast engine would not be faster.
_EXPECTED_REASONS = {"engine", "small_input"}
_NOTED_FRACTION = 0.01
_SPECIAL_TOKENS_SHOWN = 8
_SUMS = ("records", "rows", "tokens", "trained_tokens", "trained_tokens_lost", "notes", "sources")
# Notes that have lines of their own, or warnings.
_SHOWN_ELSEWHERE = {
    "not_printed",
    "rendering_fell_back_to_reference",
    "tokenizing_fell_back_to_reference",
    "comparing_fell_back_to_reference",
    "parity_records_checked",
    "parity_records_not_checked",
    "parity_turns_checked",
    "parity_records_differing",
    "parity_turns_differing",
    *(f"parity_turns_{kind}" for kind in KINDS),
    "parity_rows_added",
    "turns_without_end",
    "records_without_generation_prompt",
    "records_with_special_tokens_in_content",
}


def print_summary(folder: Folder, manifest: dict[str, Any], max_reject_fraction: float) -> None:
    """Print a summary of the finished dataset to standard output, and warnings about it to standard error.

    Args:
        folder: of the dataset.
        manifest: its manifest.
        max_reject_fraction: sources of which more was rejected have a warning.
    """
    output = folder.output
    console = Console(highlight=False, soft_wrap=True)
    console.print(_table(manifest))
    sources = manifest.get("sources", [])
    if len(sources) > 1:
        console.print(_table_of_sources(sources))
        _warn_of_sources(sources, max_reject_fraction)
    if lost := manifest["trained_tokens_lost"]:
        records = manifest["notes"].get("records_that_lost_trained_tokens", 0)
        length = manifest["job"]["options"]["max_length"]
        print(
            f"chatmill: warning: {_number(records, 'record')} lost {_number(lost, 'trained token')} to --max_length "
            f"{length}.",
            file=sys.stderr,
        )
    for what in (
        "rendering_fell_back_to_reference",
        "tokenizing_fell_back_to_reference",
        "comparing_fell_back_to_reference",
    ):
        if what in manifest["first_examples"]:
            _warn_of_fallback(what, manifest)
    for what in _BY_REFERENCE:
        _note_reference(what, manifest)
    _warn_of_habits(manifest)
    if unprinted := manifest["notes"].get("not_printed"):
        have = "has" if unprinted == 1 else "have"
        print(
            f"chatmill: warning: {_number(unprinted, 'record')} {have} a content, a tool call or tools that the chat "
            f"template does not print.{_first_example('not_printed', manifest)} --unprinted reject rejects such "
            "records.",
            file=sys.stderr,
        )
    if typed := manifest["notes"].get("records_with_special_tokens_in_content"):
        _warn_of_special_tokens(typed, manifest)
    if differing := manifest["notes"].get("parity_turns_differing"):
        _warn_of_parity(differing, manifest)
    if manifest["rejects"]:
        console.print(f"The rejected records are in {join(output, 'rejects')}, each with its reason and position.")
    _print_row(console, folder, manifest)
    console.print(f"\nThe dataset is in {output}. Load it with:")
    console.print(f"  {loading_code(output, manifest['shards'])}", markup=False)


def _number(count: int, noun: str) -> str:
    """A number with its noun, such as `1 record`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def sums(manifest: dict[str, Any]) -> dict[str, Any]:
    """The sums of a manifest, as --summary_json has them."""
    return {name: manifest[name] for name in _SUMS} | {"shards": len(manifest["shards"])}


def check_summary_json(summary: dict[str, Any], url: str, output: str | None) -> None:
    """Write a first summary, that of a run that has begun, to find out whether the url can be written.

    Args:
        summary: what to write.
        url: the value of --summary_json.
        output: the folder of the dataset, None if it is not known.

    Raises:
        UserError: if the url cannot be written, is in the output, or is a file of something else.
        Unavailable: if its store does not answer.
    """
    if url == "-":
        return
    if output and is_inside(full_url(url), output):
        raise UserError(
            f"--summary_json {url}: it is inside --output, which holds nothing but the dataset. Give another url."
        )
    try:
        check_reachable(url)
        kind = kind_of(url)
        if kind not in (None, "file", "directory"):
            raise UserError(f"--summary_json {url}: it is not a regular file (a pipe or a device). Give another url.")
        if kind == "file" and not _is_summary(read_bytes(url)):
            raise UserError(
                f"--summary_json {url}: this file exists and is not a summary, so it is not replaced. Give another url."
            )
        write_summary_json(summary, url)
    except StoreError as error:
        raise error.as_user_error(f"--summary_json {error}") from None
    except (OSError, ValueError, ImportError) as error:
        raise UserError(f"--summary_json {url}: it cannot be written ({error}).") from None


def _is_summary(content: bytes) -> bool:
    """Whether we wrote a file, or nothing is in it."""
    try:
        return msgspec.json.decode(content, type=dict).get(_MARK) == _COMMAND
    except msgspec.MsgspecError:
        return not content


def write_summary_json(summary: dict[str, Any], url: str) -> None:
    """Write the summary of a run as JSON: indented to a url, in one line to standard output (-)."""
    summary = {_MARK: _COMMAND, **summary}
    if url == "-":
        print(msgspec.json.encode(summary).decode(), flush=True)
    else:
        write_atomically(full_url(url), msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n")


def _warn_of_fallback(what: str, manifest: dict[str, Any]) -> None:
    """Batches that fell back to the reference: their rows are right, but they took longer, and it is worth a report."""
    print(
        f"chatmill: warning: {what.partition('_')[0]} fell back to the reference in {manifest['notes'][what]:,} "
        f"batches, because the fast engine gave another result.{_first_example(what, manifest)}",
        file=sys.stderr,
    )


def _note_reference(what: str, manifest: dict[str, Any]) -> None:
    """Records that the fast engine could not handle, if they are so many that the build took longer."""
    reasons = {reason: count for reason, count in manifest.get(what, {}).items() if reason not in _EXPECTED_REASONS}
    records, read = sum(reasons.values()), manifest["records"]["read"]
    if records <= _NOTED_FRACTION * read:
        return
    why = ", ".join(f"{reason} {count:,}" for reason, count in sorted(reasons.items(), key=lambda item: -item[1]))
    print(
        f"chatmill: note: {records:,} of {read:,} records ({records / read:.1%}) were {_BY_REFERENCE[what]} by the "
        f"reference, which is slower; their rows are the same. Reasons: {why}.{_first_example(what, manifest)}",
        file=sys.stderr,
    )


def _first_example(what: str, manifest: dict[str, Any]) -> str:
    """A sentence about the first record that something was noted of, empty if the manifest names none."""
    first = manifest["first_examples"].get(what)
    if not first:
        return ""
    return f" The first is {first['source']}, {first['position']}: {first['detail'].rstrip('.')}."


def _warn_of_habits(manifest: dict[str, Any]) -> None:
    """What the template does that keeps a model from learning where its turns begin and end."""
    notes = manifest["notes"]
    if turns := notes.get("turns_without_end"):
        are_trained = "turn that is trained on closes" if turns == 1 else "turns that are trained on close"
        advice = (
            "none of --eot_tokens follows there, as after the last turn of a text"
            if manifest["job"]["options"].get("eot_tokens")
            else "--eot_tokens names stop tokens that follow an answer"
        )
        print(
            f"chatmill: warning: {turns:,} {are_trained} with nothing, so that a model does not learn to stop there; "
            f"{advice}, and chatmill masks shows the turns.{_first_example('turns_without_end', manifest)}",
            file=sys.stderr,
        )
    if records := notes.get("records_without_generation_prompt"):
        print(
            f"chatmill: warning: {_number(records, 'record')} {'is' if records == 1 else 'are'} rendered by a template "
            "that ignores add_generation_prompt, so that the header of each answer is trained on."
            f"{_first_example('records_without_generation_prompt', manifest)}",
            file=sys.stderr,
        )


def _warn_of_special_tokens(records: int, manifest: dict[str, Any]) -> None:
    """Special tokens in contents, the most frequent ones first."""
    counts = sorted(manifest["special_tokens_in_content"].items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{what} {count:,}" for what, count in counts[:_SPECIAL_TOKENS_SHOWN]]
    if len(counts) > len(shown):
        shown.append(f"{len(counts) - len(shown)} more in manifest.json")
    first = _first_example("records_with_special_tokens_in_content", manifest)
    print(
        f"chatmill: warning: {_number(records, 'record')} {'has' if records == 1 else 'have'} special tokens in "
        f"messages, tools or texts ({', '.join(shown)}).{first} --special_tokens_in_content report encodes them as "
        "special tokens, as transformers does; plain as plain text; reject rejects such records.",
        file=sys.stderr,
    )


def _warn_of_parity(turns: int, manifest: dict[str, Any]) -> None:
    """Turns that the model would write in another way, or in another context."""
    what, do = {
        "report": (
            f"{'is' if turns == 1 else 'are'} trained on",
            "--parity expand writes a row for each context that a server can render, and rejects the other records; "
            "--parity reject rejects all of them",
        ),
        "expand": ("would be trained on", "their records became a row for each context, or were rejected"),
        "reject": ("would be trained on", "their records were rejected"),
    }[manifest["job"]["options"]["parity"]]
    print(
        f"chatmill: warning: {_number(turns, 'turn')} of "
        f"{_number(manifest['notes']['parity_records_differing'], 'record')} {what} in "
        f"another way than the model would write them for a server ({_parity_kinds(manifest['notes'])}); {do}."
        f"{_first_example('parity_records_differing', manifest)}",
        file=sys.stderr,
    )


def _parity_kinds(notes: dict[str, int]) -> str:
    """The turns that differ, by kind, such as `default added 10, other end 2`."""
    counts = {kind: notes.get(f"parity_turns_{kind}") for kind in sorted(KINDS)}
    return ", ".join(f"{kind.replace('_', ' ')} {count:,}" for kind, count in counts.items() if count)


def _table(manifest: dict[str, Any]) -> Table:
    records = manifest["records"]
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    table.add_row("records read", f"{records['read']:,}")
    for outcome in ("kept", "truncated"):
        table.add_row(f"  {outcome}", f"{records[outcome]:,}")
    for outcome in ("dropped", "rejected"):
        why = ", ".join(f"{reason} {count:,}" for reason, count in records[outcome].items())
        table.add_row(f"  {outcome}", f"{sum(records[outcome].values()):,}", why)
    splits = {shard["split"] for shard in manifest["shards"]}
    table.add_row(
        "rows",
        f"{manifest['rows']:,}",
        f"in {_number(len(manifest['shards']), 'shard')} of {' and '.join(sorted(splits))}",
    )
    table.add_row("tokens", f"{manifest['tokens']:,}")
    trained = manifest["trained_tokens"]
    table.add_row("  trained on", f"{trained:,}", f"{trained / manifest['tokens']:.1%}")
    options = manifest["job"]["options"]
    if options["packing"] != "none":
        padding = manifest["rows"] * options["max_length"] - manifest["tokens"]
        share = padding / (padding + manifest["tokens"])
        table.add_row("padding left", f"{padding:,}", f"{share:.2%} of rows of {options['max_length']:,}")
    notes = manifest["notes"]
    for what in sorted(notes.keys() - _SHOWN_ELSEWHERE):
        table.add_row(what.replace("_", " "), f"{notes[what]:,}")
    if checked := notes.get("parity_turns_checked"):
        records, turns = notes["parity_records_checked"], notes.get("parity_turns_differing", 0)
        kinds = f" ({_parity_kinds(notes)})" if turns else ""
        others = notes.get("parity_records_not_checked", 0)
        not_checked = f"; {_number(others, 'record')} not checked" if others else ""
        compared = f"of {_number(records, 'record')} checked, {turns:,} differ{kinds}{not_checked}"
        table.add_row("parity", f"{checked:,}", f"{'turn' if checked == 1 else 'turns'} {compared}")
    if added := notes.get("parity_rows_added"):
        table.add_row("  rows added", f"{added:,}")
    return table


def _table_of_sources(sources: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("source", *counts_of_source(sources[0])):
        table.add_column(title, justify="left" if title == "source" else "right", header_style="")
    for source in sources:
        table.add_row(Text(source["name"]), *(f"{count:,}" for count in counts_of_source(source).values()))
    return table


def _warn_of_sources(sources: list[dict[str, Any]], max_reject_fraction: float) -> None:
    """A small source that is rejected is a small fraction of a large dataset."""
    for source in sources:
        read, rejected = source["records"]["read"], source["records"]["rejected"]
        if (count := sum(rejected.values())) > max_reject_fraction * read:
            why = ", ".join(f"{reason} {of_it:,}" for reason, of_it in rejected.items())
            found = f"{count:,} of {read:,} records of the source {source['name']} were rejected ({why})"
        elif not source["rows"]:
            found = f"the source {source['name']} has no row in the dataset"
        else:
            continue
        print(f"chatmill: warning: {found}.", file=sys.stderr)


def _print_row(console: Console, folder: Folder, manifest: dict[str, Any]) -> None:
    """Print the first row, decoded, with what is trained on marked."""
    shard = next((shard for shard in manifest["shards"] if shard["format"] == "parquet"), None)
    row = _first_row(folder, shard) if shard else None
    if shard is None or row is None:
        return
    ids, labels = np.array(row["input_ids"][:_TOKENS_SHOWN]), np.array(row["labels"][:_TOKENS_SHOWN])
    trained = labels != IGNORED
    tokenizer = load_tokenizer(folder.tokenizer)
    edges = [0, *(np.flatnonzero(np.diff(trained)) + 1).tolist(), len(ids)]
    pieces = [
        (tokenizer.decode(ids[start:stop].tolist(), skip_special_tokens=False), bool(trained[start]))
        for start, stop in pairwise(edges)
    ]
    more = (
        f", its first {_TOKENS_SHOWN} tokens of {len(row['input_ids']):,}"
        if len(row["input_ids"]) > _TOKENS_SHOWN
        else ""
    )
    mark = "in green" if console.color_system else "between ⟦ and ⟧"
    console.print(f"\nThe first row of {shard['path']}{more}; what is trained on is {mark}:")
    console.print(marked_text(console, pieces))


def _first_row(folder: Folder, shard: dict[str, Any]) -> dict[str, Any] | None:
    """The ids and labels of a shard's first row, None if --write_columns left one of them out."""
    with open_input(join(folder.output, shard["path"]), None) as file:
        # A thread of Arrow that reads the file while Python ends would abort the process (apache/arrow#34314).
        table, columns = pq.ParquetFile(file, pre_buffer=False), ["input_ids", "labels"]
        if not set(columns) <= set(table.schema_arrow.names):
            return None
        return next(table.iter_batches(batch_size=1, columns=columns, use_threads=False)).to_pylist()[0]
