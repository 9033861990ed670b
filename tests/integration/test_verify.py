"""chatmill verify: finds each harm that is done to a dataset, and nothing in a sound one."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.cli.program import main
from pipeline.commands.verify import line_of
from support.datasets import manifest_of, write_jsonl
from support.harms import edit_log, edit_manifest, flip, rewrite, rewrite_ledger, sign, with_values
from support.kinds import KINDS, dataset_of
from support.paths import TOKENIZER
from transforms.audit.verification.whole import verify
from transforms.catalog.layout import Folder
from transforms.catalog.log import Log
from transforms.catalog.sums import add_sums
from transforms.outputs.tfrecord import encode_tfrecord, masked_crc
from transforms.publish.derived import derive

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_found_in_a_sound_dataset(kind):
    found = verify(str(dataset_of(kind)))
    assert found.faults == [] and found.notes == []
    manifest = manifest_of(dataset_of(kind))
    for name in ("rows", "tokens", "trained_tokens"):
        assert found.figures[name] == manifest[name]


def shards_of(folder: Path, format: str = "parquet") -> list[str]:
    return [shard["path"] for shard in manifest_of(folder)["shards"] if shard["format"] == format]


def stored_tokenizer(folder: Path) -> Path:
    (tokenizer,) = (folder / "_chatmill" / "tokenizers").iterdir()
    return tokenizer


# Each harm changes a copy of a dataset, and names a part of what has to be found. Of those that are signed, the
# checksums in the log are right, so that the checks of the rows have to find them.
HARMS: dict[str, tuple[str, Callable[[Path], Any], str]] = {}


def harm(found: str, kind: str = "packed") -> Callable[[Callable[[Path], Any]], Callable[[Path], Any]]:
    def register(function: Callable[[Path], Any]) -> Callable[[Path], Any]:
        HARMS[function.__name__] = (kind, function, found)
        return function

    return register


FIRST = "data/train-[0-9a-f]{16}-000000-000"


@harm(f"{FIRST}.*was changed or damaged: its sha256")
def bit_of_a_data_page(folder):
    flip(folder / shards_of(folder)[0], 0.4)


@harm(f"{FIRST}.*was changed or damaged")
def bit_of_a_footer(folder):
    flip(folder / shards_of(folder)[0], 0.999)


@harm("tfrecord/train-.*-000000-000.*was changed or damaged")
def bit_of_a_tfrecord(folder):
    flip(folder / shards_of(folder, "tfrecord")[0], 0.5)


def flip_and_sign_tfrecord(folder, at):
    path = shards_of(folder, "tfrecord")[0]
    content = bytearray((folder / path).read_bytes())
    content[at] ^= 1
    (folder / path).write_bytes(content)
    sign(folder, path)


@harm("tfrecord/train-.*-000000-000.*record 0: its checksum is wrong")
def signed_bit_of_a_tfrecord(folder):
    flip_and_sign_tfrecord(folder, 500)


@harm("tfrecord/train-.*-000000-000.*record 0: the checksum of its length is wrong")
def signed_length_of_a_tfrecord(folder):
    flip_and_sign_tfrecord(folder, 8)


@harm("tfrecord/train-.*-000000-000.*row 0: it is not the row that data/train-.*-000000-000")
def signed_value_of_a_tfrecord_with_its_crc(folder):
    path = shards_of(folder, "tfrecord")[0]
    content = bytearray((folder / path).read_bytes())
    length = int.from_bytes(content[:8], "little")
    at = content.index(b"input_ids") + 30
    content[at] ^= 1
    content[12 + length : 16 + length] = masked_crc(bytes(content[12 : 12 + length]))
    (folder / path).write_bytes(content)
    sign(folder, path)


@harm("tfrecord/train-.*-000000-000.*row 2: it is not the row that .* rows: also 3")
def signed_other_order_in_tfrecord(folder):
    path = shards_of(folder, "tfrecord")[0]
    table = pq.read_table(folder / shards_of(folder)[0])
    order = [0, 1, 3, 2, *range(4, len(table))]
    (folder / path).write_bytes(encode_tfrecord(table.take(order)))
    sign(folder, path)


@harm("tfrecord/train-.*-000000-000.*it has .* rows, and data/train-.*-000000-000.* has")
def signed_tfrecord_without_a_row(folder):
    path = shards_of(folder, "tfrecord")[0]
    table = pq.read_table(folder / shards_of(folder)[0])
    (folder / path).write_bytes(encode_tfrecord(table.slice(1)))
    sign(folder, path)


@harm("tfrecord/train-.*-000000-000.*record 0: its checksum is wrong", "packed_tfrecord")
def signed_bit_of_a_dataset_in_tfrecord_alone(folder):
    signed_bit_of_a_tfrecord(folder)


@harm(r"tfrecord/train-.*-000000-000.*record \d+: its checksum is wrong", "tfrecord")
def signed_record_cut_short(folder):
    path = shards_of(folder, "tfrecord.gz")[0]
    (folder / path).write_bytes(gzip.compress(gzip.decompress((folder / path).read_bytes())[:-20]))
    sign(folder, path)


@harm(f"{FIRST}.*was changed or damaged")
def swapped_shards(folder):
    first, second = (folder / path for path in shards_of(folder)[:2])
    first.rename(folder / "other")
    second.rename(first)
    (folder / "other").rename(second)


@harm(f"{FIRST}.*the file is missing")
def missing_shard(folder):
    (folder / shards_of(folder)[0]).unlink()


@harm("data/train-99999.parquet: the manifest does not name this file")
def additional_file_of_rows(folder):
    shutil.copy(folder / shards_of(folder)[0], folder / "data" / "train-99999.parquet")


@harm("data/train-[0-9a-f]{16}-099999-000.parquet: the manifest does not name this file")
def additional_shard(folder):
    path = folder / shards_of(folder)[0]
    shutil.copy(path, path.with_name(path.name.replace("000000-000", "099999-000")))


@harm(f"{FIRST}.*was changed or damaged")
def shard_cut_short(folder):
    os.truncate(folder / shards_of(folder)[0], 3000)


@harm(f"{FIRST}.*the file is damaged")
def signed_shard_cut_short(folder):
    os.truncate(folder / shards_of(folder)[0], 3000)
    sign(folder, shards_of(folder)[0])


@harm(f"{FIRST}.*the file is damaged")
def signed_empty_shard(folder):
    os.truncate(folder / shards_of(folder)[0], 0)
    sign(folder, shards_of(folder)[0])


@harm("_SUCCESS: it is missing")
def missing_success(folder):
    (folder / "_SUCCESS").unlink()


@harm("README.md: the dataset card is missing")
def missing_card(folder):
    (folder / "README.md").unlink()


@harm("manifest.json: it is missing or damaged")
def missing_manifest(folder):
    (folder / "manifest.json").unlink()


@harm("manifest.json: it is missing or damaged")
def manifest_cut_short(folder):
    os.truncate(folder / "manifest.json", 1000)


@harm("manifest.json: rows is .*; by the log it is")
def edited_manifest(folder):
    edit_manifest(folder, lambda manifest: manifest.update(rows=manifest["rows"] + 1))


@harm("manifest.json: shards.data/train-.*-000000-000.*.tokens is 1; by the log it is")
def edited_shard_of_the_manifest(folder):
    edit_manifest(folder, lambda manifest: manifest["shards"][0].update(tokens=1))


@harm("manifest.json: shards.data/train-.*-.* is not there; by the log it is")
def shard_removed_from_the_manifest(folder):
    edit_manifest(folder, lambda manifest: manifest["shards"].pop(1))


@harm("manifest.json: layout.max_length is 4096; by the log it is 512")
def edited_layout(folder):
    edit_manifest(folder, lambda manifest: manifest["layout"].update(max_length=4096))


@harm("manifest.json: job.options.seed is 7; by the log it is 0")
def edited_job(folder):
    edit_manifest(folder, lambda manifest: manifest["job"]["options"].update(seed=7))


@harm("README.md: it is not the card of the newest version")
def train_and_validation_exchanged_in_the_card(folder):
    card = folder / "README.md"
    exchanged = {"train": "validation", "validation": "train"}
    card.write_text(re.sub(r"\b(train|validation)\b", lambda word: exchanged[word[0]], card.read_text()))


def edit_sums(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    edit_log(folder, lambda entry: change(entry["add"]["sums"]))


@harm("manifest.json: it has .* rows, and its parquet shards have")
def signed_sum_of_rows(folder):
    edit_sums(folder, lambda sums: sums.update(rows=sums["rows"] + 1))


@harm("manifest.json: it has .* trained_tokens, and its sources have")
def signed_sum_of_trained_tokens(folder):
    edit_sums(folder, lambda sums: sums.update(trained_tokens=sums["trained_tokens"] - 1))


@harm("manifest.json: .* records were read, and .* have an outcome")
def signed_outcomes(folder):
    edit_sums(folder, lambda sums: sums["records"].update(kept=sums["records"]["kept"] - 1))


@harm("ledger: it has .* records that are dropped no_trained_tokens; the manifest has 0")
def signed_reasons(folder):
    def change(sums):
        for records in (sums["records"], *(source["records"] for source in sums["sources"])):
            records["dropped"]["filtered"] = records["dropped"].pop("no_trained_tokens")

    edit_sums(folder, change)


@harm(f"{FIRST}.*it has .* tokens; the manifest has 1")
def signed_shard_entry(folder):
    edit_log(folder, lambda entry: entry["add"]["files"]["shards"][0].update(tokens=1))


@harm("data/.*: the manifest does not name this file")
def signed_log_without_a_shard(folder):
    def change(entry):
        shard = entry["add"]["files"]["shards"].pop(1)
        for sums in (entry["add"]["sums"], *entry["add"]["sums"]["sources"][:1]):
            for what in ("rows", "tokens", "trained_tokens"):
                sums[what] -= shard[what]

    edit_log(folder, change)


@harm("_chatmill/tokenizers/[0-9a-f]{16}: its files have the fingerprint")
def edited_tokenizer(folder):
    path = stored_tokenizer(folder) / "tokenizer_config.json"
    path.write_text(path.read_text().replace("<|im_end|>", "<|pad|>"))


@harm("_chatmill/tokenizers/[0-9a-f]{16}: its files have the fingerprint")
def tokenizer_with_other_ids(folder):
    path = stored_tokenizer(folder) / "tokenizer.json"
    content = json.loads(path.read_text())
    first, second = list(content["model"]["vocab"])[300:302]
    vocabulary = content["model"]["vocab"]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    path.write_text(json.dumps(content))


@harm("_chatmill/tokenizers/[0-9a-f]{16}: there is no tokenizer")
def missing_tokenizer(folder):
    shutil.rmtree(stored_tokenizer(folder))


@harm("_chatmill/formatters/[0-9a-f]{16}.py: its sha256 is", "formatter")
def edited_formatter(folder):
    (path,) = (folder / "_chatmill" / "formatters").iterdir()
    path.write_text(path.read_text().replace("return None", "return []"))


def first_rejects(folder: Path) -> Path:
    return folder / manifest_of(folder)["rejects"][0]


@harm("rejects/.*it is not the file that was committed")
def edited_rejects(folder):
    table = pq.read_table(first_rejects(folder))
    details = pa.array(["all is well"] * len(table))
    pq.write_table(table.set_column(3, "detail", details), first_rejects(folder))


@harm("rejects: the rejects have the reasons")
def reject_removed(folder):
    pq.write_table(pq.read_table(first_rejects(folder)).slice(1), first_rejects(folder))


@harm("rejects/.*the file is missing")
def missing_rejects(folder):
    first_rejects(folder).unlink()


@harm("rejects/.*does not have the columns")
def rejects_of_something_else(folder):
    pq.write_table(pa.table({"a": [1]}), first_rejects(folder))


@harm("ledger/ledger-.*-000000-000.*was changed or damaged")
def bit_of_a_ledger(folder):
    flip(folder / manifest_of(folder)["ledger"][0]["path"], 0.3)


@harm("ledger/ledger-.*-000000-000.*the file is missing")
def missing_ledger(folder):
    (folder / manifest_of(folder)["ledger"][0]["path"]).unlink()


@harm("ledger: it has .* records that are kept; the manifest has")
def signed_line_of_a_ledger_removed(folder):
    rewrite_ledger(folder, lambda lines: lines.slice(1))


@harm(f"{FIRST}.*row 0.*: ledger/ledger-.*-000000-000.* has 0 lines for a segment; expected 1", "wrapped")
def signed_line_of_a_segment_removed(folder):
    rewrite_ledger(folder, lambda lines: lines.slice(1))


@harm("ledger/ledger-.*-000000-000.*1 records are in it twice, such as .*:170")
def signed_line_of_a_ledger_doubled(folder):
    rewrite_ledger(folder, lambda lines: pa.concat_tables([lines, lines.slice(1, 1)]))


@harm(f"{FIRST}.*: segment .* has .* tokens, .* of them trained; ledger/ledger-.*-000000-000.* has .* and 1")
def signed_ledger_with_other_counts(folder):
    rewrite_ledger(folder, with_values("trained_tokens", lambda _: 1))


@harm(f"{FIRST}.*: ledger/ledger-.*-000000-000.* names a segment that it does not have")
def signed_ledger_with_another_place(folder):
    rewrite_ledger(folder, with_values("segment", lambda _: 99))


@harm(f"{FIRST}.*row 7,777: ledger/ledger-.*-000000-000.* names it, and there are .* rows")
def signed_ledger_with_a_row_that_is_not_there(folder):
    rewrite_ledger(folder, with_values("row", lambda _: 7777))


@harm("ledger: it has .* records that are dropped no_trained_tokens; the manifest has", "ffd")
def signed_ledger_with_another_reason(folder):
    reasons = {"no_trained_tokens": "filtered"}

    def change(lines):
        renamed = [reasons.get(reason, reason) for reason in lines["reason"].to_pylist()]
        return lines.set_column(lines.schema.get_field_index("reason"), "reason", pa.array(renamed))

    rewrite_ledger(folder, change)


def signed(name: str, change: Callable[[list[Any]], Any], found: str, kind: str = "packed") -> None:
    """Register a harm: another value in row 3 of the first shard."""

    def function(folder: Path) -> None:
        rewrite(folder, shards_of(folder)[0], with_values(name, change))

    HARMS[f"signed {name}: {found}"] = (kind, function, f"{FIRST}.*row 3.*: {found}")


def put(value: Any, at: int = 5) -> Callable[[list[Any]], Any]:
    return lambda values: values.__setitem__(at, value)


def first_trained(change: Callable[[list[int], int], Any]) -> Callable[[list[int]], Any]:
    return lambda labels: change(labels, next(i for i, label in enumerate(labels) if label != -100))


def off_by_one(labels: list[int], at: int) -> None:
    labels[at] += 1


def of_the_next(labels: list[int], at: int) -> None:
    labels[at] = labels[at + 1]


signed("labels", first_trained(off_by_one), r"labels\[\d+\] is \d+; expected the id of the token, or -100")
signed("labels", first_trained(of_the_next), r"labels\[\d+\] is \d+; expected the id of the token")
signed("labels", lambda labels: [-100, *labels[:-1]], r"labels\[\d+\] is \d+; expected the id of the token, ")
signed("labels", put(-1), r"labels\[5\] is -1; expected the id of the token, or -100")
signed("labels", lambda labels: [-100] * len(labels), "it has no trained token: all labels are -100")
signed("labels", lambda labels: labels[:-1], r"it has \d+ input_ids and \d+ labels")
signed("input_ids", put(70_000), r"input_ids\[5\] is 70000; expected an id of the vocabulary, from 0 to")
signed("input_ids", put(-7), r"input_ids\[5\] is -7; expected an id of the vocabulary")
signed("seq_lengths", lambda lengths: [*lengths[:-1], lengths[-1] - 1], r"seq_lengths adds up to \d+, and the row")
signed("seq_lengths", lambda lengths: [*lengths, 0], "seq_lengths has 0; each example has a token")
signed("seq_lengths", lambda lengths: [1, lengths[0] - 1, *lengths[1:]], "position_ids.*to count from 0 in each exam")
signed("position_ids", put(77), r"position_ids\[5\] is 77; expected to count from 0 in each example")
signed("position_ids", lambda ids: [1 + i for i in ids], r"position_ids\[0\] is 1; expected to count from 0")
signed("attention_mask", put(0), r"attention_mask\[5\] is 0; expected 1")
signed("loss_mask", lambda mask: [*mask[1:], mask[0]], r"loss_mask\[\d+\] is [01]; expected 1 where there is a label")
signed("part_lengths", lambda lengths: lengths[:-1], "it has not as many part_kinds as part_lengths")
signed("part_lengths", lambda lengths: [lengths[0] + 1, *lengths[1:]], "part_lengths does not add up to the tokens")
signed("part_lengths", lambda lengths: [lengths[0] + lengths[1], 0, *lengths[2:]], "part_lengths has a run without a")
signed("part_kinds", put(7, 1), "part_kinds has a number that is not from 0 to 6")
signed("part_kinds", put(0, 1), "part_messages has to be -1 where part_kinds is 0, and only there")
signed("part_kinds", lambda kinds: [5 if kind == 2 else kind for kind in kinds], "part_lengths are not the longest")
signed("source", lambda sources: [*sources, "x"], r"it has \d+ examples, and the sources of \d+")
signed("labels", first_trained(off_by_one), r"labels\[\d+\] is \d+; expected the id of the next token", "shifted")
signed("position_ids", put(77), r"position_ids\[5\] is 77; expected to count from 0", "shifted")
signed("seq_lengths", lambda lengths: [lengths[0] - 1, 1], "a row that is not packed has two examples", "shifted")


@harm(r"the trained tokens are of the parts .*'content' \d+,\d+, .*; the manifest has .*'content' \d+,\d+, ")
def signed_parts_of_another_kind(folder):
    rewrite(folder, shards_of(folder)[0], with_values("part_kinds", lambda kinds: [4 if k == 2 else k for k in kinds]))


@harm(f"{FIRST}.*row 3: the first token of an example is predicted from another one", "shifted_and_packed")
def signed_label_across_examples(folder):
    path = shards_of(folder)[0]
    row = pq.read_table(folder / path).to_pylist()[3]
    at = row["seq_lengths"][0]
    rewrite(folder, path, with_values("labels", put(row["input_ids"][at], at - 1)))


@harm(r"spans of trained tokens end with '<\|im_end\|>' \d+, 'others' 2; the manifest has '<\|im_end\|>' \d+$", "drop")
def signed_end_of_turn_that_is_masked_and_another_token_that_is_trained_instead(folder):
    path, end = shards_of(folder)[0], 2  # <|im_end|>, and then a line break
    rows = pq.read_table(folder / path).to_pylist()
    number = next(number for number, row in enumerate(rows) if end in row["labels"])

    def change(labels: list[int]) -> None:
        at = first = labels.index(end)
        while labels[first - 1] != -100:
            first -= 1
        labels[at], labels[first - 1] = -100, rows[number]["input_ids"][first - 1]

    rewrite(folder, path, with_values("labels", change, number))


@harm(rf"{FIRST}.*row 3: it has 514 tokens; the job allows 512")
def signed_row_that_is_too_long(folder):
    def change(table):
        for name in ("input_ids", "labels", "attention_mask", "loss_mask"):
            table = with_values(name, lambda values: (values * 20)[:514])(table)
        table = with_values("position_ids", lambda _: list(range(514)))(table)
        table = with_values("seq_lengths", lambda _: [514])(table)
        table = with_values("source", lambda sources: sources[:1])(table)
        return with_values("source_position", lambda positions: positions[:1])(table)

    rewrite(folder, shards_of(folder)[0], change)


@harm(f"{FIRST}.*it has .* rows; the manifest has ")
def signed_row_dropped(folder):
    rewrite(folder, shards_of(folder)[0], lambda table: table.slice(1))


def twice(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table.slice(0, 4), table.slice(2)]).combine_chunks()


@harm(f"{FIRST}.*rows; the manifest has")
def signed_row_doubled(folder):
    rewrite(folder, shards_of(folder)[0], twice)


@harm(f"{FIRST}.*, row 4: its record is in row 2 of {FIRST}.* already .2 rows: also 5.", "shifted")
def signed_rows_doubled_and_counted(folder):
    rewrite(folder, shards_of(folder)[0], twice, recount=True)


@harm("data/train-.*-000002-000.*, row .*: its record is in row 2 of data/train-.*-000001-000.* already", "formatter")
def signed_row_doubled_in_another_shard(folder):
    row = pq.read_table(folder / shards_of(folder)[0]).slice(3, 1)
    rewrite(folder, shards_of(folder)[1], lambda table: pa.concat_tables([table, row]).combine_chunks(), recount=True)


@harm(f"{FIRST}.*its columns are input_ids list<element: int64 not null> not null")
def signed_column_of_another_type(folder):
    kind = pa.list_(pa.field("element", pa.int64(), nullable=False))

    def change(table):
        values = table["input_ids"].combine_chunks().cast(kind)
        return table.set_column(0, pa.field("input_ids", kind, nullable=False), values)

    rewrite(folder, shards_of(folder)[0], change)


@harm(f"{FIRST}.*its columns are .*; expected input_ids .* labels ")
def signed_column_removed(folder):
    rewrite(folder, shards_of(folder)[0], lambda table: table.drop_columns(["loss_mask"]))


@harm(f"{FIRST}.*it is a shard of another dataset: its max_length is 4096; expected 512")
def signed_shard_of_another_dataset(folder):
    def change(table):
        about = json.loads(table.schema.metadata[b"chatmill"]) | {"max_length": 4096}
        return table.replace_schema_metadata({**table.schema.metadata, b"chatmill": json.dumps(about)})

    rewrite(folder, shards_of(folder)[0], change)


@harm(f"{FIRST}.*rows; the manifest has")
def signed_shards_swapped(folder):
    swapped_shards(folder)
    sign(folder, *shards_of(folder)[:2])


@pytest.mark.parametrize("name", HARMS)
def test_each_harm_is_found(name, tmp_path):
    kind, function, expected = HARMS[name]
    folder = tmp_path / "dataset"
    shutil.copytree(dataset_of(kind), folder)
    function(folder)
    faults = verify(str(folder)).faults
    lines = [line_of(fault) for fault in faults]
    assert any(re.search(expected, line) for line in lines), lines


@pytest.fixture(scope="module")
def grown(tmp_path_factory) -> Path:
    """A dataset of three versions."""
    folder = tmp_path_factory.mktemp("grown")
    options = [f"--input={folder}/chats-*.jsonl", f"--output={folder}/out", f"--tokenizer={TOKENIZER}"]
    for day in range(3):
        records = [{"text": f"text {number} of day {day}"} for number in range(9)]
        write_jsonl(folder / f"chats-{day}.jsonl", records)
        assert main(["build", "--append", *options, "--validation_fraction=0.3"]) == 0
        shutil.copy(folder / "out" / "README.md", folder / f"card of version {day + 1}")
    assert verify(f"{folder}/out").faults == []
    return folder / "out"


def log_of(folder: Path) -> list[Path]:
    """The entries of the log, in order."""
    return sorted(path for path in (folder / "_chatmill" / "log").iterdir() if "checkpoint" not in path.name)


def edit_entry(folder: Path, version: int, change: Callable[[dict[str, Any]], Any]) -> None:
    path = log_of(folder)[version - 1]
    entry = json.loads(path.read_bytes())
    change(entry)
    path.write_text(json.dumps(entry))


def repair_chain(folder: Path) -> None:
    """Let each entry have the sha256 of the one before."""
    for version, path in enumerate(log_of(folder)[:-1], 2):
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        edit_entry(folder, version, lambda entry, sha256=sha256: entry.update(previous=sha256))


def derive_again(folder: Path) -> None:
    snapshot = Log(Folder(str(folder))).newest()
    assert snapshot
    derive(Folder(str(folder)), snapshot, "none")


def one_row_more(entry: dict[str, Any]) -> None:
    entry["add"]["sums"]["rows"] += 1


def plant_checkpoint(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    snapshot = Log(Folder(str(folder))).newest()
    checkpoint = msgspec.json.decode(msgspec.json.encode(snapshot))
    change(checkpoint)
    (folder / "_chatmill" / "log" / "00000003.checkpoint.json").write_text(json.dumps(checkpoint))


LOG_HARMS: dict[str, tuple[Callable[[Path], Any], str]] = {}


def log_harm(found: str) -> Callable[[Callable[[Path], Any]], Callable[[Path], Any]]:
    def register(function: Callable[[Path], Any]) -> Callable[[Path], Any]:
        LOG_HARMS[function.__name__] = (function, found)
        return function

    return register


@log_harm("log: 00000003.json is missing: manifest.json is of version 3")
def last_entry_lost(folder):
    log_of(folder)[2].unlink()


@log_harm("log: 00000002.json is missing, and later versions are there")
def entry_lost(folder):
    log_of(folder)[1].unlink()


@log_harm("log: 00000001.json is missing, or the checkpoint of 00000002")
def first_entry_lost(folder):
    log_of(folder)[0].unlink()


@log_harm("_chatmill/log: it is missing")
def log_lost(folder):
    shutil.rmtree(folder / "_chatmill" / "log")


@log_harm("00000003.json: it is damaged")
def last_entry_cut_short(folder):
    os.truncate(log_of(folder)[2], 500)


@log_harm("00000002.json: it is damaged .it is version 3; expected 2")
def entries_exchanged(folder):
    _, second, third = log_of(folder)
    contents = second.read_bytes(), third.read_bytes()
    third.write_bytes(contents[0])
    second.write_bytes(contents[1])


@log_harm("00000002.json: it is damaged .it does not follow the version 1")
def entries_exchanged_with_their_versions(folder):
    entries_exchanged(folder)
    for version in (2, 3):
        edit_entry(folder, version, lambda entry, version=version: entry.update(version=version))
        edit_entry(folder, version, lambda entry, version=version: entry["add"].update(version=version))


@log_harm("manifest.json: shards are in another order than in the log")
def entries_exchanged_with_repaired_chain(folder):
    entries_exchanged_with_their_versions(folder)
    repair_chain(folder)


@log_harm("00000003.json: it is damaged .it does not follow the version 2")
def edited_entry(folder):
    edit_entry(folder, 2, one_row_more)


@log_harm("00000002.json: it is damaged .it does not follow the version 1")
def edited_inputs_of_an_entry(folder):
    edit_entry(folder, 1, lambda entry: entry["add"]["inputs"].clear())


@log_harm("_chatmill/log: the sums of its increments do not add up to its total")
def edited_entry_with_repaired_chain(folder):
    edit_entry(folder, 2, one_row_more)
    repair_chain(folder)


@log_harm("_chatmill/log: the sums of its increments do not add up to its total")
def edited_last_entry(folder):
    edit_entry(folder, 3, one_row_more)


@log_harm("manifest.json: rows is .*; by the log it is")
def edited_total_of_the_last_entry(folder):
    edit_entry(folder, 3, lambda entry: entry["total"].update(rows=entry["total"]["rows"] + 1))


@log_harm("manifest.json: it has .* rows, and its parquet shards have")
def edited_entry_with_all_sums_a_repaired_chain_and_all_that_is_derived(folder):
    edit_entry(folder, 2, one_row_more)
    for version in (2, 3):
        edit_entry(folder, version, lambda entry: entry["total"].update(rows=entry["total"]["rows"] + 1))
    repair_chain(folder)
    derive_again(folder)


@log_harm("00000001.json: the inputs are not those of the job")
def edited_inputs_of_an_entry_with_repaired_chain_and_all_that_is_derived(folder):
    edit_entry(folder, 1, lambda entry: entry["add"]["inputs"].clear())
    repair_chain(folder)
    derive_again(folder)


@log_harm("00000003.checkpoint.json: it is damaged .expected the increments of version 3")
def planted_empty_checkpoint(folder):
    plant_checkpoint(folder, lambda checkpoint: checkpoint["increments"].clear())


@log_harm("manifest.json: snapshot.increments is 3; by the log it is 2")
def planted_checkpoint_without_an_increment(folder):
    plant_checkpoint(folder, lambda checkpoint: checkpoint["increments"].pop(1))


@log_harm("_chatmill/log: its checkpoint is not what its entries add up to")
def planted_checkpoint_without_an_increment_and_all_that_is_derived(folder):
    planted_checkpoint_without_an_increment(folder)
    derive_again(folder)


@log_harm("manifest.json: it is missing or damaged")
def manifest_of_a_grown_dataset_removed(folder):
    (folder / "manifest.json").unlink()


@log_harm("manifest.json: rows is .*; by the log it is")
def manifest_of_a_grown_dataset_edited(folder):
    edit_manifest(folder, lambda manifest: manifest.update(rows=manifest["rows"] + 1))


@log_harm("manifest.json: snapshot.version is 2; by the log it is 3")
def manifest_of_another_version(folder):
    edit_manifest(folder, lambda manifest: manifest["snapshot"].update(version=2))


@log_harm("_SUCCESS: it is missing")
def success_of_a_grown_dataset_removed(folder):
    missing_success(folder)


@log_harm("README.md: it is not the card of the newest version")
def train_and_validation_exchanged_in_the_card_of_a_grown_dataset(folder):
    train_and_validation_exchanged_in_the_card(folder)


@log_harm("README.md: it is not the card of the newest version")
def card_of_an_older_version(folder):
    shutil.copy(folder.parent / "card of version 2", folder / "README.md")


@log_harm("README.md: the dataset card is missing")
def card_of_a_grown_dataset_removed(folder):
    missing_card(folder)


@pytest.mark.parametrize("name", LOG_HARMS)
def test_each_harm_of_the_log_and_of_what_is_derived_from_it_is_found(name, grown, tmp_path, capsys):
    harm, expected = LOG_HARMS[name]
    folder = tmp_path / "all" / "out"
    shutil.copytree(grown.parent, folder.parent)
    harm(folder)
    capsys.readouterr()
    assert main(["verify", str(folder)]) == 1
    out, err = capsys.readouterr()
    assert re.search(expected, out) and not err, out


def test_sound_dataset_is_ok_with_its_figures(capsys):
    folder = dataset_of("packed")
    capsys.readouterr()
    assert main(["verify", str(folder)]) == 0
    manifest = manifest_of(folder)
    figures = f"{manifest['rows']:,} rows, 592 examples, {manifest['tokens']:,} tokens, [0-9,]+ trained tokens"
    assert re.fullmatch(rf".*packed: OK \(20 shards, [0-9,]+ bytes, {figures}\)\n", capsys.readouterr().out)
    assert main(["verify", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True


def test_faults_have_exit_code_1_and_many_are_counted(tmp_path, capsys):
    folder = tmp_path / "dataset"
    shutil.copytree(dataset_of("packed"), folder)
    for row in (3, 4):
        rewrite(folder, shards_of(folder)[0], with_values("input_ids", put(70_000), row))
    for number in range(60):
        (folder / "data" / f"train-{number}.parquet").touch()
    capsys.readouterr()
    assert main(["verify", str(folder)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == "and 11 more, which --json lists"
    assert re.search(r": 61 faults \(", lines[-1]) and len(lines) == 52
    assert main(["verify", str(folder), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert len(found["faults"]) == 61 and not found["ok"]
    (fault,) = (fault for fault in found["faults"] if fault["rows"])
    assert (fault["path"], fault["rows"], fault["count"]) == (shards_of(folder)[0], [3, 4], 2)


def test_record_that_is_twice_in_one_of_several_sources_of_a_dataset_that_grew_is_found(tmp_path):
    folder, config = tmp_path / "out", tmp_path / "mix.yaml"
    for day in range(2):
        for name in ("a", "b"):
            write_jsonl(tmp_path / f"{name}-{day}.jsonl", [{"text": f"text {number} of {name}"} for number in range(9)])
        config.write_text(
            "sources:\n" + "".join(f"- name: {name}\n  input: {tmp_path}/{name}-*.jsonl\n" for name in ("a", "b"))
        )
        options = [str(config), f"--output={folder}", f"--tokenizer={TOKENIZER}", "--provenance"]
        assert main(["build", *options, "--append"]) == 0
    assert verify(str(folder)).faults == []
    # As it would be if the first build had written it: the entry of the second one follows.
    first, second = log_of(folder)
    of_second = second.read_bytes()
    second.unlink()
    shard = json.loads(first.read_bytes())["add"]["files"]["shards"][0]
    assert shard["source"] == 0
    (folder / "manifest.json").unlink()
    edit_log(folder, lambda _: None)
    rewrite(folder, shard["path"], twice, recount=True)
    each_ends_a_turn = {"span_ends": {"<|im_end|>": manifest_of(folder)["rows"]}}
    edit_log(folder, lambda entry: entry["add"]["sums"]["statistics"].update(each_ends_a_turn))
    sums = [json.loads(content)["add"]["sums"] for content in (first.read_bytes(), of_second)]
    second.write_text(json.dumps(json.loads(of_second) | {"total": add_sums(sums, ["a", "b"])}))
    repair_chain(folder)
    derive_again(folder)

    [fault] = verify(str(folder)).faults

    assert (fault.path, {*fault.rows}) == (shard["path"], {4, 5}) and "its record is in row" in fault.problem


def test_several_processes_find_the_same_as_one_also_in_row_groups_of_a_large_shard(tmp_path, monkeypatch):
    folder = tmp_path / "dataset"
    shutil.copytree(dataset_of("packed"), folder)
    monkeypatch.setattr("transforms.outputs.parquet._VALUES_IN_ROW_GROUP", 20_000)
    rewrite(folder, shards_of(folder)[0], with_values("input_ids", put(70_000), 9))
    assert pq.ParquetFile(folder / shards_of(folder)[0]).num_row_groups > 3
    alone = verify(str(folder), processes=1)
    assert [fault.rows for fault in alone.faults] == [(9,)]
    assert verify(str(folder), processes=2) == alone
    monkeypatch.setattr("transforms.audit.verification.shards._BYTES_OF_A_TASK", 10_000)
    assert verify(str(folder), processes=1) == alone
    flip(folder / shards_of(folder)[0], 0.999)
    assert {fault.path for fault in verify(str(folder), processes=1).faults} == {shards_of(folder)[0]}


def test_copy_without_work_files_and_rejects_is_checked_as_far_as_possible(tmp_path):
    folder = tmp_path / "dataset"
    shutil.copytree(dataset_of("packed"), folder, ignore=shutil.ignore_patterns("_chatmill", "rejects"))
    (folder / ".gitattributes").touch()
    (folder / "notes.txt").touch()
    found = verify(str(folder))
    assert found.faults == []
    assert found.notes == [
        "notes.txt is not a part of the dataset",
        "_chatmill/ is not in this copy: the tokenizer and the log were not checked",
        "rejects/ is not in this copy",
    ]


def test_folder_without_a_dataset_is_a_user_error(tmp_path, capsys):
    assert main(["verify", str(tmp_path)]) == 2
    assert ": there is no dataset. Give the folder that a build wrote" in capsys.readouterr().err
    for wrong in ([], ["a", "b"], ["a", "--jsno"]):
        assert main(["verify", *wrong]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_dataset_in_a_store_is_checked_as_on_a_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("transforms.audit.verification.shards._BYTES_OF_A_TASK", 100_000)  # some are read by row groups
    fsspec.filesystem("memory").put(str(dataset_of("packed")), "/verified", recursive=True)
    found, on_disk = (verify(url, processes=1) for url in ("memory://verified", str(dataset_of("packed"))))
    assert (found.faults, found.notes, found.figures) == ([], [], on_disk.figures)
    path = shards_of(dataset_of("packed"))[0]
    fsspec.filesystem("memory").pipe(f"/verified/{path}", b"PAR1")
    assert {fault.path for fault in verify("memory://verified", processes=1).faults} == {path}
