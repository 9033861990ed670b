"""What `chatmill inspect` prints: what is trained on between ⟦ and ⟧, and nothing that a terminal would act on."""

from __future__ import annotations

import json
import sys
import unicodedata
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from support.command_line import chatmill
from support.datasets import write_jsonl
from support.paths import TOKENIZER
from support.tokenizers import LARGE

HOSTILE = "\x1b[31mred\x1b]8;;http://x\x07 \u202eevil\u2066\r\x00\x9b\u200b\U000e0041 [bold]x[/] :smile: a⟧b"
SHOWN = (
    "\\x1b[31mred\\x1b]8;;http://x\\x07 \\u202eevil\\u2066\\r\\x00\\x9b\\u200b\\U000e0041 [bold]x[/] :smile: a\\u27e7b"
)
HARMLESS = "emoji 👩‍👩‍👧, ये, and\nlines stay"
HIDDEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def built(folder: Path, tokenizer: Path = TOKENIZER) -> Path:
    options = [f"--input={folder}/in.jsonl", f"--tokenizer={tokenizer}", f"--output={folder}/out"]
    assert chatmill("build", *options, "--report=none", "--direct_num_workers=1", "--max_reject_fraction=1") == 0
    return folder / "out"


def test_escapes_stand_for_what_a_terminal_acts_on_or_does_not_show(tmp_path, capfd):
    """Of all characters, and of those for private use some: a new version of Unicode may have more of them."""
    every = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    hidden = [c for c in every if unicodedata.category(c) in HIDDEN and c not in "\n\t\u200c\u200d"]
    few = "".join(c for number, c in enumerate(hidden) if unicodedata.category(c) != "Co" or number % 5000 == 0)
    write_jsonl(tmp_path / "in.jsonl", [{"text": HOSTILE}, {"text": HARMLESS}, {"text": few}])
    output = built(tmp_path)
    capfd.readouterr()
    assert [chatmill("inspect", output, f"--row={number}", "--full") for number in range(3)] == [0, 0, 0]
    out = capfd.readouterr().out
    assert f"⟦{SHOWN}<|im_end|>⟧" in out and f"⟦{HARMLESS}<|im_end|>⟧" in out
    kept = {"\n", "\t", "\u200c", "\u200d"}
    assert {c for c in out if unicodedata.category(c) in HIDDEN} <= kept


@pytest.mark.parametrize("folder", [*LARGE[1:2], TOKENIZER], ids=lambda folder: folder.name)
def test_character_of_several_tokens_is_marked_if_one_of_them_is_trained_on(tmp_path, capfd, folder):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = tokenizer.encode("你好🦖饕!", add_special_tokens=False).ids

    def characters(last: int) -> int:
        """How many characters some first tokens have a part of."""
        text = tokenizer.decode(ids[:last], skip_special_tokens=False)
        return len(text.rstrip("\ufffd")) + text.endswith("\ufffd")

    first = next(last for last in range(len(ids) + 1) if characters(last + 1) > 2)
    cases = range(first + 1, len(ids) + 1)
    labels = [[id if first <= i < last else -100 for i, id in enumerate(ids)] for last in cases]
    write_jsonl(tmp_path / "in.jsonl", [{"input_ids": ids, "labels": each} for each in labels])
    output = built(tmp_path, folder)
    capfd.readouterr()
    assert chatmill("inspect", output, "--search=你好", f"--limit={len(cases)}") == 0
    out = capfd.readouterr().out
    for last in cases:
        text, stop = "你好🦖饕!", characters(last)
        assert f"{text[:2]}⟦{text[2:stop]}⟧{text[stop:]}\n" in out


SEVENTY = [{"role": "user", "content": "\x1b[31m"}] * 70
LONG = {"text": ["a" * 10_000], "messages": [*SEVENTY, {"role": "\x1b[31m"}, *SEVENTY]}
# A line, the places in it that were wrong, and what is marked in what is printed.
REJECTED = [
    (
        b'{"messages": [{"role": "user", "content": "a"}, {"role": "user"}]}',
        ["messages[1]"],
        'messages[1]: {"role": "user"}',
    ),
    (
        b'{"id": 1, "conversations": [{"from": "gpt", "value": "a"}, {"from": "x", "value": "b"}]}',
        ["conversations[1]"],
        'conversations[1]: {"from": "x", "value": "b"}',
    ),
    (b'{"text": [1, 2]}', ["text"], "text: [1, 2]"),
    (b'{"a": 1, "b": }', [], "character 14: }"),
    (b'{"a": 1', [], "character 7: (the record ends here)"),
    (b'{"a": "\xff\xfe"}', [], 'character 7: \\xff\\xfe"}'),
    (json.dumps(LONG).encode(), ["messages[70]"], 'messages[70]: {"role": "\\u001b[31m"}'),
]


def test_place_that_was_wrong_is_marked_in_a_rejected_record(tmp_path, capfd):
    lines = [b'{"text": "a"}', *(line for line, _, _ in REJECTED)]
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(lines))
    output = built(tmp_path)
    for number, (_, places, shown) in enumerate(REJECTED):
        capfd.readouterr()
        assert chatmill("inspect", output, f"--reject={number}", "--json") == 0
        [reject] = json.loads(capfd.readouterr().out)["rejects"]
        assert chatmill("inspect", output, f"--reject={number}") == 0
        out = capfd.readouterr().out
        marked = [line.removeprefix("▶").strip() for line in out.splitlines() if line.startswith("▶")]
        assert (reject["marked"], "|".join(marked)) == (places, shown)
    assert "… 9,406 characters\n" in out and "lines after this; inspect --full shows all" in out
    assert len(out.splitlines()) < 80 and max(map(len, out.splitlines())) < 1000
