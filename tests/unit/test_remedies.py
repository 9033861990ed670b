"""What to change so that rejected records are read: found in the records, and tried on them."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.cli.options import Options
from pipeline.cli.sources import parse_options_of, read_sources
from pipeline.viewing.advice import advice, retyped
from pipeline.viewing.remedies import _READ_BY, REMEDIES, Reject, find_remedy
from support.datasets import work_in, write_jsonl
from support.killed import kill_before_the_commit
from support.paths import ROOT, SHARED, TOKENIZER
from transforms.base.errors import RecordError
from transforms.catalog.layout import Folder
from transforms.chat.rendering.omissions import Omissions
from transforms.model.examples import Record
from transforms.steps.parse import Parser


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """An increment that was begun, with a job and a tokenizer, for trials."""
    folder = tmp_path_factory.mktemp("built")
    corpus = write_jsonl(folder / "corpus.jsonl", [{"text": "a"}])
    kill_before_the_commit(f"--input={corpus}", f"--tokenizer={TOKENIZER}", f"--output={folder}/out")
    return folder / "out"


@pytest.fixture(autouse=True)
def job(built, tmp_path):
    shutil.copytree(built / "_chatmill", tmp_path / "_chatmill")


def rejects_of(output: Path, records: list[Any], options: Options) -> Folder:
    """Write rejects as a build does. A record that is (reason, detail) is one that a later step rejects."""
    rows: list[dict[str, Any]] = []
    parser = Parser(**parse_options_of({"schema": options.schema, "columns": options.columns, "roles": options.roles}))
    for record in records:
        if isinstance(record, tuple):
            reason, detail, raw = *record, b"{}"
        else:
            raw = json.dumps(record).encode()
            with pytest.raises(RecordError) as error:
                parser.parse(Record(0, raw))
            reason, detail = error.value.reason, error.value.detail
        rows.append({"reason": reason, "detail": detail, "record": raw})
    folder = Folder(str(output), work_in(output).name)
    Path(folder.rejects).parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), f"{folder.rejects}-000000-000.parquet")
    return folder


def changes_for(tmp_path: Path, records: list[Any], **options: Any) -> dict[str, Any] | None:
    given = Options(**options)
    remedy = find_remedy(rejects_of(tmp_path, records, given), vars(given))
    return remedy and remedy.changes


CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]


def turns(role: str, text: str, *roles: str) -> list[dict[str, str]]:
    return [{role: name, text: "Hello"} for name in roles]


@pytest.mark.parametrize(
    ("record", "changes"),
    [
        ({"talk": turns("role", "content", "user", "assistant")}, {"columns": {"messages": "talk"}}),
        (
            {"id": 1, "talk": turns("speaker", "utterance", "Customer", "Agent", "Customer", "Agent")},
            {"columns": {"messages": "talk"}, "roles": {"Customer": "user", "Agent": "assistant"}},
        ),
        ({"conversations": turns("from", "value", "human", "agent")}, {"roles": {"agent": "assistant"}}),
        ({"body": "A text."}, {"columns": {"text": "body"}}),
        ({"prompt": "P", "completion": "C", "system": "S"}, {"as_chat": True}),
        ({"prompt": "P", "chosen": "A", "rejected": "B"}, {"schema": "preference"}),
    ],
)
def test_a_record_of_a_stranger_shows_how_to_read_it(tmp_path, record, changes):
    assert changes_for(tmp_path, [record] * 3) == changes


def test_roles_of_all_records_are_added_to_those_that_are_given(tmp_path):
    records = [{"messages": turns("role", "content", "x", name)} for name in ("llm", "agent", "llm")]
    assert changes_for(tmp_path, records, roles={"x": "user"}) == {
        "roles": {"x": "user", "llm": "assistant", "agent": "assistant"}
    }


def test_another_schema_is_not_kept_for_records_that_do_not_have_it(tmp_path):
    records = [{"messages": turns("role", "content", "user", "assistant")}]
    assert changes_for(tmp_path, records, schema="sharegpt") == {"schema": "auto"}


@pytest.mark.parametrize(
    "records",
    [
        [{"foo": 1}],
        [{"messages": turns("role", "content", "user", "narrator")}],
        [{"messages": turns("role", "content", "user", "agent,assistant")}],
        [
            {"messages": turns("role", "content", "user", "agent")},
            *[{"messages": turns("role", "content", "x", "agent")}] * 2,
        ],
        [("template", "roles must alternate")],
        # What each says is not certain from its columns.
        [{"talk": CHAT, "background": "A restaurant"}],
        [{"talk": CHAT, "other_talk": CHAT[:1]}],
        [{"talk": [CHAT[0], {**CHAT[1], "apis": "BookTable"}]}],
        [{"dialog": turns("speaker", "utterance", "USER", "SYSTEM")}],
        [{"problem": "6*7?", "solution": "It is 42.", "answer": "43"}],
        [{"content": "A text.", "role": "user"}],
        [{"content": "A text.", "summary": "Short."}],
    ],
)
def test_a_change_that_does_not_help_most_records_is_not_shown(tmp_path, records):
    assert changes_for(tmp_path, records) is None


def test_records_that_a_formatter_made_are_not_guessed(tmp_path):
    given = Options(formatter="own.py:function")
    folder = rejects_of(tmp_path, [{"messages": turns("role", "content", "user", "agent")}], Options())
    assert find_remedy(folder, vars(given)) is None


@pytest.mark.parametrize(
    ("reject", "options", "changes"),
    [
        (("forged_turn", ""), {}, {"special_tokens_in_content": "plain"}),
        (("too_long", ""), {"max_record_bytes": 100}, {"max_record_bytes": 1600}),
        (("formatter", "KeyError: 1"), {}, None),
        (("differs_from_inference", ""), {"parity": "reject"}, {"parity": "expand"}),
        (("not_expandable", ""), {"parity": "expand"}, {"parity": "report"}),
        (("loss_not_applicable", ""), {"loss_on": "all"}, {"loss_on": "auto"}),
        (("special_tokens_in_content", ""), {"special_tokens_in_content": "plain"}, None),
    ],
)
def test_a_reject_of_a_later_step_has_its_option(tmp_path, reject, options, changes):
    assert changes_for(tmp_path, [reject], **options) == changes


def test_the_most_frequent_reason_with_a_remedy_counts(tmp_path):
    records = [("template", "")] * 3 + [("too_long", "")] * 2 + [("forged_turn", "")]
    assert changes_for(tmp_path, records, max_record_bytes=10) == {"max_record_bytes": 160}
    of_build = Folder(str(tmp_path), work_in(tmp_path).name)
    remedy = find_remedy(of_build, vars(Options()), {"too_long": 2, "forged_turn": 9})
    assert remedy and remedy.reason == "forged_turn"


@pytest.mark.parametrize("file", sorted(Path(SHARED, "shapes").glob("*")), ids=lambda file: file.stem)
def test_what_is_advised_for_the_shapes_that_people_have_keeps_their_records_and_leaves_no_text_unread(tmp_path, file):
    """The test above says of which shapes nothing can be advised; this one tries what is advised of all others."""
    records = [record for record in records_in(file) if is_rejected(record)]
    if not records or (changes := changes_for(tmp_path, records)) is None:
        return
    options = vars(Options()) | changes
    parser = Parser(**parse_options_of({name: options[name] for name in _READ_BY}))
    for record in records:
        assert not parser.parse_all(Record(0, json.dumps(record).encode()))[0].unread


def records_in(file: Path) -> list[Any]:
    if file.suffix not in (".json", ".jsonl"):
        return []
    text = file.read_text()
    return json.loads(text) if file.suffix == ".json" else [json.loads(line) for line in text.splitlines()]


def is_rejected(record: Any) -> bool:
    try:
        Parser().parse(Record(0, json.dumps(record).encode()))
    except RecordError:
        return True
    return False


def unprinted(*names: str) -> tuple[str, str]:
    advice = "give another chat_template, or keep such records and count them (unprinted: report)"
    return "not_printed", f"{Omissions(names).detail()}; {advice}"


@pytest.mark.parametrize(
    ("rejects", "without"),
    [
        ([unprinted("the content of messages[0] (system)")] * 2, "the content of messages[0] (system)"),
        (
            [unprinted("the tools", "the content of messages[0] (system)")],
            "the tools and the content of messages[0] (system)",
        ),
        (
            [unprinted("the tools"), *[unprinted("the content of messages[0] (system)")] * 2],
            "for example the content of messages[0] (system)",
        ),
        ([unprinted("the argument a;\x1b[2J\nb of the tool call of messages[1]")], "the argument a;\\x1b[2J b of"),
        ([unprinted(f"the argument {'x' * 9999} of the tool call of messages[1]")], f"the argument {'x' * 80}"),
    ],
)
def test_a_command_that_drops_what_is_not_printed_says_what_it_drops(rejects, without):
    does: Any = REMEDIES["not_printed"].does
    said = does({"unprinted": "report"}, [Reject(*reject, b"{}") for reject in rejects])
    assert said.startswith(f"keeps them, without what the template does not print ({without}") and len(said) < 300


@pytest.mark.parametrize("reason", REMEDIES)
def test_each_reason_with_a_remedy_is_one_of_the_documentation(reason):
    assert f"`{reason}`" in Path(ROOT, "docs/records.md").read_text().partition("## Why records are rejected")[2]


def test_the_command_is_as_it_was_typed_with_the_change_quoted_for_a_shell():
    typed = ["--input", "my chats/", "--roles=x=user", "--schema", "messages", "--as_chat", "--direct_num_workers=2"]
    changes = {"roles": {"x": "user", "the bot": "assistant"}, "schema": "auto", "as_chat": True}
    words = shlex.split(retyped(typed, changes))
    assert words[words.index("build") + 1 :] == [
        *["--input", "my chats/", "--direct_num_workers=2"],
        *["--roles", "x=user,the bot=assistant", "--schema", "auto", "--as_chat", "--overwrite"],
    ]


def test_a_source_with_a_value_of_its_own_is_to_be_changed_in_the_file_of_sources(tmp_path):
    sources = ({"name": "a", "input": "a.jsonl", "roles": {"x": "user"}},)
    options = Options(recipe=f"{tmp_path}/mix.yaml", sources=sources, tokenizer=str(TOKENIZER), output=str(tmp_path))
    folder = rejects_of(tmp_path, [{"messages": turns("role", "content", "user", "agent")}], options)
    assert advice(folder, options, read_sources(options), []) == (
        'Records rejected as unknown_role: roles: {"agent": "assistant"} for their source in '
        f"{tmp_path}/mix.yaml reads them. Then build again with --overwrite."
    )
