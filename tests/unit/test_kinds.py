"""Kinds of option values: which texts an option takes."""

from __future__ import annotations

import pytest

from pipeline.cli.options import parse_options
from transforms import UserError
from transforms.base.kinds import duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("0s", 0), ("30s", 30), ("10m", 600), ("6h", 21_600), ("7d", 604_800), ("007d", 604_800)]
)
def test_a_duration_is_a_number_of_seconds(text, seconds):
    assert duration.parse(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "-1s", "1.5h", "10 m", "10M", "1h30m", "7w", "10m\n", "١s"])
def test_a_duration_has_one_number_and_one_unit(text):
    with pytest.raises(ValueError, match=r"^expected a duration, such as 30s, 10m, 6h or 7d\.$"):
        duration.parse(text)


SAMPLES = {
    "input": (["gs://a/b", "a,b", " a"], ["", " ", ","]),
    "schema": (["auto", "prompt_completion"], ["", "Auto", "auto,text", "none"]),
    "columns": (
        ["messages=dialog", "text=b,tools=d e", " text =b=c"],
        ["messages", "text=,tools=c", "=b", "text=b,", "text= ", "dialog=messages"],
    ),
    "message_fields": (["role=speaker", "a=b, c = d "], ["role", "role=", "=b"]),
    "roles": (["narrator=user", "a=user, b = tool "], ["narrator", "narrator=poet", "a=user,b", "=user"]),
    "formatter": (["package.module:function", "gs://a/f.py:f"], ["function", ":f", "f:"]),
    "split_bytes": (["1", "0064", "67108864"], ["0", "-1", "1.5", "1e6", "", "64MiB"]),
    "chat_template": (["default", "gs://a/b.jinja", "{{ messages }}"], []),
    "train_parts": (["content", "content, end "], ["contents", ",", "content;end"]),
    "chat_template_kwargs": (['{"enable_thinking": false}', "{}", ' {"a": {}} '], ["", "[]", "null", "true", "{"]),
    "now": (
        ["2026-11-20T12:00:00", "2026-11-20", "2026-11-20 23:59"],
        ["tomorrow", "2026-13-01", "2026-11-20T24:00:00", "2026-11-20T", "20261120"],
    ),
    "strip_bos": (["true", "false"], ["", "yes", "True", "1"]),
    "max_length": (["none", "4096"], ["0", "None", "4k", ""]),
    "packing": (["bfd", "bfd_split"], ["bdf", "bfd_", ""]),
    "validation_fraction": (
        ["0", "1", "0.02", ".5", "1.0", "1.", "1e-05", "0.0", ".5e-3", "1E-2"],
        ["1.01", "2", "-0.1", "", ".", "1e5", "half", "1/2", "nan"],
    ),
    "seed": (["0", "-3", "17"], ["", "1.5", "x"]),
    "output_format": (["parquet", "tfrecord.gz, parquet"], ["", "csv", "tfrecord-gz", "parquet;tfrecord"]),
    "write_columns": (["input_ids", "input_ids,loss_mask"], ["ids", "", "input_ids labels"]),
    "keep_columns": (["id", "id,topic"], ["", ","]),
    "engine": (["reference"], ["slow"]),
    "epochs": (["2.5", ".3", "1", "1e3", "1e-05"], ["-1", "two", "1e7", "1e-7", ""]),
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_an_option_takes_the_texts_of_its_kind_and_no_others(name):
    # Some values need another option: bfd needs a max_length.
    more = {
        "packing": {"max_length": "9"},
        "epochs": {"shuffle": "global"},
    }
    valid, invalid = SAMPLES[name]
    for sample in (*valid, *invalid):
        given = {"input": "i", "tokenizer": "t", "output": "o"} | more.get(name, {}) | {name: sample}
        arguments = [f"--{option}={value}" for option, value in given.items()]
        if sample in valid:
            parse_options(arguments)
        else:
            with pytest.raises(UserError):
                parse_options(arguments)
