"""What happens to the data: a step for each thing, a pure library with a thin PTransform on top."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transforms.chat.config import RenderConfig
    from transforms.dataset.own_pipeline import ReadConversations, WriteDataset
    from transforms.dataset.reader import Dataset
    from transforms.errors import InputError, ParameterError, RecordError, UserError
    from transforms.model.batches import Examples, Slice, Split
    from transforms.model.examples import Conversation, Example, PlainText, PromptCompletion, TokenRow
    from transforms.model.parts import Parts
    from transforms.rendering import RenderedExample, render
    from transforms.steps.custom import FilterExamples, MapExamples
    from transforms.steps.label import BuildLabels
    from transforms.steps.pack import TruncateOrPack
    from transforms.steps.parity import CheckParity
    from transforms.steps.parse import ParseConversations
    from transforms.steps.render import ApplyChatTemplate
    from transforms.steps.tokenize import Tokenize

__version__ = "0.3.0"

# Where each public name is defined. A name is imported when it is used: a command line must not wait for Beam.
_HOMES = {
    "ReadConversations": "dataset.own_pipeline",
    "ParseConversations": "steps.parse",
    "FilterExamples": "steps.custom",
    "MapExamples": "steps.custom",
    "RenderConfig": "chat.config",
    "ApplyChatTemplate": "steps.render",
    "CheckParity": "steps.parity",
    "Tokenize": "steps.tokenize",
    "BuildLabels": "steps.label",
    "TruncateOrPack": "steps.pack",
    "WriteDataset": "dataset.own_pipeline",
    "Dataset": "dataset.reader",
    "Split": "model.batches",
    "Slice": "model.batches",
    "Parts": "model.parts",
    "Examples": "model.batches",
    "Example": "model.examples",
    "Conversation": "model.examples",
    "PromptCompletion": "model.examples",
    "PlainText": "model.examples",
    "TokenRow": "model.examples",
    "UserError": "errors",
    "ParameterError": "errors",
    "InputError": "errors",
    "RecordError": "errors",
    "render": "rendering",
    "RenderedExample": "rendering",
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
    "Split",
    "Slice",
    "Parts",
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
    "render",
    "RenderedExample",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
