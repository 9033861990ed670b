"""The laws of a dataset, checked with pyarrow and manifest.json alone: nothing of what wrote it is imported.

`broken_laws` names what does not hold. The fixture `build` asserts after each build that all of them do.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_IGNORED = -100
_SUMS = ("rows", "tokens", "trained_tokens")
# Columns with a value for each token, and the packings that cut examples.
_OF_TOKENS = ("input_ids", "labels", "loss_mask", "attention_mask", "position_ids")
_CUTS = ("bfd_split", "wrapped")


def broken_laws(folder: Path | str) -> list[str]:
    """Return each law that a finished dataset on this machine breaks, with its file and the first row."""
    folder = Path(folder)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    found = [*_of_files(folder, manifest), *_of_sums(manifest), *_warn_about_notes(manifest)]
    shards = [shard for shard in manifest["shards"] if shard["format"] == "parquet"]
    if found or not shards:
        return found
    rows = {shard["path"]: _Rows(folder, manifest, shard) for shard in shards}
    for each in rows.values():
        found += each.check()
    return found or [
        *_of_examples(manifest, [*rows.values()]),
        *_of_rejects(folder, manifest),
        *_of_lines(folder, manifest, rows),
    ]


def _of_files(folder: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Each file is as large as the manifest says and has its sha256, and SHA256SUMS has the same ones."""
    sums = dict(line.split("  ", 1)[::-1] for line in (folder / "SHA256SUMS").read_text().splitlines())
    files = [*manifest["shards"], *manifest["exceptions"]]
    paths = [file["path"] for file in files]
    if sorted(sums) != sorted(paths):
        yield f"SHA256SUMS has {sorted(sums)}; the manifest has {sorted(paths)}"
    for path, sha256 in sums.items():
        if hashlib.sha256((folder / path).read_bytes()).hexdigest() != sha256:
            yield f"{path}: its sha256 is not that of SHA256SUMS"
    for file in files:
        if (file["bytes"], file["sha256"]) != ((folder / file["path"]).stat().st_size, sums.get(file["path"])):
            yield f"{file['path']}: its size or its sha256 is not that of the manifest"


def _of_sums(manifest: Mapping[str, Any]) -> Iterator[str]:
    """The manifest adds up: outcomes, sources, and shards in each format."""
    records, sources = manifest["records"], manifest["sources"]
    outcomes = records["kept"] + records["truncated"]
    outcomes += sum(records["dropped"].values()) + sum(records["rejected"].values())
    if not records["read"] == outcomes == sum(source["records"]["read"] for source in sources):
        yield f"{records['read']} records were read, and {outcomes} have an outcome"
    for what in _SUMS:
        if sum(source[what] for source in sources) != manifest[what]:
            yield f"the manifest has {manifest[what]} {what}, and its sources have others"
        for format in {shard["format"] for shard in manifest["shards"]}:
            of_shards = sum(shard[what] for shard in manifest["shards"] if shard["format"] == format)
            if of_shards != manifest[what]:
                yield f"the manifest has {manifest[what]} {what}, and its {format} shards have {of_shards}"


def _warn_about_notes(manifest: Mapping[str, Any]) -> Iterator[str]:
    """No compiled template prints something else than `apply_chat_template`, though such records are rendered again."""
    if "compiled_template_differs" in manifest["notes"]:
        yield f"a compiled template differs: {manifest['first_examples']['compiled_template_differs']}"


def _examples(manifest: Mapping[str, Any]) -> int:
    """How many examples the outcomes add up to, if packing cuts none."""
    added = sum(count for name, count in manifest["notes"].items() if name.endswith(("_rows_added", "copies_added")))
    return manifest["records"]["kept"] + manifest["records"]["truncated"] + added


