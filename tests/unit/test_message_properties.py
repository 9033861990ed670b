"""Laws of messages: any values become an example or a reject, and what is in one form stays as it is."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from transforms import Conversation, RecordError
from transforms.inputs.reading import ROLE_NAMES, TOOL_ARGUMENTS, Reading, ReadOptions
from transforms.inputs.schemas import content_of

THOROUGHLY = settings(max_examples=500)

# Any values, most of which are malformed where they stand.
SCALARS = st.sampled_from([None, True, False, 0, 1, 0.5, -1, 2**70, 1e400, "", " ", "a", "{", "{}", "[]", "null"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["name", "arguments", "function", "type", "text", "value", "weight"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)

# What is well-formed, in many forms.
ARGUMENTS = st.sampled_from([{}, {"b": 1, "a": [None]}, "", "{}", '{"a": 1, "a": 2}', None])
FUNCTIONS = st.fixed_dictionaries({"name": st.just("f"), "arguments": ARGUMENTS}) | st.just(
    '{"name": "f", "arguments": {"a": 1}}'
)
CALLS = FUNCTIONS | st.fixed_dictionaries(
    {"function": FUNCTIONS}, optional={"type": st.sampled_from([None, "function"]), "id": st.just("call_1")}
)
TOOLS = st.fixed_dictionaries({"name": st.just("f")}, optional={"parameters": st.sampled_from([{}, "{}"])})
TOOLS |= st.fixed_dictionaries({"function": TOOLS}) | st.just({"type": "web_search"})
WEIGHTS = st.sampled_from([None, 0, 0.0, False])
FLAGS = st.fixed_dictionaries(
    {}, optional={"train": WEIGHTS, "loss": WEIGHTS, "weight": WEIGHTS, "keep": WEIGHTS, "mask": SCALARS}
) | st.sampled_from([{"train": True}, {"masked": True}, {"loss_weight": 1.0}, {"loss_weight": 0.5}, {"loss": "?"}])
PARTS = st.builds(
    dict.__or__,
    st.sampled_from([{"type": "text", "text": "a"}, {"text": ""}, {"type": "text", "value": "b"}]),
    st.sampled_from([{}, {}, {"weight": 0}, {"train": True}, {"image": None}]),
)
TEXTS = st.sampled_from(["", "text", '<tool_call>{"name": "f", "arguments": {}}</tool_call>'])
TURNS = (
    st.fixed_dictionaries({"role": st.sampled_from(["user", "tool", "function", "gpt"]), "content": TEXTS})
    | st.fixed_dictionaries({"role": st.just("assistant"), "content": TEXTS | st.lists(PARTS, max_size=2)})
    | st.fixed_dictionaries({"role": st.just("user"), "content": st.lists(PARTS, max_size=2)})
    | st.fixed_dictionaries({"role": st.just("assistant"), "content": TEXTS, "tool_calls": st.lists(CALLS, max_size=2)})
    | st.fixed_dictionaries({"role": st.just("assistant"), "content": st.none(), "function_call": FUNCTIONS})
    | st.fixed_dictionaries({"from": st.just("function_call"), "value": st.lists(CALLS, min_size=1, max_size=2)})
)
MALFORMED = st.dictionaries(
    st.sampled_from(["role", "content", "tool_calls", "function_call", "images", "weight", "train"]), VALUES, max_size=1
)
MESSAGES = st.lists(st.builds(lambda *parts: parts[0] | parts[1] | parts[2], TURNS, FLAGS, MALFORMED), max_size=3)
TOOLS = st.lists(TOOLS, max_size=2) | VALUES
OPTIONS = st.builds(
    ReadOptions,
    roles=st.just(ROLE_NAMES),
    tool_arguments=st.sampled_from(TOOL_ARGUMENTS),
    train_field=st.sampled_from([None, "keep"]),
)


def read(record: dict[str, Any], options: ReadOptions) -> Conversation | None:
    """The conversation of a record, None if it is rejected. Any other exception fails the test."""
    try:
        _, content = content_of({k: v for k, v in record.items() if v is not None}, "messages", Reading(options))
    except RecordError:
        return None
    assert isinstance(content, Conversation)
    return content


@THOROUGHLY
@given(messages=MESSAGES, tools=TOOLS, options=OPTIONS)
def test_any_messages_become_one_form_or_a_reject(messages, tools, options):
    conversation = read({"messages": messages, "tools": tools}, options)
    if conversation is None:
        return
    for tool in conversation.tools or []:
        assert tool["type"] != "function" or isinstance(tool["function"]["name"], str)
    for message in conversation.messages:
        assert message["role"] in ("user", "assistant", "tool")
        assert message.get("weight") in (None, 0)
        assert message["role"] == "assistant" or "weight" not in message
        for call in message.get("tool_calls") or []:
            assert call["type"] == "function" and isinstance(call["function"]["name"], str)
            kinds = (dict, str) if options.tool_arguments == "keep" else dict
            assert isinstance(call["function"]["arguments"], kinds)
        content = message.get("content")
        for part in content if isinstance(content, list) else []:
            assert part["type"] == "text" and isinstance(part["text"], str)


@THOROUGHLY
@given(messages=MESSAGES, tools=TOOLS, options=OPTIONS)
def test_messages_in_the_one_form_are_not_changed_again(messages, tools, options):
    once = read({"messages": messages, "tools": tools}, options)
    if once is not None:
        assert read({"messages": once.messages, "tools": once.tools}, options) == once


@THOROUGHLY
@given(messages=MESSAGES, tools=TOOLS, options=OPTIONS)
def test_reading_does_not_change_the_record(messages, tools, options):
    before = repr((messages, tools))
    read({"messages": messages, "tools": tools}, options)
    assert repr((messages, tools)) == before
