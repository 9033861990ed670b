"""Notes of records: counted, with the first record that has something to show."""

from __future__ import annotations

from support.datasets import read_manifest
from support.paths import TOKENIZER


def test_notes_are_counted_and_the_first_that_was_found_is_shown(build, tmp_path):
    corpus = tmp_path / "texts.jsonl"
    twice = [f'{{"text": "{name}", "{name}": 1, "{name}": 2}}' for name in ("one", "two", "three")]
    corpus.write_text("\n".join(['{"text": "zero"}', *twice, ""]))
    output = tmp_path / "out"
    assert build(f"--input={corpus}", f"--tokenizer={TOKENIZER}", "--keep_columns=id", f"--output={output}").code == 0
    manifest = read_manifest(output)
    assert manifest["notes"] == {"duplicate_json_keys": 3, "records_without_id": 4}
    first = manifest["first_examples"]["duplicate_json_keys"]
    assert (first["position"], first["detail"]) == (
        "byte 17",
        "the record has 'one' twice in an object; the last one counts",
    )
    assert manifest["tokenized_by_reference"] == {"small_input": 4}


def test_of_records_that_are_counted_one_by_one_the_first_is_shown(build, tmp_path):
    """This template prints the header of an answer only with its answer, which is noted for each record."""
    template = (
        "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    )
    corpus, output = tmp_path / "chats.jsonl", tmp_path / "out"
    chat = '{"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}\n'
    corpus.write_text(chat + chat)
    options = [f"--input={corpus}", f"--tokenizer={TOKENIZER}", f"--chat_template={template}", f"--output={output}"]
    assert build(*options).code == 0
    manifest = read_manifest(output)
    assert manifest["notes"]["records_without_generation_prompt"] == 2
    assert manifest["first_examples"]["records_without_generation_prompt"]["position"] == "byte 0"
