"""The steps refuse wrong parameters when a pipeline is built, before any worker starts."""

from __future__ import annotations

import apache_beam as beam
import pytest
from apache_beam.transforms.display import DisplayData
from apache_beam.typehints.decorators import TypeCheckError

from support.paths import TOKENIZER
from transforms import (
    ApplyChatTemplate,
    BuildLabels,
    CheckParity,
    Examples,
    ParameterError,
    ParseConversations,
    Parts,
    ReadConversations,
    RenderConfig,
    Split,
    Tokenize,
    TruncateOrPack,
    UserError,
)
from transforms.model.batches import Labels, Records, Rows, Texts, Tokens
from transforms.steps.pack import Packer
from transforms.steps.parity import ParityChecker
from transforms.steps.render import Renderer
from transforms.steps.tokenize import Encoder
from transforms.steps.write import ShardWriter, WriteShards

CONFIG = RenderConfig(tokenizer=str(TOKENIZER))
MISTAKES = {
    "a misspelt loss": (lambda: RenderConfig(tokenizer="t", loss_on="last_asistant"), "Did you mean last_assistant"),
    "a misspelt engine": (lambda: RenderConfig(tokenizer="t", engine="quick"), "engine='quick': expected auto"),
    "no tokenizer": (lambda: RenderConfig(tokenizer=""), "tokenizer='': expected a string"),
    "a template variable of the job": (
        lambda: RenderConfig(tokenizer="t", chat_template_kwargs={"messages": []}),
        "messages cannot be given",
    ),
    "a date that cannot be parsed": (
        lambda: RenderConfig(tokenizer="t", now="yesterday"),
        "now='yesterday': expected a moment",
    ),
    "a misspelt packing": (lambda: TruncateOrPack(max_length=8, packing="bdf"), "Did you mean bfd"),
    "a misspelt packing of the pure step": (lambda: Packer(max_length=8, packing="bdf"), "packing='bdf'"),
    "packing without a length": (lambda: TruncateOrPack(packing="bfd"), "needs a max_length"),
    "an unknown truncation": (lambda: TruncateOrPack(max_length=8, truncation="x"), "expected keep_start, keep_end"),
    "a length of 0": (lambda: TruncateOrPack(max_length=0), "max_length=0: expected a whole number above 0"),
    "a flag that is a string": (lambda: TruncateOrPack(shift_labels="false"), "expected True or False"),  # type: ignore[arg-type]
    "a misspelt format": (lambda: WriteShards("out", output_format=("parqet",)), "Did you mean parquet"),
    "a misspelt format of the pure step": (
        lambda: ShardWriter("out", output_format=("parqet",)),
        "output_format='parqet'",
    ),
    "a format that is not a list": (lambda: WriteShards("out", output_format="parquet"), "expected a list"),
    "a format given twice": (lambda: WriteShards("out", output_format=("parquet", "parquet")), "each once"),
    "columns that are no map": (lambda: ParseConversations(columns=["text"]), "of type Mapping"),  # type: ignore[arg-type]
    "a seed that is no number": (lambda: ParseConversations(seed="x"), "of type int"),  # type: ignore[arg-type]
    "a length of more than 64 bits": (lambda: TruncateOrPack(max_length=2**63), "above 0 and at most 10**18"),
    "a column to keep twice": (lambda: ParseConversations(keep_columns=["id", "id"]), "a list of names, each once"),
    "no patterns": (lambda: ReadConversations([]), "expected a string, or a list of strings"),
    "a misspelt column": (lambda: WriteShards("out", write_columns=["input_id"]), "Did you mean input_ids"),
    "a misspelt schema": (lambda: ParseConversations(schema="message"), "Did you mean messages"),
    "a column that no schema reads": (lambda: ParseConversations(columns={"mesages": "dialog"}), "Did you mean"),
    "an unknown role": (lambda: ParseConversations(roles={"bot": "asistant"}), "Did you mean assistant"),
    "a formatter without a function": (lambda: ParseConversations(formatter="file.py"), "expected module:function"),
    "a fraction above 1": (lambda: ParseConversations(validation_fraction=2), "expected a number from 0 to 1"),
    "a misspelt parity": (lambda: CheckParity(CONFIG, parity="rejct"), "Did you mean reject"),
    "a misspelt parity of the pure step": (lambda: ParityChecker(CONFIG, "rejct"), "parity='rejct'"),
    "a misspelt engine of the encoder": (lambda: Encoder(str(TOKENIZER), engine="quick"), "engine='quick'"),
    "a folder instead of a configuration": (lambda: ApplyChatTemplate("folder"), "of type RenderConfig"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_wrong_value_is_refused_with_its_parameter_and_what_was_expected(mistake):
    build, message = MISTAKES[mistake]
    with pytest.raises(ParameterError) as error:
        build()
    assert message in str(error.value)
    assert isinstance(error.value, ValueError) and isinstance(error.value, UserError)


@pytest.mark.parametrize(
    "build",
    [lambda: Tokenize(tokeniser="t"), lambda: RenderConfig("t"), lambda: Renderer(), lambda: TruncateOrPack(512)],  # type: ignore[call-arg,misc]
    ids=["a misspelt parameter", "a configuration by position", "nothing", "a length by position"],
)
def test_unknown_parameter_is_refused(build):
    with pytest.raises(TypeError):
        build()


STEPS = {
    "parse": (Records, ParseConversations()),
    "render": (Examples, ApplyChatTemplate(CONFIG)),
    "parity": (Texts, CheckParity(CONFIG)),
    "tokenize": (Texts, Tokenize(str(TOKENIZER))),
    "label": (Tokens, BuildLabels()),
    "pack": (Labels, TruncateOrPack()),
    "write": (Rows, WriteShards("out")),
}


@pytest.mark.parametrize("name", STEPS)
def test_step_accepts_only_its_own_kind_of_batch(name):
    kind, step = STEPS[name]
    for given in (Split, Records, Examples, Texts, Tokens, Labels, Rows):
        batches = beam.Pipeline("FnApiRunner") | beam.Create([]).with_output_types(Parts[given])
        if given is kind:
            batches | step
        else:
            with pytest.raises(TypeCheckError, match=kind.__name__):
                batches | step


def test_steps_show_their_options_as_display_data():
    shown = {item.key: item.value for item in DisplayData.create_from(STEPS["pack"][1]).items}
    assert shown["truncation"] == "keep_start"
