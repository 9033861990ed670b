"""What is shown of a dataset: the summary of its build, the report, the card, and chatmill stats.

They have the figures of the manifest, say what stands out, and show names and texts as they are, whatever is in them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from contextlib import redirect_stderr, redirect_stdout
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import duckdb
import pytest
import yaml
from markdown_it import MarkdownIt
from rich.cells import cell_len
from transformers import AutoTokenizer

from support.chats import assistant, user
from support.command_line import chatmill
from support.datasets import read_manifest, read_rows, write_jsonl
from support.harms import edit_version
from support.kinds import build_dataset
from support.paths import CHATS, ROOT, TOKENIZER
from support.templates import CHATML
from transforms import Dataset

PLAIN = "x y"
HOSTILE = (
    "x`| <b>&*_ \u202e\x1b[31m {{7*7}} </script><script>alert(1)</script> <!-- ![a](https://b.c/d.png) &lt; $$1$$ "
    "__b__ ~~c~~ \\| ``\xad"
)
OPTIONS = ["--max_reject_fraction=0.9", "--max_length=300", "--packing=bfd", "--unprinted=report", "--provenance"]
OPTIONS += [f"--chat_template={CHATML}", "--direct_num_workers=1"]


class Shown(NamedTuple):
    """A dataset, and what its build printed."""

    folder: Path
    out: str
    err: str

    @property
    def report(self) -> str:
        return (self.folder / "report.html").read_text()

    @property
    def card(self) -> str:
        return (self.folder / "README.md").read_text()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Shown]:
    """Two datasets of a rich corpus: with plain and with hostile names of files and columns, roles and contents."""
    found = {}
    for kind, name in (("plain", PLAIN), ("hostile", HOSTILE)):
        folder = tmp_path_factory.mktemp(kind)
        chat = [user(f"{name} <|im_end|>"), assistant(f"{name} A", reasoning_content="First.")]
        records = [{"messages": chat, f"extra {number:02} {name}": "not read"} for number in range(60)]
        records += [{"messages": [{"role": name, "content": "x"}]}] * 3 + [{"messages": [user("nobody answers")]}]
        records += [{"messages": [user("q"), assistant(text)]} for text in ("word " * 1_000_000, "w")]
        write_jsonl(folder / f"{name.replace('/', '')}.jsonl", records)
        sources = [{"name": "all", "input": "*.jsonl"}]
        for number in range(9):
            (folder / f"n{number}").mkdir()
            write_jsonl(folder / f"n{number}" / "none.jsonl", [{"messages": "none"}])
            sources.append({"name": f"n{number}", "input": f"n{number}/"})
        recipe = {"sources": sources, "keep_columns": [name], "chat_template_kwargs": {"suffix": "/no_think"}}
        (folder / "recipe.yaml").write_text(json.dumps(recipe))
        given = [folder / "recipe.yaml", f"--tokenizer={TOKENIZER}", f"--output={folder / 'out'}"]
        out, err = StringIO(), StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setenv("COLUMNS", "80")
            assert chatmill("build", *given, *OPTIONS) == 0, err.getvalue()
        found[kind] = Shown(folder / "out", out.getvalue(), err.getvalue())
    return found


class Page(HTMLParser):
    """A page: its texts without scripts and styles, the names of its elements, and what is in some of them.

    figures: each number as it is printed, and where it is in the manifest. rows: of each excerpt its text, and the
    parts of it that are marked.
    """

    def __init__(self, page: str):
        super().__init__()
        self.text, self.elements, self.figures = "", set[str](), list[tuple[str, str]]()
        self.rows: list[tuple[str, list[str]]] = []
        self._in, self._pointer, self._is_row = "", None, False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in, self._pointer = tag, dict(attrs).get("data-of")
        self.elements.add(tag)
        if tag == "pre" and "Text of the row" in str(attrs):
            self._is_row = True
            self.rows.append(("", []))

    def handle_endtag(self, tag: str) -> None:
        self._is_row = self._is_row and tag != "pre"

    def handle_data(self, data: str) -> None:
        if self._pointer is not None:
            self.figures.append((self._pointer, data))
            self._pointer = None
        if self._in not in ("script", "style"):
            self.text += data
        if self._is_row and self._in in ("span", "mark"):
            text, marked = self.rows[-1]
            self.rows[-1] = text + data, [*marked, *([data] if self._in == "mark" else [])]


def visible(text: str) -> str:
    """A text as the report shows it: characters that cannot be seen are named."""
    return re.sub("[\u202e\x1b\xad]", lambda found: f"‹U+{ord(found[0]):04X}›", text)


# The report


def test_each_figure_of_the_page_is_that_of_the_manifest(shown):
    manifest, figures = read_manifest(shown["plain"].folder), Page(shown["plain"].report).figures
    assert {"/records/read", "/rows", "/statistics/limits/2048/tokens", "/sources/0/tokens"} <= {*dict(figures)}
    for pointer, text in figures:
        value = manifest
        for key in pointer.split("/")[1:]:
            value = value[int(key) if isinstance(value, list) else key.replace("~1", "/").replace("~0", "~")]
        assert f"{value:,}" == text, pointer


def test_hostile_texts_are_shown_as_text(shown):
    page, plain = Page(shown["hostile"].report), Page(shown["plain"].report)
    assert not page.elements - plain.elements
    assert page.text.count(visible(HOSTILE)) >= 10 and plain.text.count(PLAIN) >= 10
    assert shown["hostile"].report.count("<script") == shown["plain"].report.count("<script") == 2
    assert not {*"\u202e\x1b\xad"} & {*shown["hostile"].report}


def test_policy_allows_what_is_in_the_page_by_its_hash_and_nothing_else(shown):
    page = shown["hostile"].report
    policy = re.search('Content-Security-Policy" content="([^"]*)"', page)[1].replace("&#39;", "'")
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in re.findall("<(?:style|script)>(.*?)</(?:style|script)>", page, re.DOTALL)
    ]
    assert len(hashes) == 2 and not re.search(r' (style|on\w+)="', page)
    assert policy == (
        f"default-src 'none'; style-src {hashes[0]}; script-src {hashes[1]}; base-uri 'none'; form-action 'none'"
    )


def test_long_texts_and_tables_are_cut_and_end_with_what_is_left(shown):
    page = shown["plain"].report
    assert len(page) < 200_000 and "others, in manifest.json" in Page(page).text


def test_what_stands_out_is_listed_first(shown):
    found = Page(shown["plain"].report).text.partition("Outcomes of records")[0]
    lost = read_manifest(shown["plain"].folder)["trained_tokens_lost"]
    assert "12 of 75 records (16.0%) were rejected, most often as bad_message." in found
    assert re.search(f"{lost:,} trained tokens of 1 records? lost to --max_length 300 ", found)
    assert "60 records with a last answer whose reasoning the template does not print" in found


@pytest.mark.parametrize("kind", ["turns", "windows_and_pack", "windows"])
def test_excerpts_are_rows_of_the_dataset_with_their_trained_tokens(kind):
    rows = [row for split in ("train", "validation") for row in read_rows(build_dataset(kind), split)]
    decode = AutoTokenizer.from_pretrained(TOKENIZER).decode
    labels = ([label for label in row["labels"] if label != -100] for row in rows)
    trained = {visible(decode(row["input_ids"])): visible(decode(of)) for row, of in zip(rows, labels, strict=True)}
    excerpts = Page((build_dataset(kind) / "report.html").read_text()).rows
    assert len(excerpts) == 10
    for text, marked in excerpts:
        # Of a row with shifted labels, the last token is in the labels alone.
        found = [row for row in trained if text == row or ("_and_" in kind and text.startswith(row))]
        assert "".join(marked) in [trained[row] for row in found]


# The summary, and chatmill stats


def test_warnings_are_few_lines_that_say_where_to_read_more(shown):
    lines = [line for line in shown["plain"].err.splitlines() if "warning: " in line]
    special = "special tokens in contents: user <|im_end|> 60 ("
    for what in (special, "--max_length 300 (", "reasoning the template", "of the source n0"):
        assert any(what in line for line in lines), what
    assert "the same for 5 more sources (manifest.json lists them)" in lines[-1]
    assert all(line.startswith("chatmill: ") and len(line) <= 170 for line in lines) and len(lines) < 10


def test_the_summary_of_a_usual_corpus_fits_one_screen(build, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    options = [f"--input={CHATS}", f"--tokenizer={TOKENIZER}", f"--output={tmp_path / 'out'}", "--direct_num_workers=1"]
    ended = build(*options, "--packing=bfd", "--max_length=256", "--as_chat")
    lines = (ended.out + ended.err).replace(str(tmp_path), "").splitlines()
    lines = [line for line in lines if not line.endswith(" tokens/s")]  # progress, of a slow machine
    assert sum(max(-(-cell_len(line.rstrip()) // 80), 1) for line in lines) <= 24
    manifest = read_manifest(tmp_path / "out")
    lost = manifest["trained_tokens_lost"]
    assert f"truncated), {lost / (lost + manifest['trained_tokens']):.1%} of trained tokens lost.\n" in ended.out
    beyond = manifest["statistics"]["limits"]["2048"]["trained_tokens"]
    assert f"to --max_length 256 (2048 loses {beyond:,}, --truncation windows loses none)\n" in ended.err


def test_outcomes_that_no_record_has_take_no_line_and_names_are_shown_as_they_are(build, tmp_path):
    """Also names that look like markup; the preview of data with tools begins near the first trained token."""
    tool = {"type": "function", "function": {"name": "search", "description": "word " * 300, "parameters": {}}}
    chat = {"tools": [tool], "messages": [user("Find it.\n" * 5), assistant("I did.\nHere it is.")]}
    corpus, output = write_jsonl(tmp_path / "a.jsonl", [chat] * 3), tmp_path / "x[" / "o]"
    ended = build(f"--input={corpus}", f"--tokenizer={TOKENIZER}", "--keep_columns=[/b]", f"--output={output}")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("All 3 records in the dataset.\nrecords read ") and "records without [/b]" in ended.out
    assert not re.search("truncated|dropped|rejected", ended.out)
    preview = ended.out.partition("near its first trained token")[2]
    assert "⟦I did.↵Here it is.<|im_end|>↵⟧" in preview.replace("\n", "")
    assert f"The dataset is in {output}. Load it with:" in ended.out


def test_the_share_of_answers_that_are_labelled_as_bad_is_a_warning(build, tmp_path):
    chat = {"messages": [user("Hi"), assistant("Hello")]}
    records = [{**chat, "label": label} for label in (False, True, True, True, True, True, 0, 1)]
    corpus = write_jsonl(tmp_path / "a.jsonl", records)
    ended = build(f"--input={corpus}", f"--tokenizer={TOKENIZER}", f"--output={tmp_path / 'out'}")
    text = "1 record dropped (12.5%) whose label or kto_tag is false (docs/records.md)"
    assert ended.err == f"chatmill: warning: {text}\n"
    manifest = read_manifest(tmp_path / "out")
    assert manifest["records"]["dropped"] == {"undesirable": 1} and manifest["records"]["kept"] == 7
    assert manifest["notes"]["label_not_understood"] == 1


def test_a_source_without_a_token_in_the_dataset_is_a_warning(build, tmp_path):
    """Examples of two sources are in one row, which begins with that of the first."""
    chats = {"long": [user("Hi"), assistant("Hello " * 9)], "short": [user("Hi"), assistant("Hello")]}
    chats["silent"] = [user("Hi")]
    inputs = {name: str(write_jsonl(tmp_path / f"{name}.jsonl", [{"messages": chats[name]}])) for name in chats}
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(json.dumps({"sources": [{"name": name, "input": inputs[name]} for name in inputs]}))
    options = ["--shuffle=global", "--shards=1", "--packing=bfd", "--max_length=256", f"--tokenizer={TOKENIZER}"]
    ended = build(recipe, *options, f"--output={tmp_path / 'out'}")
    assert ended.err == "chatmill: warning: no row of the source silent in the dataset\n"
    assert [source["rows"] for source in read_manifest(tmp_path / "out")["sources"]] == [1, 0, 0]


def test_first_record_of_each_outcome_is_in_the_manifest(build, tmp_path):
    """Of the first file the second record, and of the second file the first one."""
    good, long = ({"messages": [user("a b c"), assistant(text)]} for text in ("one", "two " * 40))
    untrained, lost = {"messages": [user("nobody answers")]}, {"messages": [user("two " * 40), assistant("one")]}
    write_jsonl(tmp_path / "1.jsonl", [good, untrained, lost])
    write_jsonl(tmp_path / "2.jsonl", [long, untrained, long])
    options = [f"--input={tmp_path / '*.jsonl'}", f"--tokenizer={TOKENIZER}", f"--output={tmp_path / 'out'}"]
    assert build(*options, "--max_length=32").code == 0
    manifest = read_manifest(tmp_path / "out")
    first, truncated = manifest["first_drops"]["no_trained_tokens"], manifest["first_examples"]["truncated"]
    assert (first["file"], first["position"]) == (str(tmp_path / "1.jsonl"), f"byte {len(json.dumps(good)) + 1:,}")
    assert first["detail"].endswith("tokens, 0 of them to be trained on")
    assert (truncated["file"], truncated["position"]) == (str(tmp_path / "2.jsonl"), "byte 0")
    assert truncated["detail"] == "23 tokens, 23 of them to be trained on, are in no row"


def stats(folder: Path, capfd: pytest.CaptureFixture[str], *options: str) -> str:
    capfd.readouterr()
    assert chatmill("stats", folder, *options) == 0
    out, err = capfd.readouterr()
    assert not err
    return out


def test_stats_fit_80_columns_and_are_the_statistics_of_the_manifest(capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    folder = build_dataset("packed")
    manifest, out = read_manifest(folder), stats(folder, capfd)
    statistics, notes = manifest["statistics"], manifest["notes"]
    assert json.loads(stats(folder, capfd, "--json")) == statistics
    assert max(map(len, out.splitlines())) <= 80 and "\x1b" not in out
    for title in ("messages of a conversation", "tokens of a row", "messages by role", "examples by schema"):
        assert title in out
    limits = next(line for line in out.splitlines() if line.strip().startswith("2,048 "))
    assert [int(number.replace(",", "")) for number in limits.split()[1::2]] == [*statistics["limits"]["2048"].values()]
    assert f"{statistics['roles']['assistant']:,}" in out
    assert f"to {statistics['histograms']['example_tokens']['max']:,};" in out
    checked, left = notes["parity_records_checked"], notes["parity_records_not_checked"]
    compared = f"{notes['parity_turns_checked']:,} turns of {checked:,} of {checked + left:,} records were compared"
    line = " ".join(out.partition("parity with inference\n")[2].split())
    assert line == f"{compared}: {notes.get('parity_turns_differing', 0):,} differ"
    lines = out.partition("tokens of a row\n")[2].partition("\n\n")[0].splitlines()[1:]
    bars = re.findall(r"([\d,]+) +([\d.]+)% *\n", "\n".join(lines) + "\n")
    assert len(bars) == len(lines) and 1 < len(bars) <= 12
    assert sum(int(count.replace(",", "")) for count, _ in bars) == statistics["histograms"]["row_tokens"]["count"]
    assert sum(float(share) for _, share in bars) == pytest.approx(100, abs=1)


def test_what_trained_spans_end_with_is_shown_as_it_is(tmp_path, capfd):
    copy = Path(shutil.copytree(build_dataset("drop"), tmp_path / "out"))
    ends = {"[/bold]\x1b[1m": 1234, "others": 2}
    edit_version(copy, lambda of: of["total"]["statistics"].update(span_ends=ends))
    lines = stats(copy, capfd).partition("trained spans end with\n")[2].splitlines()[:2]
    assert [line.split() for line in lines] == [["[/bold]\\x1b[1m", "1,234"], ["others", "2"]]


def test_the_queries_of_the_documentation_have_results(shown):
    queries = re.findall(r"```sql\n(.*?)\n```", (ROOT / "docs/output.md").read_text(), re.DOTALL)
    assert len(queries) > 2
    for query in queries:
        assert duckdb.sql(query.replace("out/mine", str(shown["plain"].folder))).fetchall(), query


def test_commit_without_a_report_removes_that_of_an_earlier_commit(tmp_path):
    """The page would be that of the replaced version."""
    corpus = write_jsonl(tmp_path / "a.jsonl", [{"messages": [user("Hi"), assistant("Hello")]}])
    options = [f"--input={corpus}", f"--tokenizer={TOKENIZER}", f"--output={tmp_path}/out"]
    assert chatmill("build", *options) == 0 and (tmp_path / "out" / "report.html").exists()
    assert chatmill("build", *options, "--overwrite", "--report=none") == 0
    assert (tmp_path / "out" / "manifest.json").exists() and not (tmp_path / "out" / "report.html").exists()
    assert Dataset(f"{tmp_path}/out").version == 2


# The card


def markup_of(card: str) -> list[str]:
    """The kinds of all blocks and spans of a card, in order, and its code but for its recipe."""
    header, _, text = card.removeprefix("---\n").partition("\n---\n")
    assert yaml.safe_load(header)["configs"][0]["data_files"][0]["path"].startswith("data/train-")
    kinds = list[str]()
    for block in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text):
        kinds += [block.type, block.content if block.info == "python" else ""]
        kinds += [span.type for span in block.children or ()]
    return kinds


def test_names_change_no_markup_of_the_card_and_no_path_of_the_machine_is_in_it(shown):
    plain, hostile = shown["plain"].card, shown["hostile"].card
    assert markup_of(hostile) == markup_of(plain)
    assert not {*"\x1b\u202e\r\t"} & {*hostile}
    assert str(ROOT) not in plain and str(shown["plain"].folder.parent) not in plain
    assert 'model="YOUR MODEL"' in plain and "with the tokenizer `tokenizer`" in plain  # a folder cannot be loaded
    assert "chat_template_kwargs:\n  suffix: /no_think\n" in plain  # which is no path
    recipe = yaml.safe_load((shown["hostile"].folder / "recipe.yaml").read_text())
    assert (recipe["keep_columns"], recipe["max_reject_fraction"]) == ([HOSTILE], 0.16)


PACKED = ("--packing=bfd", "--max_length=4096")
NOT_TRL = "Axolotl, transformers' Trainer, SkyRL"
GUIDE = "".join((ROOT / f"docs/guide/{name}.md").read_text() for name in ("trl", "trainers")).replace(
    "out/sft", "out/mine"
)


@pytest.mark.parametrize(
    ("consumer", "options", "columns"),
    [
        ("trl", (), "input_ids labels"),
        ("trl", PACKED, "input_ids labels seq_lengths"),
        ("trainer", ("--max_length=4096",), "input_ids labels"),
        ("axolotl", ("--max_length=4096",), "input_ids attention_mask labels"),
        ("skyrl", (), "input_ids loss_mask"),
    ],
)
def test_a_trainer_gets_the_columns_that_it_reads_and_the_card_has_its_recipe_of_the_guide(
    build, tmp_path, consumer, options, columns
):
    corpus = write_jsonl(tmp_path / "a.jsonl", [{"messages": [user("Hi"), assistant("Hello")]}])
    given = [f"--input={corpus}", f"--tokenizer={TOKENIZER}", f"--output={tmp_path}/out", f"--for={consumer}", *options]
    ended = build(*given)
    assert (ended.code, ended.err) == (0, "")
    assert read_manifest(tmp_path / "out")["layout"]["columns"] == columns.split()
    card = (tmp_path / "out" / "README.md").read_text()
    code = re.findall(r"```\w*\n.*?```", card.partition("## Training")[2].partition("## Records")[0], re.DOTALL)
    assert len(code) == 1 and "Not for" not in card and f"for: {consumer}\n" in card
    assert ("packed with `bfd`, of at most 4,096 tokens" in card) == (options == PACKED)
    if options or consumer != "trl":  # the guide packs for TRL
        assert code[0].replace("PATH OF THIS FOLDER", "out/mine").replace("YOUR MODEL", "Qwen/Qwen3-8B") in GUIDE


@pytest.mark.parametrize(
    ("options", "not_for", "trap"),
    [
        (PACKED, NOT_TRL, None),
        ((*PACKED, "--write_columns=input_ids,labels"), f"TRL, {NOT_TRL}", "--write_columns"),
        ((*PACKED, "--write_columns=input_ids,labels,seq_lengths,attention_mask"), None, "--write_columns"),
        (("--shift_labels",), f"TRL, {NOT_TRL}", "--shift_labels"),
        (("--output_format=tfrecord",), None, "--output_format"),
        (
            ("--output_format=parquet,tfrecord", "--write_columns=input_ids,attention_mask,labels"),
            "Axolotl, SkyRL",
            None,
        ),
    ],
)
def test_traps_are_warned_of_if_the_trainer_is_not_known_and_the_card_names_them(
    build, tmp_path, options, not_for, trap
):
    corpus = write_jsonl(tmp_path / "a.jsonl", [{"messages": [user("Hi"), assistant("Hello")]}])
    ended = build(f"--input={corpus}", f"--tokenizer={TOKENIZER}", f"--output={tmp_path}/out", *options)
    assert ended.code == 0
    assert re.findall(r"warning: (--\w+)", ended.err) == ([trap] if trap else [])
    card = (tmp_path / "out" / "README.md").read_text()
    if not_for:
        assert ", ".join(re.findall("^Not for (.+?): ", card, re.MULTILINE)) == not_for
    assert ("**Careful**: " in card) == bool(trap)
