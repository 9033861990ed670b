"""Builds train on the stop tokens of generation_config.json or of the command line, and report turns without an end."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer

from support.chats import assistant, user
from support.command_line import chatmill
from support.datasets import build_in_process, read_manifest, read_rows, write_jsonl
from support.templates import CHATML
from support.tokenizers import save_tokenizer

MESSAGES = [user("2+2?"), assistant("4"), user("3+3?"), assistant("6")]
# Nothing closes a turn but the marker of the next one, and the markers leave it out.
TEMPLATE = (
    "{% for m in messages %}{{ '</s>' + m.role + ' ' }}{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '</s>assistant ' }}{% endif %}"
)


def built(tmp_path: Path, generation_config: object, *options: str) -> tuple[str, dict[str, int], str]:
    """Return what is trained on in the one row, the notes, and standard error."""
    tokenizer, output = Path(save_tokenizer(tmp_path / "tokenizer")), tmp_path / "out"
    (tokenizer / "generation_config.json").write_text(json.dumps(generation_config))
    corpus = write_jsonl(tmp_path / "chats.jsonl", [{"messages": MESSAGES}])
    done = build_in_process(
        f"--input={corpus}",
        f"--tokenizer={tokenizer}",
        f"--output={output}",
        f"--chat_template={TEMPLATE}",
        "--direct_num_workers=1",
        *options,
    )
    assert done.returncode == 0, done.stderr
    [row] = read_rows(output)
    trained = [token for token in row["labels"] if token != -100]
    return AutoTokenizer.from_pretrained(tokenizer).decode(trained), read_manifest(output)["notes"], done.stderr


def test_stop_token_of_the_generation_config_is_trained(tmp_path, capsys):
    without_markers = TEMPLATE.replace("{% generation %}", "").replace("{% endgeneration %}", "")
    trained, notes, errors = built(tmp_path, {"eos_token_id": [1]}, f"--chat_template={without_markers}")
    assert trained == "4</s>6"
    assert notes["turns_without_end"] == 1
    assert "warning: 1 trained turn without an end of turn: a model does not learn to stop" in errors
    assert list(tmp_path.glob("out/_chatmill/tokenizers/*/generation_config.json"))
    assert chatmill("stats", tmp_path / "out") == 0
    assert "\nend of turn\n1 turn that is trained on ends without one\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "ends", "warns"),
    [
        ((), ["</s> 2 100%"], False),
        (("--train_parts=content",), ["others 2 100%"], True),
        (("--max_length=82", "--truncation=keep_start"), ["</s> 1 50.0%", "others 1 50.0%"], False),
    ],
    ids=["whole turns", "without ends", "last turn cut"],
)
def test_ends_of_turn_are_counted_and_the_report_and_the_summary_say_if_there_are_none(tmp_path, options, ends, warns):
    template = "--chat_template=" + CHATML.replace("<|im_end|>", "</s>")
    _, _, errors = built(tmp_path, {"eos_token_id": 1}, template, *options)
    page = (tmp_path / "out" / "report.html").read_text()
    table = page.partition("Trained spans of the rows end with</caption>")[2].partition("</table>")[0]
    rows = [" ".join(html.unescape(re.sub("<[^>]+>", " ", row)).split()) for row in table.split("<tr>")[2:]]
    assert rows == ends
    warning = "one of 2 spans of trained tokens ends with an added token, such as <|im_end|>: a model may not learn to "
    warning += "stop (docs/masks.md)"
    assert (f"N{html.escape(warning)}." in page) == (f"chatmill: warning: n{warning}\n" in errors) == warns


def test_stop_token_of_the_command_line_is_trained_instead(tmp_path):
    trained, notes, errors = built(tmp_path, {"eos_token_id": 1}, "--eot_tokens=</s>user")
    assert (trained, notes["turns_without_end"]) == ("4</s>user6", 1)
    assert "--eot_tokens </s>user" not in errors
    assert "does not learn to stop there (--eot_tokens, with + before one that a last turn lacks: docs" in errors


def test_stop_token_that_may_be_mistyped_is_a_warning(tmp_path):
    _, _, errors = built(tmp_path, {"eos_token_id": 1}, "--eot_tokens=<|nope|>,</s>user")
    assert "chatmill: warning: --eot_tokens <|nope|>: neither the chat template nor the added tokens of the " in errors
    assert "--eot_tokens </s>user: " not in errors


def test_stop_token_that_the_vocabulary_cannot_express_is_a_user_error(tmp_path, capsys):
    words = Tokenizer(models.WordLevel({"<unk>": 0, "<|user|>": 1}, unk_token="<unk>"))
    words.save(str(tmp_path / "tokenizer.json"))
    config = {"tokenizer_class": "TokenizersBackend", "backend": "tokenizers", "unk_token": "<unk>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    corpus = write_jsonl(tmp_path / "chats.jsonl", [{"messages": MESSAGES}])
    given = [f"--input={corpus}", f"--tokenizer={tmp_path}", f"--chat_template={TEMPLATE}", f"--output={tmp_path}/out"]
    assert chatmill("build", *given, "--eot_tokens=<|user|>,<|tool|>") == 2
    assert "--eot_tokens <|tool|>: the tokenizer has no tokens for this text" in capsys.readouterr().err


def test_increment_with_other_stop_tokens_is_refused_and_one_with_another_temperature_is_not(tmp_path, capsys):
    tokenizer = Path(save_tokenizer(tmp_path / "tokenizer"))
    given = ["--append", f"--tokenizer={tokenizer}", f"--output={tmp_path}/out", f"--chat_template={TEMPLATE}"]
    configs = [{"eos_token_id": 1}, {"eos_token_id": [1], "temperature": 1}, {"eos_token_id": 2}]
    for number, (config, code) in enumerate(zip(configs, (0, 0, 2), strict=True)):
        (tokenizer / "generation_config.json").write_text(json.dumps(config))
        corpus = write_jsonl(tmp_path / f"{number}.jsonl", [{"messages": MESSAGES}])
        assert chatmill("build", f"--input={corpus}", "--direct_num_workers=1", *given) == code
    assert "the tokenizer's files differ" in capsys.readouterr().err
