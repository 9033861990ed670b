"""The tokenizer of a worker, loaded from the files next to the output."""

from __future__ import annotations

import copy
import importlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from transforms.base.errors import UserError
from transforms.base.once import once_per_version
from transforms.base.stored import check_unchanged
from transforms.storage.files import file_system
from transforms.storage.walking import versions_below
from transforms.tokens.tokenizer_files import TOKENIZER_JSON, fingerprint, read_tokenizer_folder

# The environment variable that is set in a process of ours which needs only tokenizers and templates of transformers.
ONLY_TOKENIZERS = "CHATMILL_ONLY_TOKENIZERS"

# The tokenizers that are in use, by the fingerprint of their files: the launcher loads one to check it, before its
# files are stored next to the output, and workers in the same process, or forked from it, use that one.
_LOADED: WeakValueDictionary[str, Any] = WeakValueDictionary()

_CONFIG = "tokenizer_config.json"
# The class that is the same for all tokenizer.json files. save_pretrained names it if no other is needed.
_GENERIC_CLASSES = ("TokenizersBackend", "PreTrainedTokenizerFast")
# From these files transformers takes the added tokens as well, if tokenizer_config.json does not have them.
_OTHERS_WITH_ADDED_TOKENS = ("added_tokens.json", "special_tokens_map.json")
_OBJECT, _OBJECTS = msgspec.json.Decoder(dict[str, Any]), msgspec.json.Decoder(list[dict[str, Any]])
_STATE = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TRIMS = b'"trim_offsets":true'  # in the state of a post-processor


@once_per_version(versions_below)
def load_tokenizer(folder: str) -> Any:
    """Load the tokenizer of a folder with transformers, once for each process and content of its files.

    Args:
        folder: that holds the tokenizer's files, at any url. Code that comes with them is never run.

    Returns:
        The tokenizer, the same object for all callers. The offsets of its tokens include white space.

    Raises:
        StoreError: if the store of the folder fails.
        UserError: if the files are not those that a build stored there.
        Exception: what transformers raises if the files are not those of a tokenizer.
    """
    files = read_tokenizer_folder(folder)
    content = fingerprint(files)
    check_unchanged("tokenizer", folder, content)  # before what cannot be loaded
    tokenizer = _LOADED.get(content)
    if tokenizer is None:
        with _local_folder(folder, files) as local:
            tokenizer = _LOADED[content] = _from_pretrained(local, files)
    return tokenizer


def loaded_tokenizer(files: dict[str, bytes]) -> Any | None:
    """Return the tokenizer of some files if this process has loaded it, from wherever. files: of a tokenizer."""
    return _LOADED.get(fingerprint(files))


def _from_pretrained(folder: str, files: Mapping[str, bytes]) -> Any:
    if os.environ.get(ONLY_TOKENIZERS):
        _import_for_tokenizers()
    from transformers.utils import logging

    logging.disable_progress_bar()
    config = _decoded(files.get(_CONFIG, b"{}"), _OBJECT)
    # AutoTokenizer takes half a second to import. It finds the class, which other files than these may decide.
    is_generic = config and config.get("tokenizer_class") in _GENERIC_CLASSES and "auto_map" not in config
    loader: Any
    if is_generic and "config.json" not in files:
        from transformers.tokenization_utils_tokenizers import PreTrainedTokenizerFast as loader
    else:
        from transformers import AutoTokenizer as loader
    tokenizer = loader.from_pretrained(
        folder, trust_remote_code=False, local_files_only=True, **_added_tokens(config, files)
    )
    return with_white_space(tokenizer, is_own=True)


def _added_tokens(config: dict[str, Any] | None, files: Mapping[str, bytes]) -> dict[str, Any]:
    """The added tokens of tokenizer.json, as an argument of from_pretrained, if no other file has any.

    transformers would parse the whole file for them, with all tokens and merges: half a second.
    """
    if config is None or "added_tokens_decoder" in config or "fast_tokenizer_files" in config:
        return {}
    state = _decoded(files[TOKENIZER_JSON], _STATE)
    tokens = state and _decoded(state.get("added_tokens", b""), _OBJECTS)
    if tokens is None or any(name in files for name in _OTHERS_WITH_ADDED_TOKENS):
        return {}
    from tokenizers import AddedToken

    return {"added_tokens_decoder": {token.pop("id"): AddedToken(**token) for token in tokens}}


def _decoded(content: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[Any]) -> Any:
    """JSON of a type; None if it is something else, for which transformers raises an error."""
    try:
        return decoder.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


class _Deferred(ModuleType):
    """A package whose `__init__` has not run: it does when a name is used that the package does not have yet."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def _import_for_tokenizers() -> None:
    """Import of transformers what tokenizers and templates need.

    All of it takes a worker two seconds more, and 500 MB: it reads the source files of all models, to list their
    classes, and imports torch and PIL if it can.
    """
    if "torch" in sys.modules:
        return
    if "transformers" not in sys.modules and (spec := find_spec("transformers")):
        package = sys.modules["transformers"] = module_from_spec(spec)
        package.__class__ = _Deferred
        vars(package)["__version__"] = version("transformers")  # its submodules import it
    hidden = [name for name in ("torch", "PIL") if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        from transformers.utils import chat_template_utils, is_torch_available  # noqa: F401

        is_torch_available()  # the answer is cached
        import transformers.tokenization_utils_base  # noqa: F401
    finally:
        for name in hidden:
            del sys.modules[name]


@contextmanager
def _local_folder(folder: str, files: Mapping[str, bytes]) -> Iterator[str]:
    """The folder itself if it is on this machine, otherwise a temporary copy of its files."""
    system, path = file_system(folder)
    if os.path.isdir(path) and "file" in system.protocol:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="chatmill-") as copy:
        for name, content in files.items():
            Path(copy, name).parent.mkdir(exist_ok=True)
            Path(copy, name).write_bytes(content)
        yield copy


def with_white_space(tokenizer: Any, is_own: bool = False) -> Any:
    """Return a tokenizer whose offsets include white space: itself, or a copy if it is not ours.

    Some post-processors remove white space from the offsets, not from the tokens. Raises UserError if it gives none.
    """
    if not tokenizer.is_fast:
        raise UserError(
            f"{type(tokenizer).__name__} of transformers is in Python and gives no offsets of its tokens; expected a "
            f"class that reads {TOKENIZER_JSON}, such as PreTrainedTokenizerFast"
        )
    processor = tokenizer.backend_tokenizer.post_processor
    if processor is None or _TRIMS not in processor.__getstate__():
        return tokenizer
    tokenizer = tokenizer if is_own else copy.deepcopy(tokenizer)
    processor = tokenizer.backend_tokenizer.post_processor
    processor.__setstate__(processor.__getstate__().replace(_TRIMS, _TRIMS.replace(b"true", b"false")))
    tokenizer.backend_tokenizer.post_processor = processor
    return tokenizer
