"""What happens to the data: a step for each thing, a pure library with a thin PTransform on top."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from transforms.base.version import __version__ as __version__

if TYPE_CHECKING:
    from transforms.base.errors import (
        InputError,
        ParameterError,
        RecordDropped,
        RecordError,
        StoreError,
        Unavailable,
        UserError,
    )
    from transforms.chat.config import RenderConfig
    from transforms.dataset.custom_pipeline import WriteDataset
    from transforms.dataset.reader import Dataset, shards
    from transforms.model.batches import Examples, Slice, Task
    from transforms.model.chunks import Chunks
    from transforms.model.examples import Conversation, Example, PlainText, PromptCompletion, TokenRow
    from transforms.steps.custom import FilterExamples, MapExamples
    from transforms.steps.functions import pack, parse, tokenize
    from transforms.steps.one_conversation import RenderedExample, render
    from transforms.steps.pack import TruncateOrPack
    from transforms.steps.parse import ParseConversations
    from transforms.steps.read import ReadConversations
    from transforms.steps.texts import ApplyChatTemplate, BuildLabels, CheckParity, Tokenize


# Where each public name is defined. A name is imported when it is used: a command line must not wait for Beam.
_HOMES = {
    "ReadConversations": "steps.read",
    "ParseConversations": "steps.parse",
    "FilterExamples": "steps.custom",
    "MapExamples": "steps.custom",
    "RenderConfig": "chat.config",
    "ApplyChatTemplate": "steps.texts",
    "CheckParity": "steps.texts",
    "Tokenize": "steps.texts",
    "BuildLabels": "steps.texts",
    "TruncateOrPack": "steps.pack",
    "WriteDataset": "dataset.custom_pipeline",
    "Dataset": "dataset.reader",
    "shards": "dataset.reader",
    "Task": "model.batches",
    "Slice": "model.batches",
    "Chunks": "model.chunks",
    "Examples": "model.batches",
    "Example": "model.examples",
    "Conversation": "model.examples",
    "PromptCompletion": "model.examples",
    "PlainText": "model.examples",
    "TokenRow": "model.examples",
    "UserError": "base.errors",
    "ParameterError": "base.errors",
    "InputError": "base.errors",
    "RecordError": "base.errors",
    "RecordDropped": "base.errors",
    "Unavailable": "base.errors",
    "StoreError": "base.errors",
    "parse": "steps.functions",
    "tokenize": "steps.functions",
    "pack": "steps.functions",
    "render": "steps.one_conversation",
    "RenderedExample": "steps.one_conversation",
}
__all__ = [
    "ReadConversations",
    "ParseConversations",
    "FilterExamples",
    "MapExamples",
    "RenderConfig",
    "ApplyChatTemplate",
    "CheckParity",
    "Tokenize",
    "BuildLabels",
    "TruncateOrPack",
    "WriteDataset",
    "Dataset",
    "shards",
    "Task",
    "Slice",
    "Chunks",
    "Examples",
    "Example",
    "Conversation",
    "PromptCompletion",
    "PlainText",
    "TokenRow",
    "UserError",
    "ParameterError",
    "InputError",
    "RecordError",
    "RecordDropped",
    "Unavailable",
    "StoreError",
    "parse",
    "tokenize",
    "pack",
    "render",
    "RenderedExample",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
