"""The PTransforms from examples to labels. What they do is apart from Beam, which only jobs import."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transforms.base.errors import ParameterError
from transforms.base.options import String, check_choice, checked
from transforms.chat.config import ENGINES, ParityOptions, RenderConfig, TokenizeOptions
from transforms.model.batches import Examples, Labels, Texts, Tokens
from transforms.steps.base import Step, for_sources
from transforms.steps.label import build_labels
from transforms.steps.parity import ParityChecker
from transforms.steps.render import Renderer
from transforms.steps.tokenize import Encoder


class ApplyChatTemplate(Step):
    """Render each example with the chat template, and find what of its text is trained on.

    PCollection[Chunks[Examples]] -> PCollection[Chunks[Texts]].

    Args:
        config: how conversations are rendered, and what is trained on.
        sources: for each source of the records, by its number, the fields of the configuration that have another value
            for it; all but tokenizer and engine.

    Raises:
        ParameterError: if a value is not one of those.
    """

    input, output = Examples, Texts

    def __init__(self, config: RenderConfig, *, sources: Sequence[Mapping[str, Any]] = ()):
        super().__init__(Renderer, _for_sources(config, sources), config=config)


class CheckParity(Step):
    """Compare each turn, and the text before it, with what they are when the model writes the turn.

    PCollection[Chunks[Texts]] -> PCollection[Chunks[Texts]].

    Args:
        config: how the texts were rendered.
        sources: as for ApplyChatTemplate.
        options: that of a build, by name: parity.

    Raises:
        ParameterError: if a value is not one of those.
    """

    input, output = Texts, Texts

    def __init__(self, config: RenderConfig, *, sources: Sequence[Mapping[str, Any]] = (), **options: Any):
        parity = ParityOptions(**options).parity
        super().__init__(ParityChecker, _for_sources(config, sources), config=config, parity=parity)


class Tokenize(Step):
    """Encode each text to token ids, with the offsets of each token.

    PCollection[Chunks[Texts]] -> PCollection[Chunks[Tokens]].

    Args:
        tokenizer: folder of the tokenizer, at any url that fsspec opens.
        engine: `reference` encodes with transformers alone; `auto` encodes faster, and fails if transformers encodes a
            sample differently. The output is the same.
        options: that of a build, by name: strip_bos.

    Raises:
        ParameterError: if a value is not one of those.
    """

    input, output = Texts, Tokens

    def __init__(self, tokenizer: str, *, engine: str = "auto", **options: Any):
        checked("tokenizer", tokenizer, String)
        check_choice("engine", engine, ENGINES)
        strip_bos = TokenizeOptions(**options).strip_bos
        super().__init__(Encoder, tokenizer=tokenizer, engine=engine, strip_bos=strip_bos)


class BuildLabels(Step):
    """Label each token with its id if it is trained on, and with -100 otherwise.

    PCollection[Chunks[Tokens]] -> PCollection[Chunks[Labels]].
    """

    input, output = Tokens, Labels

    def __init__(self) -> None:
        super().__init__(_labeller)


def _for_sources(config: RenderConfig, sources: Sequence[Mapping[str, Any]]) -> list[dict[str, RenderConfig]]:
    """Return the argument config of each source: all but tokenizer and engine may be others. Raises ParameterError."""
    if not isinstance(config, RenderConfig):
        raise ParameterError("config", config, "expected a value of type RenderConfig.")
    names = [name for name in vars(config) if name not in ("tokenizer", "engine")]
    return [{"config": each} for each in for_sources(config, sources, names)]


def _labeller() -> Callable[[Tokens], Labels]:
    return build_labels
