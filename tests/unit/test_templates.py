# ruff: noqa: E501
"""Any template with any conversations: the right text, masks and tokens, by both engines, alone and in any order."""

from __future__ import annotations

import time
from collections import Counter
from itertools import count

import pytest

from support.cases import Case, turns_are_known
from support.drawn import AT_LENGTH, IS_FAST
from support.engines import shown_failure
from support.templates import CHATML, DROPS_REASONING, MARKED, OPENS_REASONING, PRINTS, models_and_odd, trl_templates
from support.tokenizers import LARGE

# The fast lane has one of each kind.
IN_FAST = models_and_odd()
TEMPLATES = {**trl_templates(), **IN_FAST}
# They print no turn where the mask could be established.
REFUSED = ("own_remember", "own_remember_sections", "repeats_question")
NAMES = [pytest.param(name, marks=() if name in IN_FAST else pytest.mark.slow) for name in TEMPLATES]


@pytest.mark.parametrize("part", range(40 if AT_LENGTH else 1 if IS_FAST else 4))
def test_generated_templates(part: int):
    counts = Counter[str]()
    for seed in range(15 * part, 15 * part + 15):
        case = Case(seed)
        of_known = counts if turns_are_known(case.features or {}) else None
        assert shown_failure(case, each_alone=seed % 4 == 0, counts=of_known) is None, seed
    assert counts["spans_not_established"] < counts["kept"] / 3, counts  # in the mean a tenth


@pytest.mark.nightly
def test_generated_templates_at_length():
    end = time.monotonic() + 30 * 60
    for seed in count(1000):
        if time.monotonic() > end:
            break
        assert shown_failure(Case(seed), each_alone=seed % 4 == 0) is None, seed


@pytest.mark.parametrize("name", NAMES)
def test_templates_of_models_and_odd_ones(name: str):
    counts = Counter[str]()
    for seed in range(30 if AT_LENGTH else 3):
        assert shown_failure(Case(seed, TEMPLATES[name]), folder=LARGE[seed % len(LARGE)], counts=counts) is None, seed
    assert (counts["kept"] == 0) == (name in REFUSED), counts


