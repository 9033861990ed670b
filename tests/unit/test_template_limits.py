"""Limits of templates: one that loops, doubles or never ends costs its record, in every way in which it is rendered."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest

from support.chats import assistant, user
from support.paths import TOKENIZER
from transforms.chat import limits
from transforms.chat.config import RenderConfig
from transforms.chat.template import load_template
from transforms.chat.transformers_jinja import compile_template
from transforms.errors import RecordError, UserError
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
SIXTY_TIMES = (
    "{% set n = namespace(x=START) %}{% for i in range(60) %}{% set n.x = NEXT %}{% endfor %}{{ n.x is none }}"
)
# Lists of the same two lists, again and again: they take no memory until something is done with them.
LISTS = SIXTY_TIMES.replace("START", "[1]").replace("NEXT", "[n.x, n.x]").replace("n.x is none", "END")
TWO_LISTS = LISTS.replace("{{ END }}", "").replace("n.x", "k.x").replace("set n =", "set k =") + LISTS
LONG_LIST = "{% set a = ['a' * 1000000] * 1000000 %}"
LOOPS = "{% for i in range(100000) %}{% for j in range(100000) %}BODY{% endfor %}{% endfor %}"
# Each would take hours, or gigabytes.
ENDLESS = {
    "loops": LOOPS,
    "loops that print": LOOPS.replace("BODY", "{{ i }}"),
    "loops with a condition": "{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}{% endfor %}",
    "loops in a block": "{% set x %}" + LOOPS.replace("BODY", "{{ messages[0].content }}") + "{% endset %}",
    "macros": "".join(
        f"{{% macro m{i}() %}}{{{{ m{i - 1}() }}}}{{{{ m{i - 1}() }}}}{{% endmacro %}}"
        if i
        else "{% macro m0() %}{% endmacro %}"
        for i in range(60)
    )
    + "{{ m59() }}",
    "blocks": "".join(
        f"{{% block b{i} %}}{{{{ self.b{i + 1}() }}}}{{{{ self.b{i + 1}() }}}}{{% endblock %}}" for i in range(60)
    )
    + "{% block b60 %}{% endblock %}",
    "doubling": SIXTY_TIMES.replace("START", "'a'").replace("NEXT", "n.x ~ n.x"),
    "doubling with +": SIXTY_TIMES.replace("START", "messages[0].content").replace("NEXT", "n.x + n.x"),
    "doubling a list": SIXTY_TIMES.replace("START", "[1]").replace("NEXT", "n.x + n.x"),
    "macro that doubles": "{% macro m(x) %}{{ m(x ~ x) }}{% endmacro %}{{ m('a') }}",
    "times": "{{ 'a' * 3000000000 }}",
    "times of a variable": "{{ 3000000000 * messages[0].content }}",
    "list times": "{{ ([1] * 3000000000) | length }}",
    "power": "{{ 10 ** 10000000000 }}",
    "power of powers": SIXTY_TIMES.replace("START", "3").replace("NEXT", "n.x * n.x"),
    "%": "{{ '%3000000000d' % 1 }}",
    "% with a width": "{{ '%*d' % (3000000000, 1) }}",
    "format": "{{ '{:>3000000000}'.format(1) }}",
    "format with a width": "{{ '{:>{}}'.format(1, 3000000000) }}",
    "filter format": "{{ '%3000000000d' | format(1) }}",
    "ljust": "{{ 'a'.ljust(3000000000) }}",
    "ljust of a message": "{{ messages[0].content.ljust(3000000000) }}",
    "zfill": "{{ 'a'.zfill(3000000000) }}",
    "expandtabs": "{{ '\t'.expandtabs(2000000000) }}",
    "replace": "{% set a = 'a' * 1000000 %}{{ a.replace('a', a) }}",
    "filter replace": "{% set a = 'a' * 1000000 %}{{ a | replace('a', a) }}",
    "join": "{% set a = 'a' * 1000000 %}{{ a.join(['b'] * 10000) }}",
    "filter join": "{% set a = 'a' * 1000000 %}{{ ([a] * 10000) | join('b') }}",
    "center": "{{ 'a' | center(3000000000) }}",
    "indent": "{{ 'a\nb' | indent(3000000000) }}",
    "tojson": "{{ [1] | tojson(indent=2000000000) }}",
    "batch": "{{ [1] | batch(3000000000, 'a') | list | length }}",
    "lipsum": "{{ lipsum(n=1000000000) }}",
    "lists that are printed": LISTS.replace("END", "n.x"),
    "lists with ~": LISTS.replace("END", "n.x ~ 'a'"),
    "lists that are compared": TWO_LISTS.replace("END", "n.x == k.x"),
    "lists in a list": TWO_LISTS.replace("END", "n.x in [k.x]"),
    "lists tojson": LISTS.replace("END", "n.x | tojson"),
    "lists join": LISTS.replace("END", "n.x | join"),
    "lists with +": LISTS.replace("[n.x, n.x]", "[n.x] + [n.x]").replace("END", "n.x"),
    "lists with *": LISTS.replace("[n.x, n.x]", "[n.x] * 2").replace("END", "n.x"),
    "tuples": LISTS.replace("[n.x, n.x]", "(n.x, n.x)").replace("END", "{n.x: 1}"),
    "dicts": LISTS.replace("[n.x, n.x]", "{'a': n.x, 'b': n.x}").replace("END", "n.x"),
    "dict()": LISTS.replace("[n.x, n.x]", "dict(a=n.x, b=n.x)").replace("END", "n.x"),
    "namespaces": LISTS.replace("[n.x, n.x]", "namespace(a=n.x, b=n.x)").replace("END", "n.x"),
    "arguments of macros": (
        "{% macro m(n) %}{% if n %}{{ m(n - 1, varargs, varargs) }}{% else %}{{ varargs }}{% endif %}{% endmacro %}"
        "{{ m(60, 1) }}"
    ),
    "batch of lists": LISTS.replace("[n.x, n.x]", "[n.x] | batch(2, n.x) | list").replace("END", "n.x"),
    "list of long texts": LONG_LIST + "{{ a }}",
    "format of a list": LONG_LIST + "{{ '{}'.format(a) }}",
    "sum of lists": LISTS.replace("[n.x, n.x]", "[n.x, n.x] | sum(start=[])").replace("END", "n.x | length"),
    "map of long texts": LONG_LIST + "{{ ([''] * 9999) | map('default', a[0], true) | map('upper') | list }}",
    "tojson with indentation of what is nested": (
        "{% set n = namespace(x=range(9999) | list) %}{% for i in range(50) %}{% set n.x = [n.x] %}{% endfor %}"
        "{{ n.x | tojson(indent=1000) }}"
    ),
    "tojson with long separators": "{{ range(9999) | list | tojson(separators=('a' * 1000000, ':')) }}",
    "bytes": "{{ ('a'.encode() * 3000000000) | length }}",
    "print": "{% set a = 'a' * 1000000 %}{% for i in range(100000) %}{{ a }}{% endfor %}",
}
each_endless = pytest.mark.parametrize("template", ENDLESS.values(), ids=ENDLESS.keys())


def config(template: str, **options) -> RenderConfig:
    return RenderConfig(tokenizer=str(TOKENIZER), chat_template=template, now="2026-01-01", **options)


def batch_of(conversation: Conversation) -> Examples:
    split = Split(0, (Slice("a.jsonl", "jsonl", None, 0, 1),))
    example = Example(0, conversation, {}, False, b"{}")
    return Examples(split=split, part=0, last=True, outcomes=Outcomes(read=1), examples=[example])


@each_endless
def test_reference_refuses_it_in_bounded_time_and_memory(monkeypatch, template):
    monkeypatch.setattr(limits, "_MAX_STEPS", 20_000)
    monkeypatch.setattr(limits, "MAX_TEXT_BYTES", 4 * MEGA)
    chat_template = load_template(config(CHAT + template, max_text_bytes=4 * MEGA))
    began = time.thread_time()
    tracemalloc.start()
    with pytest.raises(RecordError) as refused:
        chat_template.render(Conversation(MESSAGES))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused.value.reason == "template_limit"
    assert peak < 96 * MEGA
    assert time.thread_time() - began < 60


@pytest.mark.parametrize("name", ["loops", "doubling", "macros", "replace", "print", "lists that are printed"])
@pytest.mark.parametrize("engine", ["fast", "reference"])
@pytest.mark.parametrize("tools", [None, [{"type": "function", "function": {"name": "f"}}]], ids=["", "tools"])
def test_record_is_rejected_by_both_engines(monkeypatch, name, engine, tools):
    monkeypatch.setattr(limits, "_MAX_STEPS", 20_000)
    monkeypatch.setattr(limits, "MAX_TEXT_BYTES", 4 * MEGA)
    renderer = Renderer(config(CHAT + ENDLESS[name], engine=engine, unprinted="report", max_text_bytes=4 * MEGA))
    [reject] = renderer(batch_of(Conversation(MESSAGES, tools))).outcomes.rejects
    assert reject.reason == "template_limit"


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


def test_steps_that_take_long_are_ended(monkeypatch):
    monkeypatch.setattr(limits, "_MAX_SECONDS", 0.5)
    statements = "{% set a = 'ab ' * 1000000 %}" + "{% set b = a.title() %}" * 200
    with pytest.raises(RecordError, match=r"takes more than 0\.5 s of the processor"):
        load_template(config(CHAT + statements)).render(Conversation(MESSAGES))
    constants = "{{ 'ab' | center(9000000) | upper | length }}" * 300  # they are evaluated when it is compiled
    with pytest.raises(UserError, match=r"the chat template takes more than 0\.5 s of the processor\.$"):
        compile_template(constants)


def test_lists_that_a_template_adds_to_for_each_message_are_far_from_the_limit():
    adds = "{% set n = namespace(x=[]) %}{% for m in messages %}{% set n.x = n.x + [m] %}{% endfor %}{{ n.x | length }}"
    messages = [user("Hello " * 10), assistant("Hi")] * 4000
    assert load_template(config(adds)).render(Conversation(messages)) == "8000"


def test_text_is_the_same_as_that_of_transformers():
    from transformers.utils.chat_template_utils import _compile_jinja_template

    template = (
        "{% macro say(x, w=3) %}{% for c in x if c != 'l' %}{{ c ~ loop.index }}{% else %}-{% endfor %}{{ caller() }}"
        "{% endmacro %}{% for m in messages recursive %}{% call say(m.content) %}{{ m.role.center(20) }}{% endcall %}"
        "{% set x %}{{ m.content.replace('l', 'LL') }}{% endset %}{{ x + x + '!' }}{{ x ~ 1 ~ none }}{{ x * 2 }}"
        "{{ '%s-%5d' % (x, 3) }}{{ '{:>5}{}'.format(1, x) }}{{ [x, 'é'] | join(', ') }}{{ [[1]] | tojson(indent=2) }}"
        "{{ ['a'] + ['b'] }}{{ 2 ** 10 }}{{ 7 % 4 }}{{ x | indent(4, true) }}{{ ', '.join(m.keys()) }}"
        "{{ 'a\tb'.expandtabs(4) }}{{ [1, 2, 3] | batch(2, 'x') | list }}{{ x | wordwrap(3) }}{{ 1.5 * 2 }}"
        "{{ [m, [x, 1]] + [(2, x)] }}{{ {'a': [x], x: none} }}{{ [[1], [x]] | sum(start=[]) }}{{ [2, 3] | sum }}"
        "{{ [{'a': [1]}, {'a': [x]}] | sum(attribute='a', start=[]) }}{{ [1, 2] + [3] == [1, 2, 3] }}"
        "{{ dict(a=[m]) | tojson }}"
        "{{ messages | map(attribute='role') | list }}{{ (messages[1:] + messages[:1]) | tojson(indent=1) }}"
        "{% endfor %}{% block b %}{{ messages | length }}{% endblock %}{{ self.b() }}"
    )
    expected = _compile_jinja_template(template).render(messages=MESSAGES)
    assert load_template(config(template)).render(Conversation(MESSAGES)) == expected


def test_environment_of_transformers_stays_as_it_is():
    from transformers.utils.chat_template_utils import _compile_jinja_template

    source = "{{ 'a' * 3 }}{{ messages[0].content }} of transformers"
    compile_template(source)
    assert _compile_jinja_template(source).environment.code_generator_class is not limits.LimitedCode


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


@pytest.mark.slow
@pytest.mark.parametrize("command", ["build", "masks"])
def test_build_and_masks_end_with_one_line_if_the_first_records_do_it(tmp_path: Path, command):
    (tmp_path / "a.jsonl").write_text(
        '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n' * 3
    )
    (tmp_path / "t.jinja").write_text(CHAT + ENDLESS["doubling"])
    arguments = ["--input", "a.jsonl", "--tokenizer", str(TOKENIZER), "--chat_template", "t.jinja"]
    arguments += ["--output", "out"] if command == "build" else []
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", command, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": ""},
    )
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if "chat_template" in line]
    assert len(lines) == 1
    assert "makes a text of more than 67,108,864 characters (max_text_bytes)" in lines[0]
    assert "Traceback" not in done.stderr


def test_limits_do_not_depend_on_what_was_rendered_before():
    template = load_template(config(CHAT, max_text_bytes=1000))
    assert dataclasses.asdict(config(CHAT))["max_text_bytes"] == 64 * MEGA
    with pytest.raises(RecordError, match="max_text_bytes"):
        template.render(Conversation([user("x" * 2000)]))
    assert template.render(Conversation(MESSAGES))
