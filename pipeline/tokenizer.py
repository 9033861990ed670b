"""The tokenizer and the chat template of a build: found, and checked as workers will load them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateSyntaxError

from pipeline.config import Options, is_template
from transforms.base.errors import ParameterError, Unavailable, UserError, before_the_work
from transforms.base.options import option_values
from transforms.chat.config import APPENDED, RenderConfig, RenderOptions
from transforms.chat.rendering.environment import compile_template
from transforms.chat.rendering.template import NO_TEMPLATE
from transforms.chat.spans.stop_tokens import configured_stop_tokens
from transforms.storage.files import join, path_type, read_bytes
from transforms.storage.retries import is_transient
from transforms.storage.writing import write_atomically
from transforms.tokens.tokenizer import load_tokenizer
from transforms.tokens.tokenizer_files import TOKENIZER_FILES, read_tokenizer_folder

if TYPE_CHECKING:
    from transforms.steps.render import Renderer


@dataclass(frozen=True)
class CheckedTokenizer:
    """A tokenizer and a chat template that workers can load.

    folder: a temporary one, with the files of the tokenizer. tokenizer: as transformers loads it. template: the text of
    the chat template; None for the tokenizer's own.
    """

    options: Options
    folder: str
    tokenizer: Any
    template: str | None

    @property
    def has_template(self) -> bool:
        """Whether there is a chat template."""
        return (self.template or self.tokenizer.chat_template) is not None

    def no_template(self) -> UserError:
        """Return the error for conversations without a chat template."""
        return UserError(f"--tokenizer {self.options.tokenizer}: {NO_TEMPLATE}: give it with --chat_template.")

    def warnings(self) -> Iterator[str]:
        """Yield warnings of stop tokens that may be mistyped, and of a wrong regular expression."""
        printed, added = str(self.template or self.tokenizer.chat_template), self.tokenizer.get_added_vocab()
        for text in (text.removeprefix(APPENDED) for text in self.options.eot_tokens):
            if text not in printed and not any(token in text for token in added):
                yield (
                    f"warning: --eot_tokens {text}: neither the chat template nor the added tokens of the tokenizer "
                    "have this text. If no answer is followed by it, it changes nothing."
                )
        if getattr(self.tokenizer.backend_tokenizer, "fix_mistral_regex", None) is False:
            yield (
                f"warning: --tokenizer {self.options.tokenizer} cuts texts by a regular expression of which "
                'transformers says that it is not that of the model. "fix_mistral_regex": true in its '
                "tokenizer_config.json replaces it."
            )

    def renderer(self, options: Options) -> Renderer:
        """Return what renders by the reference as a build does. options: of a source."""
        from transforms.steps.render import Renderer

        now = options.now or datetime.now().isoformat()
        rendering = option_values(RenderOptions, options)
        return Renderer(
            RenderConfig(tokenizer=self.folder, chat_template=self.template, now=now, engine="reference", **rendering)
        )


@contextmanager
def checked_tokenizer(options: Options, files: Mapping[str, bytes]) -> Iterator[CheckedTokenizer]:
    """Check the tokenizer, the stop tokens and the chat template of a build. files: of read_tokenizer_files.

    Raises:
        UserError: if workers cannot use one of them.
        Unavailable: if the store of the template does not answer.
    """
    with TemporaryDirectory() as folder:
        for name, content in files.items():
            write_atomically(join(folder, name), content)
        try:
            tokenizer = load_tokenizer(folder)
            if not options.eot_tokens:
                configured_stop_tokens(folder)
        except ParameterError as error:
            raise UserError(f"--tokenizer {options.tokenizer}: {error.problem}") from None
        except Exception as error:  # transformers raises any type for files that it does not understand
            raise UserError(f"--tokenizer {options.tokenizer}: it cannot be loaded ({_first_line(error)}).") from None
        for text in (text.removeprefix(APPENDED) for text in options.eot_tokens):
            ids = tokenizer.encode(text, add_special_tokens=False)
            if not ids or tokenizer.unk_token_id in ids:
                raise UserError(f"--eot_tokens {text}: the tokenizer has no tokens for this text.")
        yield CheckedTokenizer(options, folder, tokenizer, _resolve_template(options.chat_template, tokenizer))


@before_the_work("--tokenizer ")
def read_tokenizer_files(name: str) -> dict[str, bytes]:
    """Read the files of a tokenizer: the content of each by its name.

    Args:
        name: a folder, a url, or the name of a repository on the Hugging Face hub.

    Raises:
        UserError: if there is no tokenizer, or its store refuses to give it.
        Unavailable: if its store or the hub does not answer.
    """
    if "://" in name or os.path.exists(name) or name.startswith((".", "/", "~")):
        folder = os.path.expanduser(name)
    else:
        folder = _downloaded(name)
    return read_tokenizer_folder(folder)


def _resolve_template(value: str | None, tokenizer: Any) -> str | None:
    """The text of the chat template; None for the tokenizer's own. value: of --chat_template."""
    if value is None:
        return None
    own, name, template = tokenizer.chat_template, value, value
    named = {name: text for name, text in (own if isinstance(own, dict) else {"default": own}).items() if text}
    if is_template(value):
        name = "TEMPLATE"
    else:
        template = named.get(value) or _read_template(value, list(named))
    try:
        compile_template(template)
    except TemplateSyntaxError as error:
        raise UserError(f"--chat_template {name}: line {error.lineno}: {error.message}.") from None
    except (RecursionError, MemoryError, SyntaxError):  # SyntaxError is of the Python that Jinja makes of it
        raise UserError(f"--chat_template {name}: its blocks or expressions are nested too deeply.") from None
    return template


@before_the_work("--chat_template ")
def _read_template(url: str, names: list[str]) -> str:
    """Read a template from a file or url. names: those of the tokenizer's own templates, for the error."""
    try:
        if path_type(url):
            return read_bytes(url).decode()
    except UnicodeDecodeError:
        raise UserError(f"--chat_template {url}: the file is not UTF-8 text.") from None
    known = f"only {', '.join(names)}" if names else "none at all"
    raise UserError(
        f"--chat_template {url}: there is no such file, and the tokenizer has no template of that name ({known})."
    )


def _downloaded(name: str) -> str:
    """The folder in the hub's cache with a repository's tokenizer files, which are downloaded if they are not there."""
    from huggingface_hub import constants, snapshot_download

    try:
        return snapshot_download(name, allow_patterns=list(TOKENIZER_FILES))
    except Exception as error:  # of the hub's client, of its HTTP library, or of the system
        raise (Unavailable if is_transient(error) and not constants.HF_HUB_OFFLINE else UserError)(
            f"--tokenizer {name}: there is no such folder, and it cannot be downloaded from the Hugging Face hub "
            f"({_first_line(error)})."
        ) from None


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
