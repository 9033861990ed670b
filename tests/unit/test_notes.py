"""Notes of reading: counted for each record, with the first record that has something to show."""

from __future__ import annotations

from transforms import PlainText, Slice, Split
from transforms.inputs import schemas
from transforms.model.batches import Records
from transforms.model.examples import Record
from transforms.model.outcomes import Outcomes
from transforms.steps.parse import Parser


def test_notes_of_a_reader_are_counted_and_the_first_that_was_found_is_shown(monkeypatch):
    monkeypatch.setitem(schemas._READERS, "text", None)  # so that it is restored

    @schemas.schema("text", ["text"])
    def read(record, reading):
        reading.notes["short_texts"] = f"{len(record['text'])} characters" if record["text"] != "?" else None
        return PlainText(record["text"])

    records = [Record(10 * i, {"text": text}) for i, text in enumerate(("?", "two", "three", "?"))]
    split = Split(0, (Slice("a.jsonl", "jsonl", None, 0, 1),))
    batch = Parser(schema="text", keep_columns=["id"])(Records(split, 0, True, Outcomes(read=4), records))
    assert batch.outcomes.notes == {"records_without_id": 4, "short_texts": 4}
    assert batch.outcomes.first_examples == {"short_texts": (10, "3 characters")}
