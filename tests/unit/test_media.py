"""Media: a record with a column of images, audio or video that is not empty is rejected, in any schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from transforms import RecordError
from transforms import parse as read_record

CHAT = [{"role": "user", "content": "<image>What is it?"}, {"role": "assistant", "content": "A teapot."}]
RECORDS: dict[str, dict[str, Any]] = {
    "messages": {"messages": CHAT},
    "prompt and completion": {"prompt": CHAT[:1], "completion": CHAT[1:]},
    "strings": {"prompt": "<image>What is it?", "completion": " A teapot."},
    "ShareGPT": {"conversations": CHAT},
    "Alpaca": {"instruction": "<image>What is it?", "output": "A teapot."},
    "text": {"text": "<image> A teapot."},
    "tokens": {"input_ids": [1, 2]},
}


def parse(record: dict[str, Any]) -> Any:
    """Return the content of a record, which must be the same from a line of JSON and from a row of a table."""
    content = read_record(record)[0].content
    if "input_ids" not in record:
        assert read_record(json.dumps(record).encode())[0].content == content
    return content


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("images", ["table.jpg"], "image"),
        ("image", "table.jpg", "image"),
        ("images", [{"bytes": None, "path": "table.jpg"}], "image"),
        ("image", {"bytes": b"\x89PNG", "path": None}, "image"),
        ("image", 7, "image"),
        ("audios", ["a.wav"], "audio"),
        ("audio", {"array": [0.5], "sampling_rate": 16000}, "audio"),
        ("videos", [None, "v.mp4"], "video"),
        ("video", "v.mp4", "video"),
    ],
)
@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_a_record_with_media_is_rejected(record, column, value, reason):
    with pytest.raises(RecordError) as raised:
        parse({**record, column: value})
    assert raised.value.reason == reason


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [("image_path", "a.png", "image"), ("image_urls", ["http://a/b"], "image"), ("image_file", {"path": "a"}, "image")],
)
@pytest.mark.parametrize("record", [record for name, record in RECORDS.items() if name != "tokens"])
def test_a_file_whose_placeholder_is_in_the_text_is_media(record, column, value, reason):
    with pytest.raises(RecordError) as raised:
        parse({**record, column: value})
    assert raised.value.reason == reason
    of_no_placeholder = json.loads(json.dumps(record).replace("<image>", "<video>"))
    assert parse({**of_no_placeholder, column: value}) == parse(of_no_placeholder)


@pytest.mark.parametrize("column", ["jpg", "picture", "source"])
@pytest.mark.parametrize("values", [{"bytes": b"\x89PNG", "path": "a.png"}, [{"bytes": b"\x89PNG", "path": None}]])
@pytest.mark.parametrize("record", [*RECORDS.values(), {"problem": "What is it?", "solution": "A teapot."}])
def test_the_bytes_of_a_file_are_media_whatever_the_name_of_the_column_is(record, values, column):
    with pytest.raises(RecordError) as raised:
        read_record({**record, column: values})[0]
    assert raised.value.reason == "image"


@pytest.mark.parametrize("empty", [None, "", " ", [], [None], [""], {}, {"bytes": None, "path": None}, False])
@pytest.mark.parametrize("column", ["image", "images", "audio", "audios", "video", "videos"])
def test_a_record_with_an_empty_column_of_media_is_kept(column, empty):
    assert parse({**RECORDS["messages"], column: empty}) == parse(RECORDS["messages"])


@pytest.mark.parametrize("empty", ["null", "[]", '""'])
def test_an_empty_column_of_media_takes_the_fast_path(empty):
    record = b'{"messages": %s, "images": %s}' % (json.dumps(CHAT).encode(), empty.encode())
    assert isinstance(read_record(record)[0].content.lazy_messages, tuple)