class _Rows:
    """The rows of a shard.

    lengths, trained: of each example, if the columns say where they begin: its tokens, and those that are trained on.
    counts: of each row, how many examples it has. records: of each example, its file and position.
    """

    def __init__(self, folder: Path, manifest: Mapping[str, Any], shard: Mapping[str, Any]):
        self.manifest, self.shard, self.layout = manifest, shard, manifest["layout"]
        self.table = pq.read_table(folder / shard["path"])
        self.columns = {name: _flat(self.table[name]) for name in (*_OF_TOKENS, "seq_lengths") if name in self._names}
        self.lengths: np.ndarray | None = None
        self.trained: np.ndarray | None = None
        self.counts: np.ndarray | None = None
        self.records: list[tuple[str, int]] = []
        self._vocabulary = _vocabulary(folder, manifest)

    @property
    def _names(self) -> list[str]:
        return self.table.schema.names

    def check(self) -> Iterator[str]:
        """Yield each law that the rows break."""
        about = json.loads((self.table.schema.metadata or {}).get(b"chatmill", b"{}"))
        if self._names != self.layout["columns"]:
            yield f"{self.shard['path']}: its columns are {self._names}; expected {self.layout['columns']}"
            return
        if about != self.layout | {"tokenizer": self.manifest["job"]["tokenizer"]}:
            yield f"{self.shard['path']}: its metadata are of another dataset: {about}"
        for problem, rows in self._broken():
            if len(rows := np.asarray(rows)):
                yield f"{self.shard['path']}, row {rows[0]}: {problem} ({len(rows)} rows)"
                return

    def kept(self, row: int, segment: int) -> dict[str, str | None]:
        """The columns that an example keeps of its record."""
        written = (*_OF_TOKENS, "seq_lengths", "origin_file", "origin_position")
        names = [name for name in self._names if name not in written and not name.startswith("part_")]
        values = {name: self.table[name][row].as_py() for name in names}
        return values if self.layout["packing"] == "none" else {name: values[name][segment] for name in names}

    def _broken(self) -> Iterator[tuple[str, Any]]:
        """Yield what must not be, and the rows in which it is. What follows one that has rows need not make sense."""
        count_tokens = [name for name in self.columns if name != "seq_lengths"]
        if not count_tokens:
            return
        offsets = self.columns[count_tokens[0]][1]
        tokens = np.diff(offsets)
        limit = self.layout["max_length"]
        shift = self.layout["shift_labels"]
        for name in count_tokens:
            yield (
                f"it has not as many {name} as {count_tokens[0]}",
                np.flatnonzero(np.diff(self.columns[name][1]) != tokens),
            )
        yield "it is empty", np.flatnonzero(tokens == 0)
        if limit is not None:
            yield "it is longer than max_length", np.flatnonzero(tokens > limit - shift)
        starts = self._find_examples(offsets)
        if "seq_lengths" in self.columns:
            lengths, of_rows = self.columns["seq_lengths"]
            sums = np.add.reduceat(np.append(lengths, 0), of_rows[:-1]) * (np.diff(of_rows) > 0)
            yield "its seq_lengths do not add up to it", np.flatnonzero(sums != tokens)
            yield "an example has no token", self._rows_of(np.flatnonzero(lengths < 1), of_rows)
        if self.counts is not None and self.layout["packing"] == "none":
            yield "it is not packed, and has several examples", np.flatnonzero(self.counts != 1)
        values = {name: column[0] for name, column in self.columns.items()}
        ids, labels, mask = (values.get(name) for name in ("input_ids", "labels", "loss_mask"))
        if ids is not None and self._vocabulary:
            yield "an id is not in the vocabulary", self._rows_of((ids < 0) | (ids >= self._vocabulary), offsets)
        trained = labels != _IGNORED if labels is not None else mask == 1 if mask is not None else None
        if ids is not None and labels is not None:
            expected = np.append(ids[1:], _IGNORED) if shift else ids
            wrong = (labels != _IGNORED) & (labels != expected)
            if shift:  # the token that the last one of a row predicts is not in it
                wrong[offsets[1:] - 1] = False
            yield "a label is neither the id of its token nor -100", self._rows_of(wrong, offsets)
        if trained is not None:
            yield "no token is trained on", np.flatnonzero(np.add.reduceat(trained, offsets[:-1], dtype=np.int64) == 0)
            if mask is not None:
                yield "loss_mask is not 1 where there is a label, 0 elsewhere", self._rows_of(mask != trained, offsets)
            if shift and starts is not None:
                last = np.setdiff1d(starts, offsets) - 1
                yield "an example predicts the first token of the next one", self._rows_of(last[trained[last]], offsets)
            if starts is not None:
                self.trained = np.add.reduceat(trained, starts, dtype=np.int64)
        if "attention_mask" in values:
            yield "attention_mask is not 1", self._rows_of(values["attention_mask"] != 1, offsets)
        if "position_ids" in values:
            begins = offsets[:-1] if starts is None else starts
            lengths = np.diff(np.append(begins, offsets[-1]))
            expected = np.arange(offsets[-1]) - np.repeat(begins, lengths)
            yield "position_ids do not count from 0", self._rows_of(values["position_ids"] != expected, offsets)
        if starts is not None and {"part_lengths", "part_kinds", "part_messages"} <= {*self._names}:
            yield from self._broken_in_parts(offsets, starts)
        yield from self._broken_in_facts()
        found = {"rows": len(tokens), "tokens": int(tokens.sum())}
        found |= {} if trained is None else {"trained_tokens": int(trained.sum())}
        yield f"the shard has {found}", [0] * any(self.shard[what] != value for what, value in found.items())

    def _find_examples(self, offsets: np.ndarray) -> np.ndarray | None:
        """Where the examples begin; None if the columns do not say it."""
        if self.layout["packing"] == "none":
            starts = offsets[:-1]
        elif "seq_lengths" in self.columns:
            lengths = self.columns["seq_lengths"][0]
            starts = np.cumsum(lengths) - lengths
        elif "position_ids" in self.columns:
            starts = np.flatnonzero(self.columns["position_ids"][0] == 0)
        else:
            return None
        self.lengths = np.diff(np.append(starts, offsets[-1]))
        self.counts = np.bincount(np.searchsorted(offsets, starts, "right") - 1, minlength=len(offsets) - 1)
        return starts

    def _broken_in_parts(self, offsets: np.ndarray, starts: np.ndarray) -> Iterator[tuple[str, Any]]:
        """Runs of parts add up to their rows, and are of one example, in which the next one is of another part."""
        (lengths, of_rows), (kinds, _), (messages, _) = (
            _flat(self.table[f"part_{name}"]) for name in ("lengths", "kinds", "messages")
        )
        ends = np.cumsum(lengths)
        yield "its part_lengths do not add up to it", np.flatnonzero(np.append(0, ends)[of_rows] != offsets)
        yield "a run of a part goes on in the next example", self._rows_of(np.setdiff1d(starts[1:], ends), offsets)
        same = (kinds[1:] == kinds[:-1]) & (messages[1:] == messages[:-1]) & ~np.isin(ends[:-1], starts)
        yield "two runs are of one part", self._rows_of(ends[:-1][same], offsets)

    def _broken_in_facts(self) -> Iterator[tuple[str, Any]]:
        """Of columns that are not of tokens: those of packed rows have a value for each example."""
        for name in self._names:
            column = self.table[name]
            if not pa.types.is_list(column.type) or self.counts is None:
                continue
            if name in (*_OF_TOKENS, "seq_lengths") or name.startswith("part_"):
                continue
            lengths = pc.list_value_length(column).to_numpy()
            yield f"it has not as many {name} as examples", np.flatnonzero(lengths != self.counts)
        if {"origin_file", "origin_position"} <= {*self._names}:
            both = [self.table[name].combine_chunks() for name in ("origin_file", "origin_position")]
            values = [(each.flatten() if pa.types.is_list(each.type) else each).to_pylist() for each in both]
            self.records = [*zip(*values, strict=True)]

    def _rows_of(self, tokens: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """The rows of tokens: of their numbers, or of those that are marked."""
        numbers = np.flatnonzero(tokens) if tokens.dtype == bool else tokens
        return np.unique(np.searchsorted(offsets, numbers, "right") - 1)


def _flat(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """The values of a column of lists, and the offsets of its rows."""
    lengths = pc.list_value_length(column).to_numpy()
    return column.combine_chunks().flatten().to_numpy(), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _vocabulary(folder: Path, manifest: Mapping[str, Any]) -> int | None:
    """All ids are below it; None if the tokenizer is not there."""
    path = folder / "_chatmill" / "tokenizers" / manifest["job"]["tokenizer"][:16] / "tokenizer.json"
    if not path.exists():
        return None
    content = json.loads(path.read_bytes())
    vocabulary = content["model"]["vocab"]
    ids = [*vocabulary.values()] if isinstance(vocabulary, dict) else [*range(len(vocabulary))]
    return max(ids + [token["id"] for token in content["added_tokens"]]) + 1


def _of_examples(manifest: Mapping[str, Any], shards: list[_Rows]) -> Iterator[str]:
    """There are as many examples as the outcomes say, no record is there twice, and the splits share none."""
    packing, expected = manifest["layout"]["packing"], _examples(manifest)
    counts = [None if each.counts is None else int(each.counts.sum()) for each in shards]
    if packing not in _CUTS and None not in counts and sum(filter(None, counts)) != expected:
        yield f"the rows hold {sum(filter(None, counts))} examples, and the records have {expected}"
    splits: dict[str, Counter[tuple[str, int]]] = {"train": Counter(), "validation": Counter()}
    for each in shards:
        splits[each.shard["split"]].update(each.records)
    of_one = len(manifest["sources"]) == 1 and manifest["increments"] == 1
    if of_one and (both := splits["train"].keys() & splits["validation"].keys()):
        yield f"{min(both)} is in train and in validation"
    has_one_each = expected == manifest["records"]["kept"] + manifest["records"]["truncated"]
    if of_one and has_one_each and packing not in _CUTS:
        twice = [record for split in splits.values() for record, count in split.items() if count > 1]
        if twice:
            yield f"{min(twice)} is in the rows twice"


def _of_rejects(folder: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    """The rejects have the reasons that the manifest counts."""
    reasons: Counter[str] = Counter()
    for file in manifest["exceptions"]:
        lines = pq.read_table(folder / file["path"]).to_pylist()
        reasons.update(line["reason"] for line in lines if line["record"] is not None)
    if reasons != Counter(manifest["records"]["rejected"]):
        yield f"the rejects have the reasons {reasons}; the manifest has {manifest['records']['rejected']}"


def _of_lines(folder: Path, manifest: Mapping[str, Any], shards: Mapping[str, _Rows]) -> Iterator[str]:
    """Each line names a segment with its tokens, no segment is named twice, and the outcomes are those counted."""
    outcomes: Counter[tuple[str, str | None]] = Counter()
    lost = 0
    for file in manifest["exceptions"]:
        lines = pq.read_table(folder / file["path"]).to_pylist()
        lost += sum(line["trained_tokens_lost"] or 0 for line in lines)
        firsts = {(line["origin_file"], line["origin_position"]): line for line in reversed(lines)}
        outcomes.update((line["outcome"], line["reason"]) for line in firsts.values())
        places = [(line["split"], line["row"], line["segment"]) for line in lines if line["row"] is not None]
        if len({*places}) < len(places):
            yield f"{file['path']}: a segment has two lines"
        for line in lines:
            rows = shards.get(file["shards"].get(line["split"], ""))
            if line["row"] is None or rows is None or rows.counts is None or rows.lengths is None:
                continue
            at = int(rows.counts[: line["row"]].sum()) + line["segment"]
            if line["row"] >= len(rows.counts) or line["segment"] >= rows.counts[line["row"]]:
                yield f"{file['path']}: {rows.shard['path']}, row {line['row']} has no segment {line['segment']}"
            elif (line["tokens"], line["trained_tokens"]) != (
                rows.lengths[at], line["trained_tokens"] if rows.trained is None else rows.trained[at],
            ):  # fmt: skip
                yield f"{file['path']}: {rows.shard['path']}, row {line['row']} has other tokens than its line says"
            elif json.loads(line["columns"] or "{}") != rows.kept(line["row"], line["segment"]):
                yield f"{file['path']}: {rows.shard['path']}, row {line['row']} has other columns than its line says"
    expected: Counter[tuple[str, str | None]] = Counter({("truncated", None): manifest["records"]["truncated"]})
    for outcome in ("dropped", "rejected"):
        expected.update({(outcome, reason): count for reason, count in manifest["records"][outcome].items()})
    for key in ("kept", None), ("repeated", None):
        outcomes.pop(key, None)
    if lost != manifest["trained_tokens_lost"]:
        yield f"the lines lost {lost} trained tokens; the manifest has {manifest['trained_tokens_lost']}"
    if +outcomes != +expected:
        yield f"the lines have the outcomes {+outcomes}; the manifest has {+expected}"
