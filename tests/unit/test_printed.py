"""A text that a template prints in any way is the one of Jinja, and whether all of it is printed is known."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.chats import assistant, user
from support.drawn import examples
from support.paths import TOKENIZER
from support.templates import NOW, WAYS
from support.transformers_text import TransformersText
from transforms import RecordError, render

# What it prints in the place of the first content is WAY.
TEMPLATE = (
    "{%- for message in messages -%}{{- '<|im_start|>' + message.role + '\\n' -}}{%- if loop.first -%}"
    "{%- set x = message.content -%}WAY{%- else -%}{{- message.content -}}{%- endif -%}{{- '<|im_end|>\\n' -}}"
    "{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)
LONG = 'a & "b"\n\n<c> b-a &&\nthe end'
WHOLE = [("qu", way) for way in WAYS["short"]] + [(LONG, f"{{{{ {way} }}}}") for way in WAYS["whole"]]
NOT_WHOLE = [("qu", way) for way in WAYS["not short"]]
NOT_WHOLE += [("begin & end", f"{{{{ {way} }}}}") for way in WAYS["not whole"]]


def is_printed(content: str, way: str) -> bool:
    """Whether a content is printed as a whole, in which case its text is that of transformers."""
    messages, template = [user(content), assistant("ok")], TEMPLATE.replace("WAY", way)
    given: dict[str, Any] = {"tokenizer": str(TOKENIZER), "chat_template": template}
    expected = TransformersText(template, TOKENIZER, datetime.fromisoformat(NOW)).apply(messages)
    assert render(messages, **given, unprinted="report").text == expected
    try:
        assert render(messages, **given).text == expected
    except RecordError as error:
        assert error.reason == "not_printed", error
        return False
    return True


@pytest.mark.parametrize(("content", "way"), WHOLE)
def test_a_content_that_is_escaped_or_decorated_is_printed(content: str, way: str):
    assert is_printed(content, way)


@pytest.mark.parametrize(("content", "way"), NOT_WHOLE)
def test_a_content_whose_end_is_cut_off_or_that_is_only_read_is_not_printed(content: str, way: str):
    assert not is_printed(content, way)


@examples(40)
@given(
    st.text(alphabet='ab&"<> \n-', min_size=1, max_size=12),
    st.lists(st.sampled_from(WAYS["whole"]), max_size=3),
    st.sampled_from(WAYS["statements"]),
)
@example("<", ["(x) | safe", "'<lt>'.join((x).split('<'))"], "{{ E }}")
@example("<", ["(x) | e", "(x) | pprint"], "{{ E }}")
# As long as the content, by chance.
@example("<<<<  <", ["(x) | wordwrap(3)"], WAYS["statements"][2])
@example("\n< ", ["'%s!' % (x)", "(x).splitlines(true) | join('| ')"], WAYS["statements"][2])
def test_ways_one_after_another_print_the_whole_content(content: str, ways: list[str], statement: str):
    expression = "x"
    for way in ways:
        expression = way.replace("(x)", f"({expression})")
    assert is_printed(content, statement.replace("E", expression))


ARGUMENTS: dict[str, str] = {
    "replace": "'a', '-'", "maketrans": "{}", "translate": "{97: 'b'}", "join": "['x', 'y']", "center": "40",
    "ljust": "40", "rjust": "40", "zfill": "40", "splitlines": "true", "expandtabs": "3", "format_map": "{}",
}  # fmt: skip


def test_each_method_of_a_string_gives_what_it_gives_for_the_plain_one():
    content, called = " an apple\tand\n a pear ", []
    for name in (name for name in dir(str) if not name.startswith("_")):
        for arguments in sorted({"", "'a'", ARGUMENTS.get(name, "")}):
            try:
                eval(f"{content!r}.{name}({arguments})", {"true": True})
            except (TypeError, ValueError, LookupError):
                continue
            called.append(f"x.{name}({arguments})")
    assert len(called) > 50
    assert is_printed(content, f"{{{{ x }}}}{{{{ {' ~ '.join(called)} }}}}")
