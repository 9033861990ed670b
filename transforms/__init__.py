"""What happens to the data: one file for each step, a pure library with a thin PTransform on top."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Where each public name lives. They are imported when they are asked for: a command line must not wait for Beam.
_HOMES = {
    "ReadConversations": "dataset.own_pipeline",
    "ReadSplits": "steps.read",
    "ParseConversations": "steps.parse",
    "FilterExamples": "steps.custom",
    "MapExamples": "steps.custom",
    "ApplyChatTemplate": "steps.render",
    "CheckParity": "steps.parity",
    "RenderConfig": "chat.config",
    "Tokenize": "steps.tokenize",
    "BuildLabels": "steps.label",
    "TruncateOrPack": "steps.pack",
    "WriteShards": "steps.write",
    "WriteDataset": "dataset.own_pipeline",
    "Split": "model.batches",
    "Examples": "model.batches",
    "Example": "model.examples",
    "Conversation": "model.examples",
    "PromptCompletion": "model.examples",
    "PlainText": "model.examples",
    "TokenRow": "model.examples",
    "InputError": "errors",
    "ParameterError": "errors",
    "RecordError": "errors",
    "UserError": "errors",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
