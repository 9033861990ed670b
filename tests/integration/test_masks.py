"""chatmill masks: what is trained on under a template, to look at before a build."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pipeline.cli import run_command
from pipeline.masks import show_masks
from support.datasets import write_jsonl
from support.places import CHATS, ROOT, TOKENIZER


@pytest.fixture
def masks(capfd):
    """Shows masks in this process. Returns the exit code, and what was printed."""

    def run(*options: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run_command(lambda: show_masks([str(option) for option in options]))
        return code, *capfd.readouterr()

    return run


def test_the_built_in_conversations_are_shown_with_their_trained_part(masks):
    code, out, err = masks(f"--tokenizer={TOKENIZER}")
    assert (code, err) == (0, "")
    assert "generation markers: yes, they decide" in out
    assert "generation prompt: '<|im_start|>assistant\\n'" in out
    assert "⟦4<|im_end|>\n⟧<|im_start|>user\nAnd 3 + 3?<|im_end|>" in out
    assert "3 of 3 conversations have a mask, 0 are refused." in out


def test_conversations_of_the_users_own_are_shown_with_their_place(masks, tmp_path):
    corpus = write_jsonl(
        tmp_path / "corpus.jsonl",
        [
            {"messages": "none"},
            {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]},
        ],
    )
    code, out, err = masks(f"--tokenizer={TOKENIZER}", f"--input={corpus}")
    assert code == 0
    assert "corpus.jsonl, 21" in out and "⟦Hello<|im_end|>\n⟧" in out
    assert "corpus.jsonl, 0: rejected (bad_message)" in err


def test_a_template_that_is_refused_is_told_with_exit_code_1(masks):
    twice = "{% for m in messages %}{{ m.content }}{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}"
    code, out, _ = masks(f"--tokenizer={TOKENIZER}", f"--chat_template={twice}")
    assert code == 1
    assert "refused (spans_not_established): the template prints messages[2] in 2 places" in out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "required: --tokenizer"),
        ([f"--tokenizer={CHATS}"], "there is no tokenizer there"),
        (
            [f"--tokenizer={TOKENIZER}", f"--input={CHATS}/arithmetic.jsonl"],
            "no conversation is among its first records",
        ),
    ],
)
def test_a_mistake_is_one_line(masks, options, said):
    code, out, err = masks(*options)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith("chatmill: ") and said in err


def test_the_module_and_the_console_command_are_the_same_program():
    module = subprocess.run(
        [sys.executable, "-m", "pipeline.masks"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (module.returncode, module.stdout) == (2, "")
    console = "import sys; sys.argv = ['chatmill', 'masks']; from pipeline.cli import main; sys.exit(main())"
    command = subprocess.run([sys.executable, "-c", console], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (command.returncode, command.stderr) == (2, module.stderr)
