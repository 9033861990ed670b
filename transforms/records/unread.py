"""Unread text: what a record says in columns that were not read, so that nothing is left out without a count.

The last word of a name says what it names: `prompt_id` is an id, `rejected_response` a response. Names of what is about
a record are metadata. Names of what a record says are content: another answer, another prompt, tools, reasoning.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from transforms.records.names import WORD

# Names that say what a record is about, and not what it says: docs/records.md has the reason for each group.
METADATA = {
    *("id", "uuid", "guid", "hash", "sha", "md5", "digest", "fingerprint", "index", "idx", "number", "num"),
    *("offset", "position", "filename", "path", "folder", "url", "uri", "link", "doi", "slug"),
    *("source", "src", "origin", "dataset", "corpus", "subset", "split", "repo", "repository", "provenance", "license"),
    *("licence", "copyright", "collection", "site", "website", "platform", "channel", "domain", "host"),
    *("author", "username", "annotator", "worker", "creator", "owner", "organization", "model", "engine"),
    *("generator", "provider", "version", "revision", "date", "datetime", "time", "timestamp", "ts", "year"),
    *("at", "created", "updated", "modified", "country", "region"),
    *("lang", "language", "locale", "category", "tag", "type", "kind", "class"),
    *("genre", "from", "speaker", "sender", "level", "grade", "difficulty"),
    *("score", "rating", "rank", "ranking", "quality", "reward", "vote", "count", "length", "len", "size", "token"),
    *("ratio", "percent", "probability", "prob", "logprob", "perplexity", "loss", "weight", "mask", "cost", "usage"),
    *("latency", "duration", "seed", "temperature"),
    *("flag", "correct", "correctness", "valid", "verified", "redacted", "toxic", "toxicity"),
    *("moderation", "safe", "safety", "nsfw", "pii", "deleted", "finished", "finish_reason", "stop_reason"),
    *("meta", "metadata", "stats", "statistics", "config", "configuration", "parameter", "param", "signature"),
}
# Names that may be of both: a label of a few words is metadata there, a longer text is not.
_AMBIGUOUS = {
    *("topic", "task", "style", "format", "role", "subject", "label", "user", "file", "line", "row", "key", "commit"),
    *("setting", "header", "info", "verdict", "status", "script"),
}
_MOST_OF_A_LABEL = 40, 3  # characters and words
_KINDS = {
    "answer": "answer response completion output solution generation reply target choice chosen rejected refusal",
    "prompt": "prompt question query instruction input problem context document passage background system history",
    "tools": "tool function call",
    "reasoning": "reasoning thinking thought think cot rationale explanation scratchpad",
    "conversation": "message conversation dialog dialogue turn chat",
}
_CONTENT = {name: kind for kind, names in _KINDS.items() for name in names.split()}
# Words that do not change what the word before them names, as in `reasoning_content`, `tool_defs`, `answer_b`.
_TRANSPARENT = {
    "content",
    "text",
    "string",
    "raw",
    "full",
    "trace",
    "trajectory",
    "def",
    "definition",
    "list",
    "a",
    "b",
}
# What arguments of a template are that choose what it does, and that say nothing.
_CHOICES = {"on", "off", "true", "false", "yes", "no", "auto", "none", "default", "minimal", "low", "medium", "high"}
# Metadata of a record, and content of what is nested in it: there they are what a function is called with.
_OF_CALLS = {"parameter", "param", "config", "configuration"}
# A text of at least this many characters is nowhere by chance.
_CERTAIN = 16
IN_A_WORD = re.compile(r"[A-Za-z0-9]")


@functools.lru_cache(maxsize=4096)
def kind_of_name(name: str) -> str | None:
    """Return what a column or a key has, by its name: `metadata`, a kind of content, or None if it is not known."""
    words = [word.lower() for word in WORD.findall(name)]
    while len(words) > 1 and (_TRANSPARENT & {words[-1], _singular(words[-1])} or words[-1].isdecimal()):
        words.pop()
    if not words:
        return None
    last = {words[-1], _singular(words[-1])}
    if METADATA & {*last, "_".join(words)} or words[0] in ("is", "has", "num"):
        return "metadata"
    return next((_CONTENT[word] for word in last & _CONTENT.keys()), None)


def _singular(word: str) -> str:
    return f"{word[:-3]}y" if word.endswith("ies") else word.removesuffix("s")


def texts_in(value: Any, name: str = "") -> Iterator[str]:
    """Give the texts in a value that are not empty, without those that are metadata by their names.

    Args:
        value: of a column or key.
        name: its name.
    """
    left = [(name, value)]  # no recursion: a record may be nested more deeply than Python calls functions
    while left:
        name, value = left.pop()
        if isinstance(value, str):
            if value and not value.isspace() and not (_is_ambiguous(name) and _is_label(value)):
                yield value
        elif isinstance(value, Mapping):
            left += [(str(key), item) for key, item in value.items() if not _is_nested_metadata(str(key))]
        elif isinstance(value, (list, tuple)):
            left += [(name, item) for item in value]


def strings_in(value: Any, with_names: bool = False) -> Iterator[str]:
    """Give all texts in a value in their order, whatever their names.

    Args:
        value: of a key.
        with_names: whether these are texts, too.
    """
    left = [value]  # no recursion, as in texts_in
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            left += reversed([*value, *value.values()] if with_names else [*value.values()])
        elif isinstance(value, list):
            left += reversed(value)


def texts_of_argument(name: str, value: Any) -> Iterator[str]:
    """Give the texts in the value of an argument of a chat template, without those that choose what it does.

    Args:
        name: of the argument.
        value: the value.
    """
    if kind_of_name(name) != "metadata":
        yield from (text for text in texts_in(value, name) if text.strip().lower() not in _CHOICES)


def has_text(value: Any, name: str = "") -> bool:
    """Return whether there is a text in a value, see texts_in."""
    return next(texts_in(value, name), None) is not None


@functools.lru_cache(maxsize=4096)
def _is_nested_metadata(name: str) -> bool:
    return kind_of_name(name) == "metadata" and _singular(name.lower()) not in _OF_CALLS


@functools.lru_cache(maxsize=4096)
def _is_ambiguous(name: str) -> bool:
    words = [word.lower() for word in WORD.findall(name)]
    return bool(words) and not _AMBIGUOUS.isdisjoint((words[-1], _singular(words[-1])))


def _is_label(text: str) -> bool:
    characters, words = _MOST_OF_A_LABEL
    return len(text) <= characters and len(text.split()) <= words


class ReadTexts:
    """What was read of a record, in which further texts are looked up.

    Args:
        texts: the texts that were read.
    """

    def __init__(self, texts: Iterable[str]):
        self._text = "\0".join(texts)

    def have(self, text: str) -> bool:
        """Return whether a text is in one of them; a short text, if it does not begin or end inside a word there."""
        text = text.strip()
        if len(text) >= _CERTAIN:
            return text in self._text
        starts, ends = IN_A_WORD.match(text), IN_A_WORD.match(text[-1:])
        at = self._text.find(text)
        while at >= 0:
            before, after = self._text[max(at - 1, 0) : at], self._text[at + len(text) : at + len(text) + 1]
            if not (starts and IN_A_WORD.match(before)) and not (ends and IN_A_WORD.match(after)):
                return True
            at = self._text.find(text, at + 1)
        return False

    def have_printed(self, text: str) -> bool:
        """Return whether a template printed a text there: as it is, as JSON, as Python, or each of its lines alone."""
        if self.have(text):
            return True
        forms = {json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(text)[1:-1], repr(text)[1:-1]} - {text}
        if any(map(self.have, forms)):
            return True
        lines = [line for line in text.splitlines() if line and not line.isspace()]
        return len(lines) > 1 and all(map(self.have, lines))
