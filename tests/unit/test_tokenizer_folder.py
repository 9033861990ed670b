"""Folders of tokenizers: what is not a regular file of the folder is not read, and nothing in it is run."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from transformers import ByT5Tokenizer

from support.chats import assistant, user
from support.datasets import read_rows, write_jsonl
from support.paths import TOKENIZER
from transforms import ParameterError, UserError, render, tokenize

TEXT = "The wheel turns."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TOKENIZER, tmp_path / "tokenizer"))


def test_folder_that_is_a_link_to_another_one_is_not_read(folder, tmp_path, build):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "tool_use.jinja").write_text("secret")
    (folder / "additional_chat_templates").symlink_to(tmp_path / "outside")
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    chats = write_jsonl(tmp_path / "chats.jsonl", [{"messages": [user("Hi"), assistant("Hello")], "tools": tools}])
    ended = build("--input", chats, "--tokenizer", folder, "--output", tmp_path / "out")
    assert ended.code == 0, ended.err
    [row] = read_rows(tmp_path / "out")
    assert tokenize(["secret"], str(TOKENIZER))[0].tolist() != row["input_ids"]


def test_links_inside_of_the_folder_and_of_the_cache_of_the_hub_are_read(folder, tmp_path):
    content, ids = (folder / "tokenizer.json").read_bytes(), tokenize([TEXT], str(folder))[0].tolist()
    (folder / "tokenizer.json").rename(folder / "real")
    (folder / "tokenizer.json").symlink_to("real")
    assert tokenize([TEXT], str(folder))[0].tolist() == ids
    snapshot, blobs = tmp_path / "models--a" / "snapshots" / "1", tmp_path / "models--a" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "0123").write_bytes(content)
    (snapshot / "tokenizer.json").symlink_to("../../blobs/0123")
    shutil.copy(folder / "tokenizer_config.json", snapshot)
    assert tokenize([TEXT], str(snapshot))[0].tolist() == ids


def sparse(file: Path) -> None:
    with file.open("wb") as opened:
        opened.truncate(20 << 30)


@pytest.mark.parametrize(
    ("name", "make", "problem"),
    [
        ("vocab.txt", lambda file: file.symlink_to(TOKENIZER / "tokenizer.json"), "link to a file outside"),
        ("vocab.zero", lambda file: file.symlink_to("/dev/zero"), "link to a file outside"),
        ("vocab.gone", lambda file: file.symlink_to("gone"), "is not a regular file"),
        ("vocab.fifo", os.mkfifo, "is not a regular file"),
        ("tokenizer.model", sparse, "it has 21,474,836,480 bytes"),
        ("vocab.pkl", lambda file: file.write_bytes(b"cos\nsystem\n(S'true'\ntR."), "runs code when it is read"),
    ],
)
def test_what_is_no_regular_file_of_the_folder_or_may_hold_code_is_refused(folder, name, make, problem):
    make(folder / name)
    with pytest.raises(ParameterError, match=f"^[^\n]*{name}[^\n]*{problem}[^\n]*$"):
        tokenize([TEXT], str(folder))


def test_folder_without_tokenizer_json_is_refused(folder):
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ParameterError) as error:
        tokenize([TEXT], str(folder))
    assert str(error.value) == (
        f"tokenizer={str(folder)!r}: it has no tokenizer.json. Convert it with "
        "AutoTokenizer.from_pretrained(OLD).save_pretrained(NEW), and give NEW, which has one."
    )


def test_tokenizer_in_python_is_refused(folder):
    ByT5Tokenizer().save_pretrained(folder)
    with pytest.raises(UserError, match=r"^ByT5Tokenizer .* gives no offsets .* PreTrainedTokenizerFast"):
        tokenize([TEXT], str(folder))
    with pytest.raises(UserError, match="ByT5Tokenizer"):
        render([{"role": "user", "content": "Hi"}], tokenizer=ByT5Tokenizer(), chat_template="Hi")


def test_code_of_a_tokenizer_is_never_run(folder):
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["auto_map"] = {"AutoTokenizer": ["own.Own", "own.Own"]}
    config["tokenizer_class"] = "Own"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\nclass Own: pass\n")
    try:
        tokenize([TEXT], str(folder))
    except ValueError as error:
        assert "trust_remote_code" in str(error) or "custom code" in str(error)
    assert not (folder / "ran").exists()
