"""Builds train on the stop tokens of generation_config.json or of the command line, and report turns without an end."""

from __future__ import annotations

import json
from pathlib import Path

from support.chats import assistant, user
from support.command_line import chatmill
from support.datasets import build_in_process, manifest_of, rows_of, write_jsonl
from support.templates import CHATML
from support.tokenizers import save_tokenizer
from transforms.tokens.tokenizer import load_tokenizer

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
    [row] = rows_of(output)
    trained = [token for token in row["labels"] if token != -100]
    return load_tokenizer(str(tokenizer)).decode(trained), manifest_of(output)["notes"], done.stderr


def test_stop_token_of_the_generation_config_is_trained(tmp_path, capsys):
    without_markers = TEMPLATE.replace("{% generation %}", "").replace("{% endgeneration %}", "")
    trained, notes, errors = built(tmp_path, {"eos_token_id": [1]}, f"--chat_template={without_markers}")
    assert trained == "4</s>6"
    assert notes["turns_without_end"] == 1
    assert "warning: 1 trained turn without an end of turn: a model does not learn to stop" in errors
    assert list(tmp_path.glob("out/_chatmill/tokenizers/*/generation_config.json"))
    assert chatmill("stats", tmp_path / "out") == 0
    assert "\nend of turn\n1 turn that is trained on ends without one\n" in capsys.readouterr().out


def test_white_space_after_the_stop_token_is_not_trained_if_that_is_chosen(tmp_path):
    template = "--chat_template=" + CHATML.replace("<|im_end|>", "</s>")
    for choice, expected in (("train", "4</s>\n6</s>\n"), ("mask", "4</s>6</s>")):
        folder = tmp_path / choice
        folder.mkdir()
        assert built(folder, {"eos_token_id": 1}, template, f"--after_end={choice}")[0] == expected


def test_stop_token_of_the_command_line_is_trained_instead(tmp_path):
    trained, notes, errors = built(tmp_path, {"eos_token_id": 1}, "--eot_tokens=</s>user")
    assert (trained, notes["turns_without_end"]) == ("4</s>user6", 1)
    assert "--eot_tokens </s>user" not in errors
    assert "does not learn to stop there (--eot_tokens, docs/masks.md)" in errors


def test_stop_token_that_may_be_mistyped_is_a_warning(tmp_path):
    _, _, errors = built(tmp_path, {"eos_token_id": 1}, "--eot_tokens=<|nope|>,</s>user")
    assert "chatmill: warning: --eot_tokens <|nope|>: neither the chat template nor the added tokens of the " in errors
    assert "--eot_tokens </s>user: " not in errors
