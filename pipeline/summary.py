"""What happened: the sums of the manifest, one row decoded with its trained part marked, and how to load it all."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from rich.text import Text

from transforms.dataset.layout import Folder
from transforms.errors import StoreError, UserError
from transforms.outputs import loading_code
from transforms.rows import IGNORED
from transforms.storage.files import (
    check_reachable,
    full_url,
    is_inside,
    join,
    kind_of,
    open_input,
    read_bytes,
    write_atomically,
)
from transforms.tokens.tokenizer import load_tokenizer

_TOKENS_SHOWN = 160
_SUMS = ("records", "rows", "tokens", "trained_tokens", "trained_tokens_lost", "notes")
_TOLD_APART = {
    "rendering_fell_back_to_reference",
    "tokenizing_fell_back_to_reference",
    "parity_records_checked",
    "parity_turns_checked",
    "parity_records_differing",
    "parity_turns_differing",
    "parity_rows_added",
}


def print_summary(folder: Folder, manifest: dict[str, Any]) -> None:
    """Print what the finished dataset in a folder is, to standard output."""
    output = folder.output
    console = Console(highlight=False, soft_wrap=True)
    console.print(_table(manifest))
    if lost := manifest["trained_tokens_lost"]:
        losers = manifest["notes"].get("records_that_lost_trained_tokens", 0)
        length = manifest["job"]["options"]["max_length"]
        print(
            f"chatmill: warning: {losers:,} records lost {lost:,} trained tokens to --max_length {length}.",
            file=sys.stderr,
        )
    for what in ("rendering_fell_back_to_reference", "tokenizing_fell_back_to_reference"):
        if what in manifest["first_examples"]:
            _warn_of_engine(what, manifest)
    if differing := manifest["notes"].get("parity_turns_differing"):
        _warn_of_contexts(differing, manifest)
    if manifest["rejects"]:
        console.print(f"The rejected records are in {join(output, 'rejects')}, each with its reason and place.")
    _print_row(console, folder, manifest)
    console.print(f"\nThe dataset is in {output}. Load it with:")
    console.print(f"  {loading_code(output, manifest['shards'])}", markup=False)


def sums(manifest: dict[str, Any]) -> dict[str, Any]:
    """The sums of a manifest."""
    return {name: manifest[name] for name in _SUMS} | {"shards": len(manifest["shards"])}


def check_summary(running: dict[str, Any], place: str, output: str | None) -> None:
    """Write that a run has begun where its end will be written.

    Raises UserError where nothing can be written there, where what is there is no summary, and inside the output.
    """
    if place == "-":
        return
    if output and is_inside(full_url(place), output):
        raise UserError(
            f"--summary_json {place}: it lies in --output, which holds the dataset alone. Give another place."
        )
    try:
        check_reachable(place)
        if kind_of(place) == "file" and not _is_summary(read_bytes(place)):
            raise UserError(f"--summary_json {place}: there is a file that is no summary. Give another name.")
        write_summary(running, place)
    except StoreError as error:
        raise error.as_user_error(f"--summary_json {error}") from None
    except (OSError, ValueError, ImportError) as error:
        raise UserError(f"--summary_json {place}: it cannot be written ({error}).") from None


def _is_summary(content: bytes) -> bool:
    try:
        return "status" in msgspec.json.decode(content, type=dict)
    except msgspec.MsgspecError:
        return not content


def write_summary(ended: dict[str, Any], place: str) -> None:
    """Write how a run ended as JSON: to a url in lines, to standard output in its last one."""
    if place == "-":
        print(msgspec.json.encode(ended).decode(), flush=True)
    else:
        write_atomically(full_url(place), msgspec.json.format(msgspec.json.encode(ended), indent=2) + b"\n")


def _warn_of_engine(what: str, manifest: dict[str, Any]) -> None:
    """Batches that the reference did again: the rows are right, but it takes longer, and is worth a report."""
    first, batches = manifest["first_examples"][what], manifest["notes"][what]
    print(
        f"chatmill: warning: {what.partition('_')[0]} fell back to the reference in {batches:,} batches, since the "
        f"fast engine differs from it. The first is {first['source']}, {first['position']}: {first['detail']}.",
        file=sys.stderr,
    )


def _warn_of_contexts(turns: int, manifest: dict[str, Any]) -> None:
    first, parity = manifest["first_examples"]["parity_records_differing"], manifest["job"]["options"]["parity"]
    what, do = {
        "report": ("are trained on", "--parity expand makes a row of each context, --parity reject leaves them out"),
        "expand": ("would be trained on", "their records became a row for each context, or were rejected"),
        "reject": ("would be trained on", "their records were rejected"),
    }[parity]
    print(
        f"chatmill: warning: {turns:,} turns of {manifest['notes']['parity_records_differing']:,} records {what} in "
        f"another context than a server would have rendered; {do}. The first is {first['source']}, "
        f"{first['position']}, {first['detail']}.",
        file=sys.stderr,
    )


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
        "rows", f"{manifest['rows']:,}", f"in {len(manifest['shards']):,} shards of {' and '.join(sorted(splits))}"
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
    for what in sorted(notes.keys() - _TOLD_APART):
        table.add_row(what.replace("_", " "), f"{notes[what]:,}")
    if looked_at := notes.get("parity_turns_checked"):
        records, turns = notes["parity_records_checked"], notes.get("parity_turns_differing", 0)
        table.add_row("parity", f"{looked_at:,}", f"turns of {records:,} records looked at, {turns:,} differ")
    if added := notes.get("parity_rows_added"):
        table.add_row("  rows added", f"{added:,}")
    return table


def _print_row(console: Console, folder: Folder, manifest: dict[str, Any]) -> None:
    """The first row, decoded, with what is trained on marked."""
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


def marked_text(console: Console, pieces: Iterable[tuple[str, bool]]) -> Text:
    """The pieces as one text; those that are trained on are bold green, or between ⟦ and ⟧ where there is no colour."""
    text = Text()
    for piece, trained in pieces:
        text.append(f"⟦{piece}⟧" if trained and not console.color_system else piece, "bold green" if trained else "dim")
    return text


def _first_row(folder: Folder, shard: dict[str, Any]) -> dict[str, Any] | None:
    """The ids and labels of a shard's first row, None where --write_columns left one of them out."""
    with open_input(join(folder.output, shard["path"]), None) as file:
        # A thread of Arrow's that wants the file when Python ends would abort it (apache/arrow#34314).
        table, columns = pq.ParquetFile(file, pre_buffer=False), ["input_ids", "labels"]
        if not set(columns) <= set(table.schema_arrow.names):
            return None
        return next(table.iter_batches(batch_size=1, columns=columns, use_threads=False)).to_pylist()[0]
