"""chatmill masks: shows what is trained on under a chat template."""

from __future__ import annotations

import pytest

from pipeline import cli
from support.datasets import write_jsonl
from support.paths import CHATS, TOKENIZER


@pytest.fixture
def masks(capfd):
    """Run the command in this process; return the exit code, standard output and standard error."""

    def run(*options: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = cli.masks([str(option) for option in options])
        return code, *capfd.readouterr()

    return run


def test_the_built_in_conversations_are_shown_with_their_trained_part(masks):
    code, out, err = masks(f"--tokenizer={TOKENIZER}")
    assert (code, err) == (0, "")
    assert "trained parts: marked by the template\n" in out
    assert "generation prompt: '<|im_start|>assistant\\n'" in out
    assert "⟦4<|im_end|>\n⟧<|im_start|>user\nAnd 3 + 3?<|im_end|>" in out
    assert "3 of 3 conversations have trained parts (between ⟦ and ⟧); 0 have none and would be dropped" in out


def test_conversations_of_the_user_are_shown_with_their_position(masks, tmp_path):
    corpus = write_jsonl(
        tmp_path / "corpus.jsonl",
        [
            {"messages": "none"},
            {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]},
        ],
    )
    code, out, err = masks(f"--tokenizer={TOKENIZER}", f"--input={corpus}")
    assert code == 0
    assert "corpus.jsonl, byte 21\n" in out and "⟦Hello<|im_end|>\n⟧" in out
    assert "corpus.jsonl, byte 0: rejected (bad_message)" in err


def test_a_template_that_prints_no_answer_trains_on_nothing(masks):
    code, out, _ = masks(f"--tokenizer={TOKENIZER}", "--chat_template={{ messages[0].content }}")
    assert code == 0
    assert out.count("nothing of this conversation is trained on:\n") == 3
    assert "0 of 3 conversations have trained parts (between ⟦ and ⟧); 3 have none and would be dropped" in out


def test_a_conversation_without_a_mask_is_shown_with_exit_code_1(masks):
    twice = "{% for m in messages %}{{ m.content }}{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}"
    code, out, _ = masks(f"--tokenizer={TOKENIZER}", f"--chat_template={twice}")
    assert code == 1
    assert "rejected (spans_not_established): the template prints messages[2] in 2 places" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--tokenizer is missing: give one, such as --tokenizer Qwen/Qwen3-8B."),
        (["--tokeniser=x"], "unknown option --tokeniser. Did you mean --tokenizer?"),
        (["corpus.jsonl"], "unexpected argument corpus.jsonl. Conversations need their option: --input corpus.jsonl"),
        ([f"--tokenizer={CHATS}"], "there is no tokenizer there"),
        (
            [f"--tokenizer={TOKENIZER}", f"--input={CHATS}/arithmetic.jsonl"],
            "there is no conversation among the first records",
        ),
    ],
)
def test_a_user_error_is_one_line(masks, options, message):
    code, out, err = masks(*options)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith("chatmill: ") and message in err
