"""Notes of records: counted, with the first record that has something to show."""

from __future__ import annotations

from support.datasets import manifest_of
from support.paths import TOKENIZER


def test_notes_are_counted_and_the_first_that_was_found_is_shown(build, tmp_path):
    corpus = tmp_path / "texts.jsonl"
    twice = [f'{{"text": "{name}", "{name}": 1, "{name}": 2}}' for name in ("one", "two", "three")]
    corpus.write_text("\n".join(['{"text": "zero"}', *twice, ""]))
    output = tmp_path / "out"
    assert build(f"--input={corpus}", f"--tokenizer={TOKENIZER}", "--keep_columns=id", f"--output={output}").code == 0
    manifest = manifest_of(output)
    assert manifest["notes"] == {"duplicate_json_keys": 3, "records_without_id": 4}
    first = manifest["first_examples"]["duplicate_json_keys"]
    assert (first["position"], first["detail"]) == (
        "byte 17",
        "the record has 'one' twice in an object; the last one counts",
    )
    assert manifest["tokenized_by_reference"] == {"small_input": 4}
