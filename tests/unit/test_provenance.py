"""Strings with sources are the strings they stand for, and know where their characters came from."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.drawn import examples
from transforms import Conversation
from transforms.chat.rendering.environment import compile_template, render
from transforms.chat.rendering.instrument import instrumented, print_parts, read_parts
from transforms.chat.rendering.omissions import find_content_omission
from transforms.chat.rendering.renderings import Rendering
from transforms.chat.rendering.tracked_text import SourcedText, is_copy, joined, list_runs, sourced

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "replace": ("a", "-"), "maketrans": ({},), "translate": ({97: "b"},), "join": (["x", "y"],), "center": (40,),
    "ljust": (40,), "rjust": (40,), "zfill": (40,), "splitlines": (True,), "expandtabs": (3,), "format_map": ({},),
    "__getitem__": (slice(1, None, 2),), "__mul__": (2,), "__rmul__": (2,), "__mod__": ((),), "__format__": ("",),
}  # fmt: skip
TEXTS = st.text(alphabet="ab \n\tÄß", max_size=8)


@pytest.mark.parametrize(
    "name", sorted({name for name in dir(str) if not name.startswith("_")} | {"__add__", *ARGUMENTS})
)
def test_each_method_gives_what_it_gives_for_the_plain_string(name: str):
    plain = " an apple\tand\n a pear "
    for arguments in [(), ("a",), ARGUMENTS.get(name, ("a",))]:
        results: list[Any] = []
        for text in (plain, sourced(plain, "k")):
            try:
                results.append(getattr(text, name)(*arguments))
            except (TypeError, ValueError, LookupError) as error:
                results.append(type(error))
        assert results[0] == results[1]


def sources_are_right(text: str, origin: str) -> None:
    at = 0
    for length, sources in list_runs(text):
        if is_copy(length, sources):
            _, start, stop = sources[0]
            assert text[at : at + length] == origin[start:stop]
        at += length
    assert at == len(text)


@examples(400)
@given(TEXTS, st.sampled_from([None, "a", " ", "ab"]), st.integers(-1, 2), st.slices(8))
def test_copied_characters_are_those_of_their_source(origin: str, separator: str | None, limit: int, part: slice):
    text = sourced(origin, "k")
    found = [text.strip(separator), text.lstrip(separator), text.rstrip(separator), text[part.start : part.stop], *text]
    found += [*text.split(separator, limit), *text.rsplit(separator, limit), *text.splitlines(), *text.splitlines(True)]
    found += [text + "!", "!" + text, ", ".join(["x", text]), text.replace("a", "--"), text.replace("", "-")]
    if separator:
        found += [*text.partition(separator), *text.rpartition(separator), text.removeprefix(separator)]
    # Characters that were made of the text, and are as many as it has by chance.
    found += [text.zfill(len(text) + 1)[: len(text)], text.replace("a", "-"), "-".join(text.split("b"))]
    for one in found:
        sources_are_right(one, origin)
    for pieces in (text.split(separator, limit), text.splitlines(True)):
        assert all(isinstance(piece, SourcedText) for piece in pieces if piece)


# Each prints the text, in another way.
WAYS = [
    "{{ x }}",
    "{{ 'a' + x + 'b' }}",
    "{{ 'a' ~ x ~ 1 }}",
    "{{ '%s' % x }}",
    "{{ '%s %d' % (x, 3) }}",
    "{{ '%s' | format(x) }}",
    "{{ '{} {a}'.format(x, a=1) }}",
    "{{ '{a}'.format(a=x) }}",
    "{{ ' '.join(['a', x]) }}",
    "{{ ['a', x] | join(' ') }}",
    "{{ [{'k': x}] | map(attribute='k') | join }}",
    "{{ [{'k': x}] | join(attribute='k') }}",
    "{{ [x] | first }}",
    "{{ [x] }}",
    "{{ {'k': x} }}",
    "{{ {'k': [x]} | tojson }}",
    "{{ x | tojson | safe }}",
    "{{ (x | safe) + 'b' }}",
    "{{ 'a' + (x | e) }}",
    "{{ (x | safe) ~ 'b' }}",
    "{{ x | upper }}",
    "{{ x.lower().title() }}",
    "{{ x | indent(2) }}",
    "{{ x | trim | string }}",
    "{{ x | replace('q', 'w') }}",
    "{{ x.split()[0] }}",
    "{{ x[1:] }}",
    "{{ x | list | join }}",
    "{{ x | reverse }}",
    "{{ x | default('y') }}",
    "{{ x | truncate(3, true, '') }}",
    "{{ x | center(20) }}",
    "{{ x * 2 }}",
    "{{ x.center(9) }}",
    "{%- set y -%}{{ x }}{%- endset -%}{{ y }}",
    "{%- macro m(v) -%}<{{ v }}>{%- endmacro -%}{{ m(x) | trim }}",
    "{%- filter upper -%}{{ x }}{%- endfilter -%}",
    "{%- set n = namespace(y='') -%}{%- set n.y = n.y + x -%}{{ n.y }}",
    "{%- for c in x -%}{{ c }}{%- endfor -%}",
    "{%- macro m() -%}{{ caller() }}{%- endmacro -%}{%- call m() -%}{{ x }}{%- endcall -%}",
    "{%- generation -%}{{ x }}{%- endgeneration -%}",
    "{{ {'k': x}.items() | list }}",
    "{{ {x: 1} | tojson }}",
    "{{ {x: 1}.keys() | join }}",
    "{{ [x, 'b'] | sort | last }}",
    "{{ (x, 'b') | unique | list }}",
    "{{ x if x is string and x == 'qu' else 'no' }}",
]
# None prints the text, although each reads it.
OTHER_WAYS = [
    "{{ x | length }}",
    "{{ x == 'qu' }}",
    "{{ 'q' in x }}",
    "{{ x.startswith('q') }}",
    "{{ x[:0] }}",
    "{{ 'abc'.replace('b', '') }}",
    "{%- if x -%}y{%- endif -%}",
    "{{ {'qu': 'found'}[x] }}",
    "{{ 7 % 4 }}",
    "{{ [x] | length }}",
    "{{ 'qu' }}",
    "{{ x is string }}",
    "{%- for c in x -%}.{%- endfor -%}",
    "{{ 'a,b'.split(',')[x | length - 1] }}",
]


# Each prints all of a text, escaped or decorated. They are combined with one another.
WHOLE = [
    "({}) | replace('&', '&amp;')",
    "({}).replace('\"', '\\\\\"')",
    "({}) | replace('a', 'b') | replace('b', 'ab')",
    "({}).split('&') | join('&amp;')",
    "'<lt>'.join(({}).split('<'))",
    "({}) | indent(2)",
    "({}) | indent('> ', true, true)",
    "({}) | e",
    "({}) | forceescape",
    "({}) | safe",
    "(({}) | safe).center(30)",
    "(({}) | safe).split('b') | join('b')",
    "({}) | tojson",
    "[({})] | tojson(indent=2)",
    "({}) | urlencode",
    "{{'k': ({})}} | urlencode",
    "{{'k': ({})}} | xmlattr",
    "({}) | wordwrap(3)",
    "({}) | center(20)",
    "({}) | title",
    "({}) | upper",
    "({}) | pprint",
    "({}) | truncate(100000)",
    "({}) | list | batch(2) | map('join') | join",
    "({}) | list | slice(3) | map('join') | join('.')",
    "({}) | list | select | map('e') | join",
    "({}) | list | map('upper') | join",
    "({}) | reverse",
    "({})[::-1]",
    "({})[:1] ~ ({})[1:]",
    "({})[::2] ~ ({})[1::2]",
    "[{{'k': ({})}}] | join(', ', attribute='k')",
    "[{{'k': ({})}}] | map(attribute='k') | map('replace', '&', '+') | join",
    "'%s!' % ({})",
    "'%(a)s' | format(a=({}))",
    "'{{}} {{a}}'.format(1, a=({}))",
    "'{{:>9}}'.format(({}))",
    "({}) ~ ('<' | safe) ~ 1",
    "('<' | safe) + ({})",
    "({}).splitlines(true) | join('| ')",
    "({}).partition('&') | join",
    "'a=X;'.replace('X', ({}))",
    "'a=X;' | replace('X', ({}))",
    "({}) if ({}) else 'none'",
]
STATEMENTS = [
    "{{ E }}",
    "{% set y %}{{ E }}{% endset %}{{ y }}",
    "{% set n = namespace(y='') %}{% for c in (E) %}{% set n.y = n.y + c %}{% endfor %}{{ n.y }}",
    "{% for c in (E) %}{{ c }}{{ '' if loop.last else '_' }}{% endfor %}",
    "{% for c in (E) %}{{ loop.previtem }}{{ c if loop.last }}{% endfor %}",
    "{% macro m(v) %}<{{ v }}>{{ caller(v) }}{% endmacro %}{% call(v) m(E) %}{{ v }}{% endcall %}",
    "{% macro m() %}<{{ caller() | indent(3) }}>{% endmacro %}{% call m() %}{{ E }}{% endcall %}",
    "{% filter indent(1) | e %}{{ E }}{% endfilter %}",
]
# Each prints the text without its end, or nothing of it.
NOT_WHOLE = [
    "x[:4]",
    "x[::2]",
    "x | truncate(5, true, '...')",
    "x | replace('end', '')",
    "(x | safe).split()[0]",
    "(x | safe)[:4] | upper",
    "(x | safe).replace('end', '')",
    "(x | safe).partition(' ')[0].title()",
    "[{'k': 'q', 'o': x}] | join(attribute='k')",
    "'abc'.replace('z', x)",
    "'abc' | replace('z', x)",
    "'abc'.strip(x)",
    "x.format('q')[:3]",
    "x.split(' ')[:1] | join('end')",
    "x.split('&')[0] | indent(2)",
    "(x | tojson).split('&')[0]",
    "(x | tojson)[:7]",
    "'{:>30}'.format(x).split('&')[0]",
]
KEY = (0, "content", "content", None)


def rendered_with_sources(template: str, values: dict[str, Any]) -> str:
    return joined(print_parts(instrumented(template), values))


def is_whole(found: str, content: str) -> bool:
    printed = Rendering(Conversation([]), [], *read_parts([found])[:3]).printed
    return find_content_omission(content, printed.get(KEY, ()), False) is None


@examples(300)
@given(
    st.text(alphabet='ab&"<> \n-', max_size=12),
    st.lists(st.sampled_from(WHOLE), max_size=3),
    st.sampled_from(STATEMENTS),
)
@example("<", ["({}) | safe", WHOLE[4]], "{{ E }}")
@example("<", ["({}) | e", "({}) | pprint"], "{{ E }}")
@example("a\n<", ["({}) | e", "({}) | indent(2)"], "{{ E }}")
# As long as the content, by chance.
@example("<<<<  <", ["({}) | wordwrap(3)"], STATEMENTS[2])
@example("\n< ", ["'%s!' % ({})", "({}).splitlines(true) | join('| ')"], STATEMENTS[2])
def test_content_that_is_escaped_or_decorated_is_printed_as_a_whole(content: str, ways: list[str], statement: str):
    expression = "x"
    for way in ways:
        expression = way.replace("({})", f"({expression})").replace("{{", "{").replace("}}", "}")
    template = statement.replace("E", expression)
    found = rendered_with_sources(template, {"x": sourced(content, KEY)})
    assert found == render(compile_template(template), {"x": content})
    assert sum(length for length, _ in list_runs(found)) == len(found)
    assert is_whole(found, content)


@pytest.mark.parametrize("way", WHOLE)
def test_each_way_prints_the_whole_content(way: str):
    content = 'a & "b"\n\n<c> b-a &&\nthe end'
    template = "{{ " + way.replace("({})", "x").replace("{{", "{").replace("}}", "}") + " }}"
    found = rendered_with_sources(template, {"x": sourced(content, KEY)})
    assert found == render(compile_template(template), {"x": content})
    assert is_whole(found, content)


@pytest.mark.parametrize("expression", NOT_WHOLE)
def test_content_whose_end_is_cut_off_is_not_printed_as_a_whole(expression: str):
    template, content = "{{ " + expression + " }}", "begin & end"
    found = rendered_with_sources(template, {"x": sourced(content, KEY)})
    assert found == render(compile_template(template), {"x": content})
    assert not is_whole(found, content)


@pytest.mark.parametrize(("template", "is_printed"), [(w, True) for w in WAYS] + [(w, False) for w in OTHER_WAYS])
def test_template_prints_the_same_text_which_has_the_sources_of_what_it_printed(template: str, is_printed: bool):
    found = rendered_with_sources(template, {"x": sourced("qu", "k")})
    assert found == render(compile_template(template), {"x": "qu"})
    assert any(sources for length, sources in list_runs(found) if length) == is_printed
