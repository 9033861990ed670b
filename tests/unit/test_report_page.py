"""The report as HTML. tests/integration/test_report_in_browser.py opens it in a browser."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from support.manifests import first_example, manifest_by_hand
from transforms.publish.report_page import _share, make_report
from transforms.reading.excerpts import Excerpt, Piece


class _Texts(HTMLParser):
    """The texts of a page, without its scripts and styles, and the names of its elements."""

    def __init__(self, page: str):
        super().__init__()
        self.text, self.elements, self._in = "", set[str](), ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.elements.add(tag)
        self._in = tag

    def handle_data(self, data: str) -> None:
        if self._in not in ("script", "style"):
            self.text += data


def page_of(excerpts: tuple[Excerpt, ...] = (), **changes: object) -> str:
    return make_report(manifest_by_hand(**changes), excerpts).decode()


def excerpt(*pieces: Piece) -> Excerpt:
    return Excerpt("data/train-00000000000000ab-000000-000.parquet", 0, 12, 5, 2, 0, 3, pieces)


def test_same_manifest_gives_the_same_bytes():
    assert page_of((excerpt(Piece("a", True, False, 1)),)) == page_of((excerpt(Piece("a", True, False, 1)),))


def test_policy_allows_what_is_in_the_page_by_its_hash_and_nothing_else():
    page = page_of()
    policy = re.search('Content-Security-Policy" content="([^"]*)"', page)[1].replace("&#39;", "'")
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in re.findall("<(?:style|script)>(.*?)</(?:style|script)>", page, re.DOTALL)
    ]
    assert policy == (
        f"default-src 'none'; style-src {hashes[0]}; script-src {' '.join(hashes[1:])}; "
        "base-uri 'none'; form-action 'none'"
    )
    assert len(hashes) == 2 and not re.search(r' (style|on\w+)="', page)


def test_hostile_texts_are_shown_as_text():
    attack = (
        '</script><script>alert(1)</script><img src=x onerror="alert(2)"> {{ 7*7 }} '
        "\u202egpj.exe \x00\x1b[31m\ud800 \u27e6\xad\ue000"
    )
    shown = attack
    for code in (0x202E, 0, 0x1B, 0xD800, 0x27E6, 0xAD, 0xE000):
        shown = shown.replace(chr(code), f"‹U+{code:04X}›")
    sums = {"read": 1, "kept": 1, "truncated": 0, "dropped": {}, "rejected": {}}
    page = page_of(
        (excerpt(Piece(attack, True, False, 1), Piece(attack, False, True, 0)),),
        first_rejects={"not_json": first_example(attack)},
        first_examples={"parity_turns_context": first_example(attack) | {"source": attack}},
        special_tokens_in_content={attack: 1},
        sources=[{"name": attack, "records": sums, "rows": 1, "tokens": 1, "trained_tokens": 1}],
        job=manifest_by_hand()["job"]
        | {"recipe": {attack: attack}, "tokenizer_name": attack, "options": {"a": attack}},
    )
    found = _Texts(page)
    assert found.text.count(shown) == 9
    assert not {"img", "b"} & (found.elements - _Texts(page_of()).elements)
    assert page.count("<script") == 2 and "alert(1)</script" not in page


def test_parts_of_turns_are_named_and_have_classes():
    page = page_of((excerpt(Piece("Hm.", True, False, 1, "reasoning"), Piece("<e>", True, True, 0, "end")),))
    assert '<mark class=" part reasoning" title="reasoning">Hm.</mark>' in page
    assert '<mark class="special part end" title="end">&lt;e&gt;</mark>' in page


def test_texts_of_any_size_are_cut():
    huge = "x" * 10_000_000
    page = page_of((excerpt(Piece(huge, True, False, 1)),), first_rejects={"not_json": first_example(huge)})
    assert len(page) < 600_000
    assert "x (9,960,000 more characters)" not in page and "… (9,960,000 more characters)" in page
    assert "… (9,999,600 more characters)" in page


def test_page_of_a_million_shards_is_that_of_one_with_other_sums():
    (shard,) = manifest_by_hand()["shards"]
    page = page_of(shards=[shard] * 1_000_000)
    assert "1,000,000" in page and "3,000,000" in page and "2.0 GB" in page
    assert len(page) < len(page_of()) + 200


def test_long_tables_end_with_the_sum_of_the_rest():
    page = _Texts(page_of(special_tokens_in_content={f"user <{i}>": i for i in range(1, 101)})).text
    assert "user <100>" in page and "user <61>" in page and "user <60>" not in page
    assert "60 others, in manifest.json" in page and f"{sum(range(1, 61)):,}" in page


def test_dataset_of_an_earlier_version_has_the_parts_that_it_knows():
    manifest = manifest_by_hand()
    del manifest["statistics"], manifest["first_rejects"], manifest["job"]["recipe"]
    page = _Texts(make_report(manifest, []).decode()).text
    assert "Outcomes of records" in page and "Sources" in page
    assert "What a max_length would lose" not in page and "This recipe" not in page


def test_recipe_allows_the_rejects_that_the_dataset_has():
    assert "max_reject_fraction: 0.25" in page_of()
    few = manifest_by_hand()["records"] | {"read": 1000, "kept": 993}
    assert "max_reject_fraction" not in page_of(records=few)


def test_what_stands_out_is_listed_first():
    page = _Texts(page_of()).text
    assert "4 of 16 records (25.0%) were rejected, most often as not_json." in page
    assert "10 trained tokens of 3 records lost to --max_length 270 (--truncation windows loses none)." in page
    differing = "4 trained turns of 10 of 198 records not as at inference: context 4, as chats.jsonl, byte 1,234 ("
    assert differing + "--parity expand writes" in page
    lost = "8 records with a last answer whose reasoning the template does not print: a model does not learn to"
    assert lost in _Texts(page_of(notes={"reasoning_not_printed": 9, "last_reasoning_not_printed": 8})).text
    nothing = {"read": 10, "kept": 10, "truncated": 0, "dropped": {}, "rejected": {}}
    notes = {"reasoning_not_printed": 9}
    fine = page_of(records=nothing, trained_tokens_lost=0, notes=notes, rendered_by_reference={})
    assert "Nothing stands out" in fine


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [(0, 0, "0%"), (0, 5, "0%"), (1, 10**6, "<0.01%"), (1, 200, "0.50%"), (1, 3, "33.3%"), (9999, 10**4, ">99.9%"),
     (5, 5, "100%")],
)  # fmt: skip
def test_only_nothing_is_0_percent_and_only_the_whole_is_100(part, whole, shown):
    assert _share(part, whole) == shown