# What templates do with each message, and what they print in the place of its content.
BODIES = (
    "{{- message.role + ': ' + message.content -}}",
    "{{- message['role'] ~ ': ' ~ message['content'] | trim ~ '\\n' -}}",
    "{%- set text = message.role + ': ' + message.content + '\\n' -%}{{- text -}}",
    "{%- set text -%}{{- message.content | trim -}}{%- endset -%}{{- message.role -}}: {{ text }}\n",
    "{%- macro said(m) -%}{{- m.content -}}{%- endmacro -%}{{- message.role + ': ' + said(message) | trim + '\\n' -}}",
    "{%- if message.content -%}{{- message.role + ': ' + message.content.strip() -}}{%- endif -%}\n",
    "{%- if '</think>' in message.content -%}{{- message.role + ': ' + message.content.split('</think>')[-1] -}}{%- else -%}{{- message.role + ': ' + message.content -}}{%- endif -%}",
    "{%- if message.content is string -%}{{- message.role + ': ' + message.content -}}{%- endif -%}",
    "{%- if message.content is iterable and message.content is not mapping -%}{{- message.role + ': ' + message.content -}}{%- endif -%}",
    "{%- if message.content == 'x' -%}!{%- endif -%}{{- message.role + ': ' + message.content -}}",
    "{%- if message.content.startswith('<tool') -%}!{%- endif -%}{{- message.role + message.content.lstrip() -}}",
    "{{- message.role + ': ' + message.content.replace('<', '(') -}}",
    "{{- message.role + ': ' + message.content | replace('<', '(') -}}",
    "{%- if message.role in ['user', 'x'] and message.content not in ['x', 'y'] -%}!{%- endif -%}{{- message.content -}}",
    "{%- set text = message.role + message.content -%}{%- if 'ra' in text -%}!{%- endif -%}{{- text -}}",
    "{%- set text -%}{{- message.content -}}!{%- endset -%}{%- if 'a!' in text -%}?{%- endif -%}{{- text -}}",
    "{%- macro said(m) -%}{{- m.content -}}!{%- endmacro -%}{%- if said(message) == 'a!' -%}?{%- endif -%}{{- said(message) -}}",
    "{%- if (message.content ~ '!') == 'a!' -%}?{%- endif -%}{{- message.content -}}",
    "{%- if message.content == '' -%}!{%- endif -%}{{- message.content -}}",
    "{%- if message.content | trim | length > 0 -%}{{- message.content -}}{%- endif -%}.",
    "{%- if message.content | length == 0 or not message.content | length >= 1 -%}!{%- endif -%}{{- message.content -}}",
    "{%- if 'ra' not in message.content | lower and message.role | lower == 'user' -%}!{%- endif -%}{{- message.content -}}",
    "{%- if message.content | lower == 'a<b>' -%}!{%- endif -%}{{- message.content -}}",
    "{%- set text = '<think></think>' ~ message.content -%}{{- text.split('</think>')[-1] -}}{%- if '<think>' in text and '</think>' in text -%}!{%- endif -%}",
    "{%- set text = message.content -%}{%- if '</think>' in text -%}{{- text.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') + '|' -}}{%- set text = text.split('</think>')[-1].lstrip('\n') -%}{%- endif -%}{{- text.lstrip('\n') -}}",
    "{%- set before, tag, text = message.content.rpartition('</think>') -%}{{- before.removeprefix('<think>').strip() -}}|{{- tag -}}|{{- text.strip() -}}",
    "{{- message.content.partition('<think>') | first -}}|{{- (message.content + '<think>').partition('<think>')[2] -}}",
    "{{- message.content.rsplit('</think>', 1) | last -}}",
    "{%- set text = 'ab' ~ message.content -%}{{- text[1:] -}}{{- text[0] -}}{{- (message.content ~ 'xyz')[:-2] -}}",
    "{%- if ('<' + message.content).startswith('<think>') -%}!{%- endif -%}{{- message.content -}}",
    "{%- if (message.content + 'k>').endswith('</think>') -%}!{%- endif -%}{{- message.content -}}",
    "{%- if 'x/x' in message.content + '/' + message.content -%}!{%- endif -%}{{- message.content -}}",
    "{%- if 'xx' in message.content ~ message.content -%}!{%- endif -%}{{- message.content -}}",
    "{{- (message.content + '<tool>').replace('<tool', '[').removesuffix('[>') -}}",
    "{%- if message.content is string and message.content.startswith(('<think>', 'x')) -%}!{%- endif -%}{{- message.content -}}",
    "{%- if message.content == messages[loop.index0].content -%}{{- message.content -}}{%- endif -%}",
    "{{- message.role + ': ' + message.content | upper -}}",
    "{{- message.role + ': ' + message.content | tojson -}}",
    "{{- message | tojson -}}",
    "{{- message.role + ': ' + message.content[:3] -}}",
    "{%- if message.content | length > 3 -%}!{%- endif -%}{{- message.role + ': ' + message.content -}}",
    "{%- if message.content == messages[0].content -%}!{%- endif -%}{{- message.role + ': ' + message.content -}}",
    "{%- if message.content < 'n' -%}!{%- endif -%}{{- message.role + ': ' + message.content -}}",
    "{{- '%s: %s' % (message.role, message.content) -}}",
    "{{- '%s: %s' | format(message.role, message.content) -}}",
    "{{- [message.role, message.content] | join(': ') -}}",
    "{{- [message.content] -}}",
    "{%- for character in message.content -%}{{- character -}}{%- endfor -%}",
    "{{- {'a': '!'}.get(message.content, '?') + message.content -}}",
    "{{- message.content.find('a') -}}{{- message.content -}}",
    "{{- message.content.strip('ab') -}}",
    "{{- 'abc'.replace('b', message.content) -}}",
    "{%- if message.content in 'a x ra' -%}!{%- endif -%}{{- message.content -}}",
    "{%- if message.content not in 'a x ra' -%}!{%- endif -%}{{- message.content -}}",
    "{%- if message.content is in 'a x ra' -%}!{%- endif -%}{{- message.content -}}",
    "{%- if 'ra,' in ','.join([message.content, 'x']) -%}!{%- endif -%}{{- message.content -}}",
    "{%- if 'xyz'.startswith(message.content) -%}!{%- endif -%}{{- message.content -}}",
    "{%- if 'abc' | replace(message.content, '') == 'bc' -%}!{%- endif -%}{{- message.content -}}",
    "{%- if messages | selectattr('content', 'in', 'a x ra') | list -%}!{%- endif -%}{{- message.content -}}",
    "{{- message.content | lower -}}",
    "{{- message.content | length -}}{{- message.content -}}",
    "{%- if message.content | length is odd -%}!{%- endif -%}{{- message.content -}}",
    "{%- if message.content | length is number -%}!{%- endif -%}{{- message.content -}}",
    "{%- set n = {(message.content | length): 'x'} -%}{{- message.content -}}",
    "{{- message.content[0] -}}{{- message.content -}}",
    "{{- ('x' + message.content)[2:] -}}",
    "{{- message.content.split() | first -}}",
    "{{- message.content.split('<think>' ~ message.content) | first -}}",
    "{%- for key in message -%}{{- key + ': ' + message[key] + '\\n' -}}{%- endfor -%}",
    "{%- if message | first == 'role' -%}!{%- endif -%}{{- message.content -}}",
)
EXPRESSIONS = (
    "message.content.removeprefix('Final: ')",
    "'Final: ' ~ message.content.removeprefix('Final: ')",
    "('yes' if message.content == 'yes' else message.content)",
    "(messages[0].content if message.content == messages[0].content else message.content)",
    "(message.content | tojson)",
    "(message.content | tojson if message.role == 'tool' else message.content)",
    "message.content.split('</think>')[-1].lstrip()",
    "(message.content | upper)",
    "message.content[:4]",
    "message.content.replace('e', 'e')",
    "(message.content ~ '' if message.content else '')",
    "message.content.split('|')[-1]",
    "message.content | length | string",
    "message.content.split('|')[1] if '|' in message.content else ''",
    "message.content + strftime_now('%Y')",
    "message.content + (['a', 'b'] | join(''))",
    "message.content + ('ab' | replace('b', ''))",
    "message.content + message.role.replace('s', '')",
    "message.content.replace('|', '')",
    "(message.content | string | trim)",
    "'%s!' % message.content",
    "'<{}>'.format(message.content)",
    "message | tojson",
    "'ab' | replace('b', message.content)",
    "['a', 'b'] | join(message.content)",
    "[message.content, 'a'] | join('-')",
    "message.content.center(3)",
    "(message.name or '') + message.content + ('!' if loop.last else '')",
)
# What templates print of the tools: in the first ones, a statement depends on them alone.
OF_TOOLS = (
    "{% for t in tools %}{{ t.function.name }}{% endfor %}",
    "{{ tools | tojson }}",
    "{% if tools %}{{ tools | map(attribute='function.name') | join }}{% else %}none{% endif %}",
    "{% macro one(t) %}{% if t %}{% set x = t.function.name %}{{ x }}{% endif %}{% endmacro %}{{ one(tools[0]) }}",
    "{% macro a(t) %}{{ t.function.name }}{% endmacro %}{% macro b(t) %}{{ a(t[0]) }}{% endmacro %}{{ b(tools) }}",
    "{% for t in tools %}{% set ns = namespace(n=t.function.name) %}{{ ns.n }}{{ loop.index }}{% endfor %}",
    "{% for t in tools %}{% for m in [1] %}{{ t.function.name }}{{ m }}{% endfor %}{% endfor %}",
    "{% set x = 1 %}{% for t in tools recursive %}{{ t.function.name }}{% else %}none{% endfor %}",
    "{% for t in tools %}{{ t.function.name }}{{ style }}{% endfor %}",
    "{% for t in tools %}{{ t.function.name }}{{ messages | length }}{% endfor %}",
    "{% for t in tools %}{{ t.function.name }}{{ strftime_now('%Y') }}{% endfor %}",
    "{% macro one(t) %}{% if not t %}{% set style = 1 %}{% endif %}{{ style }}{% endmacro %}{{ one(tools[0]) }}",
    "{% set x = style %}{% macro one(t) %}{{ t.function.name }}{{ x }}{% endmacro %}{{ one(tools[0]) }}",
    "{% macro one(t) %}{% endmacro %}{% if style %}{% macro one(t) %}{{ t.function.name }}{% endmacro %}{% endif %}{{ one(tools[0]) }}",
    "{% for m in messages %}{{ tools | tojson }}{{ loop.index }}{% endfor %}",
    "{% for t in tools %}{{ range(1) | list }}{{ t.function.name }}{% endfor %}",
    "{% set tools = [{'function': {'name': style}}] %}{% for t in tools %}{{ t.function.name }}{% endfor %}",
    "{% macro one(tools) %}{{ tools | tojson }}{% endmacro %}{{ one(tools + [style]) }}",
)
# What templates do to values besides texts: of messages, loops, namespaces, macros, and of arguments for the template.
OF_VALUES = r"""
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
VALUES = {"name": "é<\u2028", "items": {"x": 1}, "n": 2**70, "f": [1e22, None, True], "deep": {"a": {"b": [{"c": 1}]}}}

PROMPT = "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
TOOLS = (
    "{%- for tool in tools or [] %}{{ tool | tojson }}\n{% endfor -%}{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '\\n' + CONTENT -}}{%- for call in message.tool_calls or [] %}"
    "{{ '<call>' + (call.function | tojson) }}{% endfor %}{{- '<|im_end|>\\n' -}}{%- endfor -%}" + PROMPT
)
READS_PARTS = (
    "{%- for part in message.content -%}{%- if part.type == 'text' -%}{{- part.text.split('</think>')[-1] -}}{%- endif -%}"
    "{%- endfor -%}"
)
# The system message is printed outside of the loop.
COLLECTS = (
    "{%- set ns = namespace(system='') -%}{%- for message in messages -%}{%- if message.role == 'system' -%}"
    "{%- set ns.system = message.content -%}{%- endif -%}{%- endfor -%}{{- '<s>' + ns.system + '</s>' -}}"
    + CHATML.replace("in messages", "in messages | rejectattr('role', 'equalto', 'system')")
)
OWN = {"chatml": CHATML, "marked": MARKED, "drops_reasoning": DROPS_REASONING, "opens_reasoning": OPENS_REASONING}
OWN |= {
    "opens_and_trims": OPENS_REASONING.replace("message.content +", "message.content | trim +"),
    "collects": COLLECTS,
}
OWN |= {"weights": CHATML.replace("message.content +", "message.content + message.weight | string +"), **PRINTS}
OWN |= {body: "{%- for message in messages -%}" + body + "{%- endfor -%}" + PROMPT for body in (*BODIES, READS_PARTS)}
OWN |= {printed: TOOLS.replace("CONTENT", printed) for printed in EXPRESSIONS}


@pytest.mark.parametrize("name", OWN)
def test_what_templates_do_to_texts(name: str):
    for seed in range(20 if AT_LENGTH else 2):
        case = Case(seed, OWN[name])
        if seed % 2:  # the mask of all is known, whether turns have headers or not
            case.options |= {"loss_on": "all", "unprinted": "report", "part_columns": False}
        assert shown_failure(case) is None, seed


@pytest.mark.parametrize("source", OF_TOOLS)
def test_what_templates_print_of_tools_that_many_records_have(source: str):
    case = Case(3, source + CHATML)
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("find", "look_up")]
    given = [
        {"tools": tools, "chat_template_kwargs": {"style": f"{number % 3}"}} for number in range(len(case.records))
    ]
    case.records = [record | more for record, more in zip(case.records, given, strict=True)]
    assert shown_failure(case) is None


@pytest.mark.parametrize("source", OF_VALUES.strip().splitlines())
def test_what_templates_do_to_values(source: str):
    case = Case(3, source + CHATML)
    case.records = [record | {"chat_template_kwargs": {"extra": VALUES}} for record in case.records]
    case.options |= {"loss_on": "all", "unprinted": "report", "part_columns": False}
    assert shown_failure(case) is None
