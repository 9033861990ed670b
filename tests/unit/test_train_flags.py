"""Flags that say which messages are trained on: honoured, rejected or noted, never silently ignored."""

from __future__ import annotations

import math

import pytest

from support.records import messages_of, notes_of, reject_of
from transforms import ParameterError, ParseConversations

USER = {"role": "user", "content": "Name a river."}
ANSWER = {"role": "assistant", "content": "The Aare."}


def weight(flags, **options):
    """The weight of an answer with these flags. No flag that was understood is left."""
    message = messages_of(USER, {**ANSWER, **flags}, **options)[1]
    assert message.keys() - {"weight"} == {"role", "content"}
    return message.get("weight")


@pytest.mark.parametrize("key", ["train", "training", "loss"])
def test_false_means_that_a_message_is_not_trained_on(key):
    for value in (False, 0, 0.0, "false", "False"):
        assert weight({key: value}) == 0
    for value in (True, 1, 1.0, "true", None):
        assert weight({key: value}) is None


def test_masked_means_that_a_message_is_not_trained_on():
    assert weight({"masked": True}) == 0
    assert weight({"masked": False}) is None


@pytest.mark.parametrize("key", ["weight", "loss_weight"])
def test_a_weight_of_0_means_that_a_message_is_not_trained_on(key):
    for value in (0, 0.0, False):
        assert weight({key: value}) == 0
    for value in (1, 1.0, True, None):
        assert weight({key: value}) is None


def test_another_field_may_be_named():
    assert weight({"keep": False}, train_field="keep") == 0
    assert weight({"keep": True}, train_field="keep") is None
    assert weight({"keep": 0.0}, train_field="keep") == 0
    assert weight({"name": False}, train_field="name") == 0
    assert weight({"train": False}, train_field="keep") == 0
    assert reject_of({"messages": [{**ANSWER, "keep": "good"}]}, train_field="keep")[0] == "bad_weight"
    with pytest.raises(ParameterError, match="train_field"):
        ParseConversations(train_field="content")


@pytest.mark.parametrize("value", [0.5, 2, 1e-3])
def test_another_weight_rejects_the_record(value):
    why = "expected 0 or 1: a label is the token's id or -100, and trainers read no weights"
    expected = ("bad_weight", f"messages[1] has the weight {value}; {why}")
    assert reject_of({"messages": [USER, {**ANSWER, "loss_weight": value}]}) == expected
    assert reject_of({"messages": [USER, {**ANSWER, "keep": value}]}, train_field="keep") == expected


@pytest.mark.parametrize("value", [-1, -0.5, "0", "half", [], {}, math.inf, 1e39, 10**400])
def test_what_is_not_a_weight_rejects_the_record(value):
    if value == math.inf:  # JSON has no infinity
        value = "Infinity"
    reason, detail = reject_of({"messages": [USER, {**ANSWER, "weight": value}]})
    assert reason == "bad_weight" and len(detail) < 200


@pytest.mark.parametrize(
    "flags",
    [
        {"train": False, "weight": 1},
        {"train": True, "weight": 0},
        {"train": True, "masked": True},
        {"weight": 0.5, "loss_weight": 0.25},
        {"weight": 1, "loss_weight": 0.5},
    ],
)
def test_flags_that_contradict_each_other_reject_the_record(flags):
    reason, detail = reject_of({"messages": [{**ANSWER, **flags}]})
    assert reason == "bad_weight" and "contradicts itself" in detail


def test_flags_that_agree_are_one_weight():
    assert weight({"train": False, "masked": True, "weight": 0, "loss_weight": 0.0}) == 0
    assert weight({"train": True, "masked": False, "weight": 1, "loss_weight": 1.0}) is None


def test_flags_of_other_roles_are_removed_and_noted_if_they_say_to_train():
    for flags in ({"train": False}, {"weight": 0}, {"masked": True}, {"loss_weight": None}):
        assert messages_of({**USER, **flags}, ANSWER) == [USER, ANSWER]
        assert not notes_of({**USER, **flags}, ANSWER)
    for flags in ({"train": True}, {"weight": 1.0}, {"masked": False}, {"loss_weight": 0.5}):
        assert messages_of({**USER, **flags}, ANSWER) == [USER, ANSWER]
        assert [*notes_of({**USER, **flags}, ANSWER)] == ["train_flags_on_other_roles"]


@pytest.mark.parametrize(
    "key",
    [
        *("trainable", "do_train", "train_on", "isTrained", "training_detail", "train_detail", "loss_mask"),
        *("ignore_loss", "no_loss", "mask", "unmasked", "lossWeight", "sample_weight", "weights"),
    ],
)
def test_keys_that_look_like_flags_are_noted_and_stay(key):
    message = {**ANSWER, key: False}
    assert messages_of(USER, message) == [USER, message]
    assert notes_of(USER, message) == {"train_flags_not_understood": f'messages[1] has "{key}": false'}
    assert not notes_of(USER, {**ANSWER, key: None})


@pytest.mark.parametrize("key", ["name", "constraint", "glossary", "reasoning_content", "refusal", "damask", "strain"])
def test_other_keys_are_not_noted(key):
    assert not notes_of(USER, {**ANSWER, key: "a"})


@pytest.mark.parametrize("value", ["yes", 0.5, 2, [], {"a": 1}])
def test_a_known_flag_whose_value_is_not_understood_is_noted(value):
    message = {**ANSWER, "loss": value}
    assert messages_of(USER, message) == [USER, message]
    assert [*notes_of(USER, message)] == ["train_flags_not_understood"]


def test_parts_of_one_weight_give_it_to_their_message():
    part = {"type": "text", "text": "The Aare."}
    parts = {"role": "assistant", "content": [part, part]}
    for flag in ({"weight": 0}, {"train": False}):
        marked = {"role": "assistant", "content": [{**part, **flag}, {**part, **flag}]}
        assert messages_of(USER, marked) == [USER, {**parts, "weight": 0}]
    assert messages_of({**parts, "content": [{**part, "weight": 1}]}) == [{**parts, "content": [part]}]
    assert messages_of({"role": "user", "content": [{**part, "weight": 0}]}) == [{"role": "user", "content": [part]}]


def test_parts_of_a_message_of_weight_0_need_no_weight():
    part = {"type": "text", "text": "The Aare."}
    message = {"role": "assistant", "content": [{**part, "weight": 0}, part], "weight": 0}
    expected = [{"role": "assistant", "content": [part, part], "weight": 0}]
    assert messages_of(message) == expected


@pytest.mark.parametrize("weights", [(0.5, 1), (0.5, 0.5), (0, 0.5), (1, 2)])
def test_parts_of_another_weight_reject_the_record(weights):
    part = {"type": "text", "text": "The Aare."}
    message = {"role": "assistant", "content": [{**part, "weight": weight} for weight in weights]}
    number = next(number for number, weight in enumerate(weights) if weight not in (0, 1))
    reason, detail = reject_of({"messages": [message]})
    assert reason == "bad_weight"
    assert detail.startswith(f"content[{number}] of messages[0] has the weight {weights[number]}; expected 0 or 1")


def test_parts_of_weight_0_keep_it_if_others_are_trained_on():
    part = {"type": "text", "text": "The Aare."}
    message = {"role": "assistant", "content": [{**part, "train": False}, {**part, "weight": 1}]}
    expected = {"role": "assistant", "content": [{**part, "weight": 0}, part]}
    assert messages_of(message) == [expected]
    assert messages_of({**message, "weight": 1}) == [expected]
