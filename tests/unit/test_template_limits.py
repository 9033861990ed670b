"""Limits of templates: one that never ends or prints too much costs its record; one that takes memory ends the run."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from support.chats import assistant, user
from support.paths import TOKENIZER
from transforms.base.errors import RecordError, UserError
from transforms.chat.config import RenderConfig
from transforms.chat.rendering import limits
from transforms.chat.rendering.template import load_template
from transforms.chat.rendering.transformers_jinja import compile_template
from transforms.model.batches import Examples, Slice, Split
from transforms.model.examples import Conversation, Example
from transforms.model.outcomes import Outcomes
from transforms.steps.render import Renderer

MEGA = 1 << 20
MESSAGES = [user("Hello"), assistant("Hi")]
CHAT = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
LOOPS = "{% for i in range(100000) %}{% for j in range(100000) %}BODY{% endfor %}{% endfor %}"
MACROS = "".join(
    f"{{% macro m{i}() %}}{{{{ m{i - 1}() }}}}{{{{ m{i - 1}() }}}}{{% endmacro %}}"
    if i
    else "{% macro m0() %}{% endmacro %}"
    for i in range(60)
)
# Each would take hours.
ENDLESS = {"loops": LOOPS, "loops in a block": "{% set x %}" + LOOPS + "{% endset %}", "macros": MACROS + "{{ m59() }}"}
DOUBLING = "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}"
GIGABYTE = 1 << 30


def config(template: str, **options) -> RenderConfig:
    return RenderConfig(tokenizer=str(TOKENIZER), chat_template=template, now="2026-01-01", **options)


def batch_of(conversation: Conversation) -> Examples:
    split = Split(0, (Slice("a.jsonl", "jsonl", None, 0, 1),))
    example = Example(0, conversation, {}, False, b"{}")
    return Examples(split=split, part=0, last=True, outcomes=Outcomes(read=1), examples=[example])


@pytest.mark.parametrize("name", ENDLESS)
@pytest.mark.parametrize("engine", ["fast", "reference"])
def test_record_whose_rendering_does_not_end_is_rejected_by_both_engines(monkeypatch, name, engine):
    monkeypatch.setattr(limits, "_MAX_SECONDS", 0.3)
    renderer = Renderer(config(CHAT + ENDLESS[name], engine=engine, unprinted="report"))
    [reject] = renderer(batch_of(Conversation(MESSAGES))).outcomes.rejects
    assert reject.reason == "template_limit"
    assert reject.detail == "the chat template takes more than 0.3 s of the processor"


@pytest.mark.parametrize("engine", ["fast", "reference"])
@pytest.mark.parametrize("roles", [("user", "assistant"), ("user", "assistant", "user", "assistant")])
def test_text_of_more_than_max_text_bytes_is_rejected(engine, roles):
    messages = [{"role": role, "content": "é" * 50} for role in roles]
    text = load_template(config(CHAT)).render(Conversation(messages))
    size = len(text.encode())
    assert len(text) < size
    of_size = Renderer(config(CHAT, engine=engine, max_text_bytes=size))
    smaller = Renderer(config(CHAT, engine=engine, max_text_bytes=size - 1))
    assert len(of_size(batch_of(Conversation(messages))).texts) == 1
    [reject] = smaller(batch_of(Conversation(messages))).outcomes.rejects
    assert reject.reason == "template_limit"


def test_template_that_takes_long_to_compile_is_a_user_error(monkeypatch):
    monkeypatch.setattr(limits, "_MAX_SECONDS", 0.3)
    constants = "{{ 'ab' | center(9000000) | upper | length }}" * 300  # they are evaluated when it is compiled
    with pytest.raises(UserError, match=r"the chat template takes more than 0\.3 s of the processor\.$"):
        compile_template(constants)


def test_template_that_is_too_long_or_nested_too_deeply_is_a_user_error():
    with pytest.raises(UserError, match=r"has 1,048,577 characters; expected at most 1,048,576"):
        compile_template("a" * (MEGA + 1))
    for nested in ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "{% if 1 %}" * 200 + "{% endif %}" * 200):
        with pytest.raises(UserError, match=r"nested too deeply"):
            compile_template(nested)


def test_a_long_conversation_is_far_from_the_limit():
    messages = [user("Hello"), assistant("Hi")] * 500
    squared = CHAT + "{% for m in messages %}{% for n in messages %}{% endfor %}{% endfor %}"
    assert load_template(config(squared)).render(Conversation(messages)).count("</s>") == 1000


def run(folder: Path, command: str, template: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command on twenty records, of which the last is another one, with limits that a shell sets before."""
    record = '{"messages": [{"role": "user", "content": "%s"}, {"role": "assistant", "content": "b"}]}\n'
    (folder / "a.jsonl").write_text(record % "a" * 19 + record % "bomb")
    (folder / "t.jinja").write_text(CHAT + template)
    arguments = ["--input", "a.jsonl", "--tokenizer", str(TOKENIZER), "--chat_template", "t.jinja"]
    arguments += ["--output", "out"] if command == "build" else []
    return subprocess.run(
        ["bash", "-c", f'{before} exec "$@"', "bash", sys.executable, "-m", "pipeline", command, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": os.environ["PATH"]},
    )


@pytest.mark.slow
@pytest.mark.parametrize("command", ["build", "masks"])
def test_build_and_masks_end_with_one_line_if_the_first_records_do_it(tmp_path: Path, command):
    done = run(tmp_path, command, "{% for i in range(70) %}{{ 'a' * 1000000 }}{% endfor %}")
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if "chat_template" in line]
    assert len(lines) == 1
    assert "and max_text_bytes is 67,108,864" in lines[0]
    assert "Traceback" not in done.stderr


def test_template_that_takes_too_much_memory_ends_the_run_with_one_line(tmp_path: Path):
    bomb = "{% if messages[0].content == 'bomb' %}" + DOUBLING + "{% endif %}"
    done = run(tmp_path, "build", bomb, f"ulimit -S -d {2 * GIGABYTE // 1024};")
    assert done.returncode == 1
    [line] = [line for line in done.stderr.splitlines() if "memory" in line]
    assert "a.jsonl, 1,672: " in line and "the chat template takes more memory than a process may have here" in line
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out" / "_SUCCESS").exists()


def test_commands_limit_the_memory_of_their_process_to_half_of_that_of_the_machine(tmp_path: Path):
    code = "from transforms.chat.rendering.limits import limit_memory; limit_memory()"
    code += "; import resource; print(resource.getrlimit(resource.RLIMIT_DATA)[0])"
    environment = {"PYTHONPATH": str(Path(__file__).parents[2])}
    limit = int(subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=True).stdout)
    assert limit == max(psutil.virtual_memory().total // 2, 4 * GIGABYTE)


def test_limits_do_not_depend_on_what_was_rendered_before():
    template = load_template(config(CHAT, max_text_bytes=1000))
    assert dataclasses.asdict(config(CHAT))["max_text_bytes"] == 64 * MEGA
    with pytest.raises(RecordError, match="max_text_bytes"):
        template.render(Conversation([user("x" * 2000)]))
    assert template.render(Conversation(MESSAGES))
