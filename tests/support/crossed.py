"""Draw a corpus whose records are known token by token, and options together.

Nothing of what builds a dataset is used: the text of a record is written here as the template of the small tokenizer
writes it, and its words are a number that no other content has.
"""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st
from tokenizers import Tokenizer

from support.kinds import ALL_COLUMNS
from support.paths import TOKENIZER

IGNORED = -100
# Options that share out the records of one build, so that an append refuses them.
OF_ONE_BUILD = ("weight", "max_examples", "max_tokens", "mix_tokens")
MIXES = ("epochs", *OF_ONE_BUILD)


@dataclass(frozen=True)
class Content:
    """What a record says: words with its number, in turns of a user and of the assistant, or as a text."""

    number: int
    turns: tuple[tuple[int, int], ...]
    is_text: bool = False

    def words(self, count: int) -> str:
        return " ".join(f"w{self.number}q {place}" for place in range(count + 1))

    @property
    def messages(self) -> list[dict[str, Any]]:
        texts = [words for turn in self.turns for words in turn]
        roles = zip(("user", "assistant") * len(self.turns), texts, strict=True)
        return [{"role": role, "content": self.words(count)} for role, count in roles if count >= 0]


@dataclass(frozen=True, eq=False)
class Record:
    """A record of a corpus.

    Attributes:
        source: the number of its source.
        url, position: where it is.
        increment: 0 in the first build, 1 in what is appended.
        id: its column `id`; None if it has none.
        ids, labels: of its tokens; none if it is to be rejected.
        rejected: the reason; None if it is to be read.
    """

    source: int
    url: str
    position: int
    increment: int
    id: Any
    ids: tuple[int, ...]
    labels: tuple[int, ...]
    rejected: str | None = None

    @property
    def place(self) -> tuple[str, int]:
        return self.url, self.position

    def trained(self, shifted: bool = False) -> int:
        """How many tokens are trained on. With shifted labels, the first token is predicted by nothing."""
        return sum(label != IGNORED for label in self.labels[shifted:])


@functools.cache
def _tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(TOKENIZER / "tokenizer.json"))


@functools.cache
def tokens_of(content: Content) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids and the labels of a content: of the assistant's turns up to the line break after them, and of a text."""
    text, trained = "", list[tuple[int, int]]()
    if content.is_text:
        encoded = _tokenizer().encode(content.words(content.turns[0][0]), add_special_tokens=False)
        ids = (*encoded.ids, _tokenizer().token_to_id("<|im_end|>"))
        return ids, ids
    for message in content.messages:
        text += f"<|im_start|>{message['role']}\n"
        begin = len(text)
        text += f"{message['content']}<|im_end|>\n"
        if message["role"] == "assistant":
            trained.append((begin, len(text)))
    encoded = _tokenizer().encode(text, add_special_tokens=False)
    is_trained = [any(begin <= start < stop for begin, stop in trained) for start, _ in encoded.offsets]
    return tuple(encoded.ids), tuple(id if one else IGNORED for id, one in zip(encoded.ids, is_trained, strict=True))


