"""Conversations without a compiled template: text, mask and omissions of the reference, or they are left to it."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.cases import framed
from support.chats import SPLIT, assistant, examples_of, render_config, user
from support.paths import TOKENIZER
from support.templates import CHATML, DROPS_REASONING, models_and_odd
from transforms import Conversation, Examples
from transforms.chat.fast.fast_jinja import Output, compile_fast, render_fast
from transforms.chat.fast.fast_template import FastTemplate
from transforms.chat.fast.identity import NotFollowed, Sources
from transforms.chat.fast.tool_texts import KnownTools, ToolTexts
from transforms.chat.rendering.marks import mark_function, mark_loops
from transforms.chat.rendering.renderings import Rendering
from transforms.chat.rendering.template import ChatTemplate
from transforms.chat.rendering.transformers_jinja import compile_template
from transforms.model.batches import Records, Texts
from transforms.model.examples import Record
from transforms.model.outcomes import Outcomes
from transforms.steps.parity import ParityChecker
from transforms.steps.parse import Parser
from transforms.steps.render import Renderer
from transforms.tokens.tokenizer import load_tokenizer

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


TEMPLATES = {"tools": TOOLS, **models_and_odd()}


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
def test_generated_conversations_are_rendered_as_by_the_reference(name: str):
    records = [Record(seed, json.dumps(framed(seed).record).encode()) for seed in range(1000, 1030)]
    examples = Parser()(Records(SPLIT, 0, True, Outcomes(read=len(records)), records))
    template = TEMPLATES[name]
    for options in ({}, {"unprinted": "report"}, {"unprinted": "report", "eot_tokens": ("<|im_end|>",)}):
        fast, reference = (rendered(template, examples, engine, **options) for engine in ("auto", "reference"))
        assert of_any_engine(fast) == of_any_engine(reference)


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
def test_conversation_of_which_a_text_is_not_just_printed_has_the_outcome_of_the_reference(printed, content):
    template = TOOLS.replace("message.content -", f"({printed}) -")
    examples = examples_of(Conversation([user("?"), assistant(content)], [TOOL]))
    fast, reference = (rendered(template, examples, engine, unprinted="report") for engine in ("auto", "reference"))
    assert of_any_engine(fast) == of_any_engine(reference)
    if "upper" in printed:
        assert fast.outcomes.rendered_by_reference == {"not_followed": 1}
        found = fast.outcomes.first_examples["rendered_by_reference"][1]
        assert found == "not_followed: the template does more than print a text"


@pytest.mark.parametrize(
    "printed",
    [
        "strftime_now('%Y')",
        "['a', 'b'] | join('')",
        "'ab' | replace('b', '')",
        "'ab'.replace('b', '')",
        "message.role.replace('s', '')",
        "message.content.replace('|', '')",
        "(message.content | string | trim)",
        "'abc'.center(5)",
    ],
)
def test_text_without_characters_is_followed_beside_what_is_done_to_other_texts(printed):
    template = TOOLS.replace("message.content -", f"message.content + ({printed}) -")
    turns = [user("?"), assistant("", tool_calls=[CALL]), TRAJECTORY[3], assistant("")]
    examples = examples_of(Conversation(turns, [TOOL]))
    fast, reference = (rendered(template, examples, engine, unprinted="report") for engine in ("auto", "reference"))
    assert of_any_engine(fast) == of_any_engine(reference)
    assert fast.outcomes.rendered_by_reference == {}


@pytest.mark.parametrize(
    "printed",
    [
        "'%s!' % message.content",
        "'<{}>'.format(message.content)",
        "message.content | tojson",
        "message | tojson",
        "'ab' | replace('b', message.content)",
        "['a', 'b'] | join(message.content)",
        "[message.content, 'a'] | join('-')",
        "message.content.center(3)",
    ],
)
def test_text_without_characters_that_something_is_made_of_has_the_outcome_of_the_reference(printed):
    source = TOOLS.replace("message.content -", f"({printed}) -")
    template = ChatTemplate(load_tokenizer(str(TOKENIZER)), source, now=NOW)
    for content in ("", "x"):
        conversation = Conversation([user("?"), assistant(content), user("!"), assistant("y")], [TOOL])
        try:
            found = FastTemplate(template).rendering(conversation)
        except NotFollowed:
            continue
        expected = template.rendering(conversation)
        assert (found.text, found.contents, found.printed) == (expected.text, expected.contents, expected.printed)


def test_texts_are_where_the_reference_finds_them_whatever_was_rendered_before():
    template = ChatTemplate(load_tokenizer(str(TOKENIZER)), TOOLS, now=NOW)
    fast = FastTemplate(template)
    for conversation in (trajectory("Kyoto", answer) for answer in ("Clear.", "Clear.", "é")):
        expected, found = template.rendering(conversation), fast.rendering(conversation)
        assert (found.text, found.pieces) == (expected.text, expected.pieces)
        assert places(found) == places(expected)
        assert places(found)


def places(rendering: Rendering) -> list[str]:
    return sorted(str(text) for text in rendering.texts if rendering.text[text.start : text.stop].strip())


def trajectory(city: Any, answer: str, question: str = "What?", calls: int = 1) -> Conversation:
    call = {**CALL, "function": {"name": "weather", "arguments": {"city": city}}}
    seen = [{"role": "tool", "tool_call_id": f"call{n}", "content": answer} for n in range(calls)]
    turns = [user(question), assistant("", tool_calls=[call] * calls), *seen, assistant(answer)]
    return Conversation([{"role": "system", "content": "Help."}, *turns], [json.loads(json.dumps(TOOL))])


# What a template does to a text or prints in its place, and whether the fast engine follows it.
ODD = {
    "message.content.removeprefix('Final: ')": True,
    "'Final: ' ~ message.content.removeprefix('Final: ')": True,
    "('yes' if message.content == 'yes' else message.content)": True,
    "(messages[0].content if message.content == messages[0].content else message.content)": True,
    "(message.content | tojson)": False,
    "(message.content | tojson if message.role == 'tool' else message.content)": True,
    "message.content.split('</think>')[-1].lstrip()": True,
    "(message.content | upper)": False,
    "message.content[:4]": True,
    "message.content.replace('e', 'e')": True,
    "(message.content ~ '' if message.content else '')": True,
}
CONTENTS = [
    "yes",
    "Final: 7",
    "Final: yes",
    "7",
    "A",
    "Help.",
    " What? ",
    "\n7",
    '"é" \\',
    "<think>a</think>b",
    "",
    "weather",
]


@pytest.mark.parametrize("printed", ODD)
def test_each_record_has_the_outcome_of_the_reference_whatever_was_rendered_before(printed):
    template = TOOLS.replace("message.content -", f"{printed} -")
    assert template != TOOLS
    conversations = [trajectory(content, content, question) for content in CONTENTS for question in ("What?", content)]
    options = {"unprinted": "report"}
    alone = [rendered(template, examples_of(one), "auto", **options) for one in conversations]
    reference = [rendered(template, examples_of(one), "reference", **options) for one in conversations]
    assert [*map(of_any_engine, alone)] == [*map(of_any_engine, reference)]
    for order in (1, -1):
        together = rendered(template, examples_of(*conversations[::order]), "auto", **options)
        texts = [(text.text, text.spans) for text in together.texts[::order]]
        assert texts == [(text.text, text.spans) for one in reference for text in one.texts]
        followed = together.outcomes.rendered_by_reference.get("not_followed", 0) < len(conversations) / 2
        assert followed == ODD[printed]


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
    fast, reference = (rendered(TOOLS, examples, engine, unprinted="report") for engine in ("auto", "reference"))
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


def test_template_that_prints_other_things_for_messages_of_one_kind_is_followed():
    template = TOOLS.replace(
        "message.content -", "(message.name or '') + message.content + ('!' if loop.last else '') -"
    )
    conversations = [trajectory("a", f"b{n}", calls=1 + n % 3) for n in range(9)]
    for number, conversation in enumerate(conversations):
        conversation.messages[-1]["name"] = f"n{number}"
    fast, reference = (rendered(template, examples_of(*conversations), engine) for engine in ("auto", "reference"))
    assert of_any_engine(fast) == of_any_engine(reference)
    assert fast.outcomes.rendered_by_reference == {}


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
    known = ToolTexts().known([{"name": source}])
    for name in ("before", "after"):
        values = {"tools": known.tools, "messages": [user("a")], "kwarg": name, "strftime_now": {"%Y": name}.get}
        if name == "after":
            values["range"] = lambda _: ["after"]
        try:
            text = printed_by_fast(source, values, known)
        except NotFollowed:
            assert "join" in source
            return
        assert text == compile_template(source).render(values)
        assert bool(known.texts) == is_once or "range" in source


def printed_by_fast(source: str, values: dict[str, Any], tools: KnownTools | None = None) -> str:
    template = compile_fast(source)
    output = Output(template, Sources(tools.sources if tools else None), tools)
    render_fast(template, values, values["messages"], output)
    return output.text


@pytest.mark.parametrize("parity", ["report", "reject"])
def test_parity_of_such_conversations_is_what_it_is_by_the_reference(parity, monkeypatch):
    thought = "('<think>' + message.reasoning_content + '</think>' if message.reasoning_content and loop.last else '')"
    template = TOOLS.replace("message.content -", f"{thought} + message.content -")
    turns = [user("a"), assistant("b", reasoning_content="c"), user("d"), assistant("e", reasoning_content="f")]
    examples = examples_of(*(Conversation(turns[:count], [TOOL]) for count in (2, 4)))
    config = render_config(template, loss_on="assistant", engine="auto")
    texts = Renderer(config)(examples)
    fast = ParityChecker(config, parity)(texts)
    monkeypatch.setattr(FastTemplate, "rendering", refuse)
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


def test_messages_that_a_macro_prints_are_left_to_the_reference():
    source = "{% macro all(them) %}{% for m in them %}{{ m.content }}{% endfor %}{% endmacro %}{{ all(messages) }}"
    messages = [user("a"), assistant("b")]
    with pytest.raises(NotFollowed, match="a place that is not followed, such as a macro"):
        printed_by_fast(source, {"messages": messages})
    examples = examples_of(Conversation(messages, [TOOL]))
    fast, reference = (rendered(source, examples, engine, unprinted="report") for engine in ("auto", "reference"))
    assert of_any_engine(fast) == of_any_engine(reference)


def test_source_that_is_not_jinja_is_refused():
    with pytest.raises(jinja2.TemplateSyntaxError):
        compile_fast("{% if %}")


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
