"""Conversations without a compiled template: text, mask and omissions of the reference, or they are left to it."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime
from typing import Any

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.chats import SPLIT, assistant, examples_of, render_config, user
from support.generated import generate
from support.templates import CHATML, DROPS_REASONING, templates_of_oracles
from transforms.chat import fast_template
from transforms.chat.fast_jinja import MarksLost, compile_with_marks, render_with_marks
from transforms.chat.fast_template import FastTemplate, NotFollowed
from transforms.chat.message_map import mark_function, mark_loops
from transforms.chat.tool_texts import TOOL_TEXTS, ToolTexts
from transforms.chat.transformers_jinja import compile_template
from transforms.chat.turns import TurnFinder
from transforms.model.batches import Examples, Records, Texts
from transforms.model.examples import Conversation, Record
from transforms.model.outcomes import Outcomes
from transforms.steps import render as render_step
from transforms.steps.parity import ParityChecker
from transforms.steps.parse import Parser
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


TEMPLATES = {"tools": TOOLS, **templates_of_oracles()}


def rendered(template: str, examples: Examples, engine: str, **options: Any) -> Texts:
    config = render_config(template, now=NOW.isoformat(), loss_on="assistant", engine=engine, **options)
    return Renderer(config)(examples)


def of_any_engine(texts: Texts) -> Any:
    """What both engines have to agree on."""
    outcomes = texts.outcomes
    examples = {name: one for name, one in outcomes.first_examples.items() if name != "rendered_by_reference"}
    rejects = [(reject.position, reject.reason, reject.detail) for reject in outcomes.rejects]
    return [(text.example.position, text.text, text.spans) for text in texts.texts], rejects, outcomes.notes, examples


@pytest.mark.parametrize("name", TEMPLATES)
def test_generated_conversations_are_rendered_as_by_the_reference(name: str, monkeypatch):
    monkeypatch.setattr(render_step, "sample_conversations", lambda *_: [])  # no fallback
    records = [Record(seed, json.dumps(generate(seed).record).encode()) for seed in range(1000, 1030)]
    examples = Parser()(Records(SPLIT, 0, True, Outcomes(read=len(records)), records))
    template = TEMPLATES[name]
    for options in ({}, {"unprinted": "report"}, {"unprinted": "report", "eot_tokens": ("<|im_end|>",)}):
        fast, reference = (rendered(template, examples, engine, **options) for engine in ("fast", "reference"))
        assert of_any_engine(fast) == of_any_engine(reference)


@pytest.mark.parametrize("name", TEMPLATES)
def test_turns_in_the_usual_form_have_the_spans_that_are_found_for_any_turn(name: str, monkeypatch):
    monkeypatch.setattr(render_step, "sample_conversations", lambda *_: [])
    records = [Record(seed, json.dumps(generate(seed).record).encode()) for seed in range(1000, 1030)]
    examples = Parser()(Records(SPLIT, 0, True, Outcomes(read=len(records)), records))
    usual = rendered(TEMPLATES[name], examples, "fast", unprinted="report")
    monkeypatch.setattr(TurnFinder, "_usual_turns", lambda *_: {})
    assert of_any_engine(usual) == of_any_engine(rendered(TEMPLATES[name], examples, "fast", unprinted="report"))


@pytest.mark.parametrize("kwargs", [{}, {"style": "brief"}])
def test_conversation_with_tools_calls_and_answers_is_not_left_to_the_reference(kwargs):
    texts = rendered(TOOLS, examples_of(Conversation(TRAJECTORY, [TOOL], kwargs)), "fast")
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
    assert of_any_engine(rendered(TOOLS, examples, "fast")) == of_any_engine(rendered(TOOLS, examples, "reference"))


def test_signatures_that_do_not_repeat_are_not_left_to_the_reference():
    conversations = [[user("a"), assistant("b")] * count for count in range(1, 41)]
    assert rendered(CHATML, examples_of(*conversations), "fast").outcomes.rendered_by_reference == {}


@pytest.mark.parametrize(
    ("printed", "content"),
    [
        ("message.content.split('|')[-1]", "a|b"),
        ("message.content[:3]", "abcdef"),
        ("message.content | length | string", "abc"),
        ("message.content | upper", "abc"),
        ("'yes' if message.content == 'abc' else message.content", "abc"),
        ("message.content.split('|')[1] if '|' in message.content else ''", "a|b|c"),
    ],
)
def test_conversation_of_which_a_text_is_not_just_printed_is_left_to_the_reference(printed, content):
    template = TOOLS.replace("message.content -", f"({printed}) -")
    examples = examples_of(Conversation([user("?"), assistant(content)], [TOOL]))
    fast, reference = (rendered(template, examples, engine, unprinted="report") for engine in ("fast", "reference"))
    assert of_any_engine(fast) == of_any_engine(reference)
    assert fast.outcomes.rendered_by_reference == {"not_followed": 1}
    assert fast.outcomes.first_examples["rendered_by_reference"][1].startswith("not_followed: the template does")


def trajectory(city: Any, answer: str, question: str = "What?", calls: int = 1) -> Conversation:
    call = {**CALL, "function": {"name": "weather", "arguments": {"city": city}}}
    seen = [{"role": "tool", "tool_call_id": f"call{n}", "content": answer} for n in range(calls)]
    turns = [user(question), assistant("", tool_calls=[call] * calls), *seen, assistant(answer)]
    return Conversation([{"role": "system", "content": "Help."}, *turns], [json.loads(json.dumps(TOOL))])


@pytest.fixture
def made(monkeypatch) -> list[Any]:
    """What was rendered with slots."""
    monkeypatch.setattr(render_step, "sample_conversations", lambda *_: [])
    found: list[Any] = []
    slots = fast_template.Slots
    monkeypatch.setattr(fast_template, "Slots", lambda *given: found.append(given) or slots(*given))
    return found


def test_texts_are_found_without_a_second_rendering_in_messages_of_known_kinds(made):
    conversations = [trajectory(f'"{n}" é', f"It is {n}.", f" {n}? " * (n % 2) + "?") for n in range(40)]
    fast, reference = (rendered(TOOLS, examples_of(*conversations), engine) for engine in ("fast", "reference"))
    assert of_any_engine(fast) == of_any_engine(reference)
    assert len(made) == 2  # with white space around the question, and without


def test_layout_learned_from_a_text_that_is_the_same_in_json_holds_for_one_that_is_not(made):
    printed = "(message.content | tojson if message.role == 'tool' else message.content)"
    template = TOOLS.replace("message.content -", f"{printed} -")
    conversations = [trajectory("Kyoto", answer) for answer in ("clear", '"clear" \\ é', "\n clear\t!")]
    fast, reference = (rendered(template, examples_of(*conversations), engine) for engine in ("fast", "reference"))
    assert of_any_engine(fast) == of_any_engine(reference)
    assert len(made) == 2  # the white space around the last one belongs to what is printed around it


TEXTS = st.one_of(
    st.sampled_from(
        ["", " ", "a", "weather", "city", "Help.", '{"city": "a"}', "<|im_end|>\n", "</think>", "user\nWhat?"]
    ),
    st.text('ab \n"é<', max_size=4),
)
CITIES = st.one_of(TEXTS, st.sampled_from([1, 1.0, True, None, [], ["a"], {"a": "b"}, {"": 1}]))


@settings(max_examples=50)
@given(st.lists(st.builds(trajectory, CITIES, TEXTS, TEXTS, st.integers(1, 2)), min_size=2, max_size=6))
def test_what_is_known_of_other_records_does_not_change_what_is_found(conversations):
    examples = examples_of(*conversations)
    fast, reference = (rendered(TOOLS, examples, engine, unprinted="report") for engine in ("fast", "reference"))
    assert of_any_engine(fast) == of_any_engine(reference)


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
        fast, reference = (rendered(TOOLS, examples, engine, unprinted=unprinted) for engine in ("fast", "reference"))
        assert of_any_engine(fast) == of_any_engine(reference)


@pytest.mark.parametrize("unprinted", ["report", "reject"])
def test_record_that_cannot_be_encoded_is_rejected_for_that_also_if_something_is_not_printed(unprinted):
    turns = [user("a"), assistant("b", reasoning_content="c"), user("d"), {"role": "developer", "content": "e"}]
    examples = examples_of([*turns, assistant("\ud800")], [*turns, assistant("f")])
    template = DROPS_REASONING.replace(
        "{%- for message in messages -%}", "{%- for message in messages if message.role != 'developer' -%}"
    )
    fast, reference = (rendered(template, examples, engine, unprinted=unprinted) for engine in ("fast", "reference"))
    assert of_any_engine(fast) == of_any_engine(reference)
    assert fast.outcomes.rejects[0].reason == "invalid_unicode"


def test_template_that_prints_other_things_for_messages_of_one_kind_is_followed():
    template = TOOLS.replace(
        "message.content -", "(message.name or '') + message.content + ('!' if loop.last else '') -"
    )
    conversations = [trajectory("a", f"b{n}", calls=1 + n % 3) for n in range(9)]
    for number, conversation in enumerate(conversations):
        conversation.messages[-1]["name"] = f"n{number}"
    fast, reference = (rendered(template, examples_of(*conversations), engine) for engine in ("fast", "reference"))
    assert of_any_engine(fast) == of_any_engine(reference)
    assert fast.outcomes.rendered_by_reference == {}


def test_reasoning_that_is_dropped_is_reported_also_if_it_is_the_answer():
    def conversation(thought: str) -> Conversation:
        turns = [user("a"), assistant("b", reasoning_content=thought), user("c"), assistant("d", reasoning_content="e")]
        return Conversation(turns, [TOOL])

    template = DROPS_REASONING.replace("{%- for message", "{{ tools | tojson }}{%- for message", 1)
    examples = examples_of(*map(conversation, ("x", "y", "b", "d", "<think>", "x")))
    fast, reference = (rendered(template, examples, engine) for engine in ("fast", "reference"))
    assert of_any_engine(fast) == of_any_engine(reference)
    assert fast.outcomes.notes["reasoning_not_printed"] == 6
    assert fast.outcomes.rendered_by_reference == {}


def test_list_of_tools_is_known_by_its_content():
    texts = ToolTexts()
    first, second, other = ([{"name": "a", "n": n}] for n in (1, 1, 1.0))
    assert texts.known(first) is first
    assert texts.known(second) is first
    assert texts.known(other) is other
    texts.texts(first)[0] = "text"
    assert texts.texts(first) == {0: "text"}
    assert texts.texts(second) == texts.texts(other) == {}  # by identity
    unusual = [{"a": object()}]
    assert texts.known(unusual) is unusual


def test_no_text_of_tools_that_are_forgotten_is_given_for_others():
    texts = ToolTexts()
    for number in range(2000):
        tools = texts.known([{"name": f"t{number}"}])
        assert texts.texts(tools) == {}
        texts.texts(tools)[0] = f"{number}"


# In the first ones, a statement depends on the tools alone.
OF_TOOLS = """
{% for t in tools %}{{ t.name }}{% endfor %}
{{ tools | tojson }}
{% if tools %}{{ tools | map(attribute='name') | join }}{% else %}none{% endif %}
{% macro one(t) %}{% if t %}{% set x = t.name %}{{ x }}{% endif %}{% endmacro %}{{ one(tools[0]) }}
{% macro a(t) %}{{ t.name }}{% endmacro %}{% macro b(t) %}{{ a(t[0]) }}{% endmacro %}{{ b(tools) }}
{% for t in tools %}{% set ns = namespace(n=t.name) %}{{ ns.n }}{{ loop.index }}{% endfor %}
{% for t in tools %}{% for m in [1] %}{{ t.name }}{{ m }}{% endfor %}{% endfor %}
{% set x = 1 %}{% for t in tools recursive %}{{ t.name }}{% else %}none{% endfor %}
"""
OF_MORE = """
{% for t in tools %}{{ t.name }}{{ kwarg }}{% endfor %}
{% for t in tools %}{{ t.name }}{{ messages | length }}{% endfor %}
{% for t in tools %}{{ t.name }}{{ strftime_now('%Y') }}{% endfor %}
{% macro one(t) %}{% if not t %}{% set kwarg = 1 %}{% endif %}{{ kwarg }}{% endmacro %}{{ one(tools[0]) }}
{% set x = kwarg %}{% macro one(t) %}{{ t.name }}{{ x }}{% endmacro %}{{ one(tools[0]) }}
{% macro one(t) %}{% endmacro %}{% if kwarg %}{% macro one(t) %}{{ t.name }}{% endmacro %}{% endif %}{{ one(tools[0]) }}
{% for m in messages %}{{ tools | tojson }}{{ loop.index }}{% endfor %}
{% for t in tools %}{{ range(1) | list }}{{ t.name }}{% endfor %}
{% set tools = [{'name': kwarg}] %}{% for t in tools %}{{ t.name }}{% endfor %}
{% macro one(tools) %}{{ tools | tojson }}{% endmacro %}{{ one(tools + [kwarg]) }}
"""


@pytest.mark.parametrize(
    ("source", "is_once"),
    [
        (source, once)
        for sources, once in ((OF_TOOLS, True), (OF_MORE, False))
        for source in sources.strip().splitlines()
    ],
)
def test_what_depends_on_the_tools_alone_is_printed_once(source, is_once):
    template = compile_with_marks(source)

    def render(name: str, tools: list[Any]) -> str:
        tools[0]["name"] = name  # which is not to be done, and shows what is remembered
        messages = [user("a")]
        values = {"tools": tools, "messages": messages, "kwarg": name, "strftime_now": lambda _: name}
        if name == "after":
            values["range"] = lambda _: [name]
        text = render_with_marks(template, values, messages)[0]
        assert text == compile_template(source).render(values) or (is_once and name == "after")
        return text

    tools = TOOL_TEXTS.known([{"name": source}])
    assert (render("before", tools) == render("after", tools)) == is_once
    assert "after" in render("after", [dict(tools[0])])


@pytest.mark.parametrize("parity", ["report", "reject"])
def test_parity_of_such_conversations_is_what_it_is_by_the_reference(parity, monkeypatch):
    thought = "('<think>' + message.reasoning_content + '</think>' if message.reasoning_content and loop.last else '')"
    template = TOOLS.replace("message.content -", f"{thought} + message.content -")
    turns = [user("a"), assistant("b", reasoning_content="c"), user("d"), assistant("e", reasoning_content="f")]
    examples = examples_of(*(Conversation(turns[:count], [TOOL]) for count in (2, 4)))
    config = render_config(template, loss_on="assistant", engine="fast")
    texts = Renderer(config)(examples)
    fast = ParityChecker(config, parity)(texts)
    monkeypatch.setattr(FastTemplate, "map_messages", refuse)
    monkeypatch.setattr(FastTemplate, "render", lambda self, *given, **more: self._template.render(*given, **more))
    reference = ParityChecker(config, parity)(texts)
    assert of_any_engine(fast) == of_any_engine(reference)
    assert fast.outcomes.notes["parity_turns_reasoning_dropped"] == 1


def refuse(*_: Any) -> Any:
    raise NotFollowed("never")


@settings(max_examples=50)
@given(st.text(st.characters(codec="utf-8")), st.text('"\\/<zqSLOT0>é\n 🙂'))
def test_any_text_is_found_where_it_is_printed_also_in_json(content, argument):
    call = {**CALL, "function": {"name": "weather", "arguments": {"city": argument, argument + "x": [content]}}}
    messages = [user("?" + argument), assistant(content, tool_calls=[call]), user(content), assistant("!" + content)]
    examples = examples_of(Conversation(messages, [TOOL]))
    fast, reference = (rendered(TOOLS, examples, engine) for engine in ("fast", "reference"))
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
    fast = outcome(lambda given: render_with_marks(compile_with_marks(source), given, given["messages"])[0])
    assert fast == outcome(compiled.render)
    assert fast[1], "the template changed the data"


def test_encoder_for_json_forgets_a_value_that_it_refused():
    template = compile_with_marks("{{ value | tojson }}")
    value = {"a": [object()]}
    for _ in range(2):
        with pytest.raises(TypeError, match="not JSON serializable"):
            render_with_marks(template, {"value": value}, [])
    value["a"].append(value)
    value["a"].pop(0)
    with pytest.raises(ValueError, match="Circular"):
        render_with_marks(template, {"value": value}, [])
    value["a"].clear()
    assert render_with_marks(template, {"value": value}, [])[0] == '{"a": []}'


def test_only_loops_that_print_are_marked():
    loops = ["{% for m in messages %}{% set ns.last = m.role %}{% endfor %}", "{% for m in messages %}x{% endfor %}"]
    for loop, count in zip(loops, (0, 2), strict=True):
        tree = mark_loops(jinja2.Environment().parse("{% set ns = namespace() %}" + loop))
        assert sum(mark_function(node) is not None for node in tree.find_all(jinja2.nodes.Output)) == count


def test_messages_that_a_macro_prints_are_left_to_the_reference():
    source = "{% macro all(them) %}{% for m in them %}{{ m.content }}{% endfor %}{% endmacro %}{{ all(messages) }}"
    messages = [user("a"), assistant("b")]
    with pytest.raises(MarksLost):
        render_with_marks(compile_with_marks(source), {"messages": messages}, messages)
    examples = examples_of(Conversation(messages, [TOOL]))
    fast, reference = (rendered(source, examples, engine, unprinted="report") for engine in ("fast", "reference"))
    assert of_any_engine(fast) == of_any_engine(reference)


def test_source_that_is_not_jinja_is_refused():
    with pytest.raises(jinja2.TemplateSyntaxError):
        compile_with_marks("{% if %}")


def test_sample_of_the_batch_is_compared_with_the_reference(monkeypatch):
    """The spot checks cover these conversations too."""
    examples = examples_of(Conversation(TRAJECTORY, [TOOL]))
    monkeypatch.setattr(
        render_step.FastTemplate,
        "omissions",
        lambda *_: dataclasses.replace(render_step.NO_OMISSIONS, reasoning=("x",)),
    )
    texts = rendered(TOOLS, examples, "auto")
    assert texts.outcomes.first_examples["fast_engine_differs"][1] == "rendering: it leaves out something else"


def test_layout_outside_of_messages_is_not_that_of_a_record_whose_first_message_has_no_text():
    system, turns = {"role": "system", "content": "S"}, [user("q"), assistant("a")]
    template = "{%- set ns = namespace(system='') -%}{%- for message in messages -%}{%- if message.role == 'system' -%}"
    template += "{%- set ns.system = message.content -%}{%- endif -%}{%- endfor -%}{{- '<s>' + ns.system + '</s>' -}}"
    template += CHATML.replace("in messages", "in messages | rejectattr('role', 'equalto', 'system')")
    conversations = [[system, *turns], [user(""), turns[1], system, *turns]]
    examples = examples_of(*(Conversation(messages, [TOOL]) for messages in conversations))
    engines = [Renderer(render_config(template, engine=name, unprinted="report")) for name in ("auto", "reference")]
    fast, reference = ([(text.text, text.spans) for text in engine(examples).texts] for engine in engines)
    assert fast == reference and len(fast) == 2
