"""Conversations without a compiled template: text, mask and omissions of the reference, or they are left to it."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.chats import assistant, examples_of, render_config, user
from support.engines import of_any_engine
from support.templates import CHATML, DROPS_REASONING
from transforms import Conversation, Examples
from transforms.chat.fast.fast_jinja import Output, compile_fast, render_fast
from transforms.chat.fast.identity import NotFollowed, Sources
from transforms.chat.fast.tool_texts import ToolTexts
from transforms.chat.rendering.marks import mark_function, mark_loops
from transforms.chat.rendering.transformers_jinja import compile_template
from transforms.model.batches import Texts
from transforms.steps.render import Renderer

NOW = datetime(2026, 11, 20, 12)
TOOL = {
    "type": "function",
    "function": {"name": "weather", "description": "It <is>.", "parameters": {"type": "object"}},
}
CALL = {
    "type": "function",
    "id": "call00001",
    "function": {"name": "weather", "arguments": {"city": "Kyoto", "n": 2.0}},
}
TRAJECTORY: list[dict[str, Any]] = [
    {"role": "system", "content": "Help."},
    user(" What? "),
    assistant("", tool_calls=[CALL]),
    {"role": "tool", "tool_call_id": "call00001", "name": "weather", "content": '{"sky": "clear é"}'},
    assistant("Clear."),
]
TOOLS = """
{%- if tools %}{% for tool in tools %}{{ tool | tojson }}
{% endfor %}{% endif %}
{%- for message in messages -%}
    {{- '<|im_start|>' + message.role + '\\n' + message.content -}}
    {%- for call in message.tool_calls or [] %}{{ '<call>' + (call.function | tojson) }}{% endfor %}
    {{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


def rendered(template: str, examples: Examples, engine: str, **options: Any) -> Texts:
    config = render_config(template, now=NOW.isoformat(), loss_on="assistant", engine=engine, **options)
    return Renderer(config)(examples)


@pytest.mark.parametrize("kwargs", [{}, {"style": "brief"}])
def test_conversation_with_tools_calls_and_answers_is_not_left_to_the_reference(kwargs):
    texts = rendered(TOOLS, examples_of(Conversation(TRAJECTORY, [TOOL], kwargs)), "auto")
    assert texts.outcomes.rendered_by_reference == {}
    text = texts.texts[0]
    assert [text.text[start:stop] for start, stop in text.spans] == [
        '<call>{"name": "weather", "arguments": {"city": "Kyoto", "n": 2.0}}<|im_end|>\n',
        "Clear.<|im_end|>\n",
    ]


@pytest.mark.parametrize("depth", range(150, 900, 150))
def test_nesting_that_is_too_deep_for_the_fast_engine_is_left_to_the_reference(depth):
    nested: Any = "at the bottom"
    for _ in range(depth):
        nested = [nested]
    call = {"type": "function", "function": {"name": "weather", "arguments": {"city": nested}}}
    examples = examples_of([user("a"), assistant("", tool_calls=[call])], [user("a"), assistant("b")])
    assert of_any_engine(rendered(TOOLS, examples, "auto")) == of_any_engine(rendered(TOOLS, examples, "reference"))


def test_signatures_that_do_not_repeat_are_not_left_to_the_reference():
    conversations = [[user("a"), assistant("b")] * count for count in range(1, 41)]
    assert rendered(CHATML, examples_of(*conversations), "auto").outcomes.rendered_by_reference == {}


def trajectory(city: Any, answer: str, question: str = "What?", calls: int = 1) -> Conversation:
    call = {**CALL, "function": {"name": "weather", "arguments": {"city": city}}}
    seen = [{"role": "tool", "tool_call_id": f"call{n}", "content": answer} for n in range(calls)]
    turns = [user(question), assistant("", tool_calls=[call] * calls), *seen, assistant(answer)]
    return Conversation([{"role": "system", "content": "Help."}, *turns], [json.loads(json.dumps(TOOL))])


@pytest.mark.parametrize("of", ["tool", "call", "argument"])
def test_name_without_characters_is_printed_if_the_reference_says_so(of):
    conversation = trajectory("Kyoto", "Clear.")
    function = conversation.messages[2]["tool_calls"][0]["function"]
    if of == "tool":
        conversation.tools[0]["function"]["name"] = " \n"  # type: ignore[index]
    elif of == "call":
        function["name"] = ""
    else:
        function["arguments"] = {"": 1}
    examples = examples_of(conversation)
    for unprinted in ("report", "reject"):
        fast, reference = (rendered(TOOLS, examples, engine, unprinted=unprinted) for engine in ("auto", "reference"))
        assert of_any_engine(fast) == of_any_engine(reference)


@pytest.mark.parametrize("unprinted", ["report", "reject"])
def test_record_that_cannot_be_encoded_is_rejected_for_that_also_if_something_is_not_printed(unprinted):
    turns = [user("a"), assistant("b", reasoning_content="c"), user("d"), {"role": "developer", "content": "e"}]
    examples = examples_of([*turns, assistant("\ud800")], [*turns, assistant("f")])
    template = DROPS_REASONING.replace(
        "{%- for message in messages -%}", "{%- for message in messages if message.role != 'developer' -%}"
    )
    fast, reference = (rendered(template, examples, engine, unprinted=unprinted) for engine in ("auto", "reference"))
    assert of_any_engine(fast) == of_any_engine(reference)
    assert fast.outcomes.rejects[0].reason == "invalid_unicode"


def test_reasoning_that_is_dropped_is_reported_also_if_it_is_the_answer():
    def conversation(thought: str) -> Conversation:
        turns = [user("a"), assistant("b", reasoning_content=thought), user("c"), assistant("d", reasoning_content="e")]
        return Conversation(turns, [TOOL])

    template = DROPS_REASONING.replace("{%- for message", "{{ tools | tojson }}{%- for message", 1)
    examples = examples_of(*map(conversation, ("x", "y", "b", "d", "<think>", "x")))
    fast, reference = (rendered(template, examples, engine) for engine in ("auto", "reference"))
    assert of_any_engine(fast) == of_any_engine(reference)
    assert fast.outcomes.notes["reasoning_not_printed"] == 6
    assert fast.outcomes.rendered_by_reference == {}


def test_list_of_tools_is_known_by_its_content():
    texts = ToolTexts()
    first, second, other = (texts.known([{"name": "a", "n": n}]) for n in (1, 1, 1.0))
    assert second is first is not other
    assert first.tools == [{"name": "a", "n": 1}]
    for _ in range(2):
        assert texts.known([{"name": {1}}]).texts == {}  # not JSON


def test_no_text_of_tools_that_are_forgotten_is_given_for_others():
    texts = ToolTexts()
    for number in range(2000):
        known = texts.known([{"name": f"t{number}"}])
        assert known.texts == {}
        known.keep(0, f"{number}", Sources())


def printed_by_fast(source: str, values: dict[str, Any]) -> str:
    template = compile_fast(source)
    output = Output(template, Sources(None), None)
    render_fast(template, values, values["messages"], output)
    return output.text


@settings(max_examples=50)
@given(st.text(st.characters(codec="utf-8")), st.text('"\\/<zqSLOT0>é\n 🙂'))
def test_any_text_is_found_where_it_is_printed_also_in_json(content, argument):
    call = {**CALL, "function": {"name": "weather", "arguments": {"city": argument, argument + "x": [content]}}}
    messages = [user("?" + argument), assistant(content, tool_calls=[call]), user(content), assistant("!" + content)]
    examples = examples_of(Conversation(messages, [TOOL]))
    fast, reference = (rendered(TOOLS, examples, engine) for engine in ("auto", "reference"))
    assert of_any_engine(fast) == of_any_engine(reference)


SOURCES = """
{% for m in messages %}{{ m.items() | list | length }}{{ m.role }}{{ m['content'] }}{{ m.missing }}{% endfor %}
{{ messages[0].items is callable }}{{ messages[0].missing is defined }}{{ messages[0]['missing'] is defined }}
{{ extra.items.x }}|{{ extra['items'] }}|{{ extra.keys() | list }}|{{ extra.get('none', 'no') }}
{{ extra.name.upper() }}{{ '{}'.format(extra.name) }}{{ extra.name.format }}{{ extra.missing.other }}
{{ extra.pop('name') }}
{{ extra.update({'a': 1}) }}
{{ messages.append(1) }}
{{ messages[0].__class__ }}|{{ extra['__class__'] }}|{{ ''.__class__.mro() }}
{% set ns = namespace(a=1, b=extra) %}{% set ns.a = 2 %}{{ ns.a }}{{ ns.b.name }}{{ ns.none }}{{ ns._x }}
{{ messages[0].no is sameas messages[1].no }}{{ messages[0].no is sameas extra['no'] }}{{ messages[0].no == extra.no }}
{{ messages[0].none | default('d') }}{{ messages[0].none.role }}
{{ extra.none.none }}
{{ extra['none'] + 'a' }}
{% set ns = namespace(a='b') %}{{ ns.a.upper() }}{{ ns.items }}{% set ns = extra %}{{ ns.name }}{{ ns.a }}
{% set ns = namespace(f='{}'.format) %}{{ ns.f('x') }}{{ ns.__class__ }}{{ ns._Namespace__attrs }}
{% for m in messages %}{% set ns = namespace(n=loop.index) %}{{ ns.n }}{{ ns.none.a }}{% endfor %}
{% for m in messages %}{{ loop.index0 }}{{ loop.last }}{% endfor %}
{% for m in messages %}{{ loop.previtem.role }}{{ loop.cycle(1, 2) }}{% endfor %}
{% for m in messages %}{{ loop.nextitem is defined and loop.nextitem.role }}{{ loop.previtem is defined }}{% endfor %}
{% for m in messages %}{{ loop.nextitem.role }}{{ loop.index }}{{ loop.first }}{{ loop.changed(m.role) }}{% endfor %}
{% for m in messages %}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.depth }}{{ loop.no }}{% endfor %}
{% for name, v in extra.items() %}{{ name }}{{ loop.index0 }}{{ loop.last }}{{ loop.previtem }}{% else %}0{% endfor %}
{% for m in messages | map('length') %}{{ loop.length }}{{ loop.last }}{{ m }}{% endfor %}
{% set ns = namespace(n=1) %}{% for m in messages if ns.n %}{{ loop.index }}{% set ns.n = 0 %}{% endfor %}
{% for x in [[1, [2]], 3] recursive %}{{ loop(x) if x is iterable else x }}{{ loop.depth0 }}{{ loop.last }}{% endfor %}
{{ extra | tojson }}{{ extra.name | tojson }}{{ extra | tojson(indent=2) }}
{{ extra | tojson(true) }}{{ 1.5 | tojson }}
{{ extra | tojson(separators=(',', ':')) }}
{{ extra | tojson(ensure_ascii=False) }}{{ extra | tojson(sort_keys=True) }}
{% macro m(a, b=extra.name) %}{{ a.role }}{{ b }}{% endmacro %}{{ m(messages[0]) }}
{% call(x) m(1) %}{{ x.y }}{% endcall %}
{{ extra.deep.a.b[0].c if extra.deep.a.b else 0 }}
{{ (extra.deep.a).b | map(attribute='c') | join }}
{% generation %}{{ messages[0].content }}{% endgeneration %}
{{ strftime_now('%Y') }}{{ raise_exception('no') }}
"""


@pytest.mark.parametrize("source", SOURCES.strip().splitlines())
def test_the_faster_environment_prints_and_refuses_what_that_of_transformers_does(source):
    def values() -> dict[str, Any]:
        deep = {"a": {"b": [{"c": 1}]}}
        extra = {"name": "é<\u2028", "items": {"x": 1}, "n": 2**70, "f": [1e22, None, True], "deep": deep}
        return {"messages": [user("a"), assistant("b")], "extra": extra}

    def outcome(render: Any) -> Any:
        given = values()
        try:
            text = render(given)
        except Exception as error:
            text = type(error), str(error)
        return text, given == values()

    compiled = compile_template(source)
    fast = outcome(lambda given: printed_by_fast(source, given))
    assert fast[1], "the template changed the data"
    assert fast == outcome(compiled.render) or fast[0][0] is NotFollowed


def test_encoder_for_json_forgets_a_value_that_it_refused():
    def render(value: Any) -> str:
        return printed_by_fast("{{ value | tojson }}", {"value": value, "messages": []})

    value = {"a": [object()]}
    for _ in range(2):
        with pytest.raises(TypeError, match="not JSON serializable"):
            render(value)
    value["a"].append(value)
    value["a"].pop(0)
    with pytest.raises(ValueError, match="Circular"):
        render(value)
    value["a"].clear()
    assert render(value) == '{"a": []}'


def test_only_loops_that_print_are_marked():
    loops = ["{% for m in messages %}{% set ns.last = m.role %}{% endfor %}", "{% for m in messages %}x{% endfor %}"]
    for loop, count in zip(loops, (0, 2), strict=True):
        tree = mark_loops(jinja2.Environment().parse("{% set ns = namespace() %}" + loop))
        assert sum(mark_function(node) is not None for node in tree.find_all(jinja2.nodes.Output)) == count


def test_source_that_is_not_jinja_is_refused():
    with pytest.raises(jinja2.TemplateSyntaxError):
        compile_fast("{% if %}")