@dataclass
class Case:
    """A corpus, and the options of its build.

    Attributes:
        files: of each source: of each file its suffix, its increment, and its records: the content, the form in which
            it is written, and the id.
        sources: of each source the options of its own.
        options: of the build.
        again: options of Beam with which the same build is made once more; empty for none.
    """

    files: list[list[tuple[str, int, list[tuple[Content, str, Any]]]]]
    sources: list[dict[str, Any]]
    options: dict[str, Any]
    again: tuple[str, ...] = ()

    def value(self, name: str, default: Any = None) -> Any:
        return self.options.get(name, default)

    @property
    def mixes(self) -> bool:
        return "mix_tokens" in self.options or any({*source} & {*MIXES} for source in self.sources)

    @property
    def increments(self) -> int:
        return 1 + max(increment for files in self.files for _, increment, _ in files)

    def write(self, folder: Path, increment: int) -> list[Record]:
        """Write the files of an increment, whose names are in their order, and return their records."""
        records = list[Record]()
        for source, files in enumerate(self.files):
            (folder / f"in{source}").mkdir(parents=True, exist_ok=True)
            for number, (suffix, of_increment, contents) in enumerate(files):
                if of_increment == increment:
                    path = folder / f"in{source}" / f"{increment}-{number}.{suffix}"
                    records += _write(path, source, increment, contents)
        return records

    def tasks(self, folder: Path, source: int) -> int:
        """How many tasks the files of a source have at most: small ones share one, unless tasks are smaller."""
        sizes = [len(_content(path)) for path in (folder / f"in{source}").iterdir()]
        return sum(-(-size // self.value("split_bytes", 1 << 20)) for size in sizes)

    def command(self, folder: Path, output: str, *more: str) -> list[str]:
        """Write the recipe, and return the arguments of a build."""
        sources = [{"name": f"s{n}", "input": [f"{folder}/in{n}/*"], **own} for n, own in enumerate(self.sources)]
        (folder / "recipe.yaml").write_text(json.dumps({"sources": sources}))
        given = {"tokenizer": TOKENIZER, "output": folder / output, "max_reject_fraction": 1, "report": "none"}
        given |= {"append": True} if self.increments > 1 else {}
        given |= self.options
        options = [f"--{name}={'true' if value is True else value}" for name, value in given.items()]
        return [str(folder / "recipe.yaml"), *options, *more]


def _content(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def _write(path: Path, source: int, increment: int, contents: list[tuple[Content, str, Any]]) -> Iterator[Record]:
    """Write a file, and yield its records."""
    lines, at = list[str](), 0
    columns = dict[str, list[Any]](id=[], messages=[])
    for number, (content, form, id) in enumerate(contents):
        is_line = ".jsonl" in path.name
        rejected = {"broken": "invalid_json" if is_line else "unknown_role", "narrator": "unknown_role"}.get(form)
        record = _written(content, form, id)
        columns["id"].append(id)
        columns["messages"].append(record.get("messages", content.messages))
        lines.append('{"id": 1, broken' if rejected == "invalid_json" else json.dumps(record))
        ids, labels = tokens_of(content) if rejected is None else ((), ())
        yield Record(source, str(path), at if is_line else number, increment, id, ids, labels, rejected)
        at += len(lines[-1]) + 1
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path, row_group_size=3)
    elif path.suffix == ".json":
        path.write_text(f"[{','.join(lines)}]")
    else:
        text = "".join(line + "\n" for line in lines).encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def _written(content: Content, form: str, id: Any) -> dict[str, Any]:
    """A record of a content in one of the forms in which it says the same."""
    own = {} if id is None else {"id": id}
    messages = content.messages
    if content.is_text:
        return {**own, "text": content.words(content.turns[0][0])}
    if form in ("narrator", "broken"):
        return {**own, "messages": [{"role": "narrator", "content": "?"}, *messages]}
    if form == "sharegpt":
        names = {"user": "human", "assistant": "gpt"}
        turns = [{"value": message["content"], "from": names[message["role"]]} for message in messages]
        return {"topic": "x", "conversations": turns, **own}
    if form == "prompt" and len(messages) == 2:
        return {**own, "prompt": messages[:1], "completion": messages[1:]}
    return {"messages": [dict(reversed(message.items())) for message in messages], "other": 1, **own}


def draw_case(draw: st.DrawFn) -> Case:
    """Draw a corpus and options."""
    numbers, contents, ids = count(1), list[Content](), count(1)

    def is_so(percent: int) -> bool:
        return draw(st.integers(0, 99)) >= 100 - percent  # shrinks to no

    def one_name(*values: Any) -> Any:
        return draw(st.sampled_from(values))

    def written(suffix: str) -> tuple[Content, str, Any]:
        kind = one_name("new", "new", "new", "again", "near", "new", "again", "silent", "text", "broken", "narrator")
        form = one_name("messages", "sharegpt", "prompt") if "parquet" not in suffix else "messages"
        number = next(ids)
        id = one_name(f"r{number}", number, None, {"of": [number, "é"]})
        if suffix == "parquet":
            id = None if id is None else f"r{number}"
        if kind in ("again", "near") and contents:
            content = one_name(*contents)
            if kind == "near":
                asked, answered = content.turns[0]
                turns = ((asked + 1, answered),) if content.is_text else (*content.turns, (0, 0))
                content = Content(content.number, turns, content.is_text)
        else:
            turns = tuple((one_name(0, 1, 5), one_name(1, 0, 3, 9)) for _ in range(one_name(1, 1, 2)))
            is_text = kind == "text" and suffix != "parquet"
            content = Content(next(numbers), ((turns[0][0], -1),) if kind == "silent" else turns, is_text)
        if suffix == "parquet":  # of conversations
            content = Content(content.number, content.turns)
        if kind in ("broken", "narrator"):
            return content, kind, id
        contents.append(content)
        return content, form, id

    has_more = is_so(25)
    files = []
    for _ in range(one_name(2, 1, 3)):
        increments = [0, *([one_name(0, 1)] if is_so(50) else []), *([1] if has_more else [])]
        of_source = []
        for increment in sorted(increments):
            suffix = one_name("jsonl", "jsonl", "jsonl.gz", "json", "parquet")
            of_source.append((suffix, increment, [written(suffix) for _ in range(draw(st.integers(1, 9)))]))
        files.append([(suffix, increment if has_more else 0, of_file) for suffix, increment, of_file in of_source])
    options: dict[str, Any] = {
        "max_length": one_name(None, 40, 24, 64, 12, 7),
        "packing": one_name(None, "bfd", "bfd_split", None, "wrapped", "ffd"),
        "truncation": one_name(None, "windows", "turns", "keep_end", "drop", "keep_start"),
        "window_overlap": one_name(None, None, None, 3, 6, 1),
        "shift_labels": is_so(45) or None,
        "shuffle": one_name("global", "global", None),
        "dedup": one_name("exact", None),
        "validation_fraction": one_name(0.4, None, 0.1),
        "provenance": is_so(70) or None,
        "keep_columns": one_name("id", None, "id", "source"),
        "output_format": one_name("parquet,tfrecord", None, "parquet,tfrecord.gz"),
        "write_columns": one_name(None, ALL_COLUMNS),
        "seed": one_name(None, 7),
        "split_bytes": one_name(None, 400, 2000),
        "shards": one_name(None, None, 3, 1, 20),
        "mix_by": one_name(None, None, "examples"),
        "mix_tokens": one_name(None, None, None, 100, 400),
    }
    kind = one_name("epochs", "weight", "limits", "none")
    sources = []
    for _ in files:
        own: dict[str, Any] = {}
        if kind in ("epochs", "weight"):
            own["epochs"] = one_name(1, 2, 0.5, 2.5, 3)
        if kind == "weight":
            own["weight"] = one_name(1, 3, 0.5)
        if kind == "limits":
            own["epochs"] = one_name(1, 1.5)
            own |= {one_name("max_examples", "max_tokens"): one_name(4, 2, 60)}
        sources.append({name: value for name, value in own.items() if (name, value) != ("epochs", 1)})
    _mend(options, sources, has_more)
    options = {name: value for name, value in options.items() if value is not None}
    again = one_name((), ("--direct_num_workers=2",))
    return Case(files, sources, options, again)


cases = st.composite(draw_case)


def _mend(options: dict[str, Any], sources: list[dict[str, Any]], has_more: bool) -> None:
    """Leave out what the command line would refuse (tests/data/user_errors.jsonl)."""
    if options["max_length"] is None:
        options["packing"] = None
    if options["packing"] in ("bfd_split", "wrapped") and options["truncation"] in ("turns", "windows"):
        options["truncation"] = None
    if options["truncation"] != "windows" or (options["window_overlap"] and options["max_length"] is None):
        options["window_overlap"] = None
    if has_more or options["shuffle"] is None or options["mix_by"]:
        options["mix_tokens"] = None
        for source in sources:
            source.pop("max_tokens", None)
    for name in MIXES:
        for source in sources:
            if options["shuffle"] is None or (has_more and name in OF_ONE_BUILD):
                source.pop(name, None)
    if options["shuffle"] is None or (options["shards"] and options["shards"] < 3):
        options["shards"] = None
