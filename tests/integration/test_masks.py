"""chatmill masks: shows what is trained on under a chat template."""

from __future__ import annotations

import re

import pytest

from support.chats import assistant, user
from support.command_line import chatmill
from support.datasets import write_jsonl
from support.paths import TOKENIZER
from support.templates import CHATML


@pytest.fixture
def masks(capfd):
    """Run the command in this process; return the exit code, standard output and standard error."""

    def run(*options: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = chatmill("masks", *options)
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
    code, out, _ = masks(f"--tokenizer={TOKENIZER}", f"--input={corpus}")
    assert code == 1
    assert "corpus.jsonl, byte 21, as messages\n" in out and "⟦Hello<|im_end|>\n⟧" in out
    assert "corpus.jsonl, byte 0\nrejected (bad_message)" in out
    assert "1 of 2 conversations have trained parts" in out and "1 would be rejected" in out


def test_a_record_that_a_formatter_drops_is_named_and_not_counted(masks, tmp_path):
    (tmp_path / "own.py").write_text("def chats(record):\n    return record if record['messages'] else []\n")
    chat = [user("Hi"), assistant("Hello")]
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [{"messages": []}, {"messages": chat}])
    code, out, err = masks(f"--tokenizer={TOKENIZER}", f"--input={corpus}", f"--formatter={tmp_path}/own.py:chats")
    assert (code, err) == (0, "corpus.jsonl, byte 0: dropped (filtered)\n")
    assert "1 of 1 conversations have trained parts" in out


def test_a_comma_in_the_name_of_an_input_is_written_with_a_backslash(masks, tmp_path):
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    for name in ("a,b", "c"):
        write_jsonl(tmp_path / f"{name}.jsonl", [{"messages": chat}])
    code, out, _ = masks(f"--tokenizer={TOKENIZER}", f"--input={tmp_path}/a\\,b.jsonl,{tmp_path}/c.jsonl")
    assert code == 0 and "a,b.jsonl, byte 0" in out and "c.jsonl, byte 0" in out


def test_a_template_that_marks_nothing_trains_on_nothing(masks, tmp_path):
    empty = CHATML.replace("{%- endfor -%}", "{%- generation -%}{%- endgeneration -%}{%- endfor -%}")
    conversation = {"messages": [user("Hi"), assistant("Hello")]}
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [conversation] * 3)
    code, out, _ = masks(f"--tokenizer={TOKENIZER}", f"--chat_template={empty}", f"--input={corpus}")
    assert code == 0
    assert out.count("nothing in this conversation is trained on:\n") == 3
    assert "0 of 3 conversations have trained parts (between ⟦ and ⟧); 3 have none and would be dropped" in out


def test_a_conversation_without_a_mask_is_shown_with_exit_code_1(masks):
    twice = "{% for m in messages %}{{ m.content }}{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}"
    code, out, _ = masks(f"--tokenizer={TOKENIZER}", f"--chat_template={twice}")
    assert code == 1
    assert "rejected (spans_not_established): the template prints messages[2] in 2 places" in out


def test_keys_that_the_template_does_not_read_are_named(masks, tmp_path):
    corpus = write_jsonl(tmp_path / "moods.jsonl", [{"messages": [user("Hi"), assistant("Hello") | {"mood": "glad"}]}])
    code, out, _ = masks(f"--tokenizer={TOKENIZER}", f"--input={corpus}")
    assert code == 0
    assert (
        "\nmoods.jsonl, byte 0, as messages\nnote: the chat template does not read messages[].mood\n<|im_start|>" in out
    )


def test_conversation_that_is_not_printed_is_rejected_as_in_a_build(masks):
    code, out, _ = masks(f"--tokenizer={TOKENIZER}", f"--chat_template={CHATML}")
    assert code == 1
    assert "rejected (not_printed): the chat template does not print the tool call of messages[1]" in out
    assert "note: the chat template does not print the reasoning_content of messages[1]" in out
    assert "2 of 3 conversations have trained parts" in out and "1 would be rejected" in out


def test_prompt_and_completion_has_its_own_mask(masks, tmp_path):
    prompt = [user("2+2?"), assistant("4"), user("3+3?")]
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [{"prompt": prompt, "completion": [assistant("6")]}])
    options = f"--tokenizer={TOKENIZER}", f"--chat_template={CHATML}", f"--input={corpus}"
    _, out, _ = masks(*options)
    assert "⟦6<|im_end|>\n⟧" in out and "⟦4" not in out
    _, out, _ = masks(*options, "--loss_on=assistant")
    assert "⟦6<|im_end|>\n⟧" in out and "⟦4<|im_end|>\n⟧" in out


NEXT_MARKER_CLOSES = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def test_stop_tokens_and_turns_that_close_with_nothing_are_shown(masks):
    _, out, _ = masks(f"--tokenizer={TOKENIZER}", f"--chat_template={NEXT_MARKER_CLOSES}")
    assert "follow an answer: none; --eot_tokens names them, or generation_config.json" in out
    assert "warning: nothing closes an answer before a question" in out
    assert "warning: nothing closes an answer at the end of the text" in out

    _, out, _ = masks(f"--tokenizer={TOKENIZER}", f"--chat_template={NEXT_MARKER_CLOSES}", "--eot_tokens=<|user|>")
    assert re.search(r"follow an answer: '<\|user\|>'( \(\d tokens\))?, from --eot_tokens\n", out)
    assert "end of an answer before a question: '<|user|>'\n" in out
    assert "⟦4<|user|>⟧And 3 + 3?" in out
    assert "warning: nothing closes an answer before a question" not in out
    assert "warning: nothing closes an answer at the end of the text" in out

    _, out, _ = masks(f"--tokenizer={TOKENIZER}", f"--chat_template={NEXT_MARKER_CLOSES}", "--eot_tokens=+<|user|>")
    assert "end of an answer at the end of the text: '<|user|>', which is appended\n" in out
    assert "6, of course.<|user|>⟧" in out


def test_template_that_ignores_the_generation_prompt_is_shown(masks):
    _, out, _ = masks(f"--tokenizer={TOKENIZER}", f"--chat_template={NEXT_MARKER_CLOSES.partition('{% if')[0]}")
    assert "warning: the template ignores add_generation_prompt" in out


def test_white_space_after_the_end_of_a_turn_that_is_not_trained_is_shown(masks):
    _, out, _ = masks(f"--tokenizer={TOKENIZER}", "--after_end=mask")
    assert "⟦4<|im_end|>⟧\n" in out


def test_parts_of_turns_that_are_not_chosen_are_not_between_the_marks(masks):
    code, out, _ = masks(f"--tokenizer={TOKENIZER}", "--train_parts=content")
    assert code == 0 and "parts of turns: reasoning, content, tool_calls, template, end, after_end" in out
    assert "⟦4⟧<|im_end|>" in out
