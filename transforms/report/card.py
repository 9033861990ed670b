"""The dataset card: the README.md of a dataset, whose header lists the files of each split for `datasets`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from transforms.base.hidden import visible
from transforms.outputs import ShardEntry, datasets_files, loading_code
from transforms.report.rebuilding import recipe_text
from transforms.report.texts import contamination_text, described_source, unread_events_text, unread_text
from transforms.report.trainers import TRAINERS, layout_warnings
from transforms.rows.layout import RowLayout

# `datasets` takes a third of a second to read so many globs in the header of a card.
_MOST_GLOBS = 5_000
_MOST_UNREAD = 40
_PATH, _MODEL = "PATH OF THIS FOLDER", "YOUR MODEL"
_HUB_NAME = re.compile(r"\w[\w.-]*(/[\w.-]+)?")
# Signs that begin something within a line. An underscore between letters or digits begins nothing.
_SIGNS = re.compile(r"[\\`*<>\[\]|&~$]|(?<![^\W_])_|_(?![^\W_])")


def dataset_card(
    manifest: dict[str, Any], versions: Iterable[tuple[int, Sequence[ShardEntry]]] = (), folder: str = _PATH
) -> str:
    """Return the text of the card of a dataset.

    Args:
        manifest: its manifest, as JSON.
        versions: if there are several, those that can be loaded by name, with their shards, the newest first. As many
            are taken as `datasets` reads quickly.
        folder: that the code in it names: where the dataset is loaded from.
    """
    records, job, shards = manifest["records"], manifest["job"], manifest["shards"]
    configs = _configs(shards, versions)
    dropped, rejected = (
        ", ".join(f"{count:,} {_as_text(reason)}" for reason, count in records[outcome].items()) or "none"
        for outcome in ("dropped", "rejected")
    )
    options = _without_paths({name: of for name, of in job["options"].items() if of not in (None, [], {}, False)})
    tokenizer = _without_paths(job["tokenizer_name"])
    if "chat_template" in options:
        options["chat_template"] = "another than the tokenizer's own"
    is_model = "custom" not in job and _HUB_NAME.fullmatch(job["tokenizer_name"])  # custom pipelines name a folder
    layout = RowLayout.of(options)
    consumer = options.pop("consumer", None)
    if consumer:
        options["for"] = consumer
    lines = [
        "---",
        *_header(configs),
        "---",
        "",
        "# Token shards",
        "",
        f"{manifest['rows']:,} rows of {manifest['tokens']:,} tokens, {manifest['trained_tokens']:,} trained on,",
        f"made by Chatmill {job['versions']['chatmill']} with the tokenizer {_as_code(tokenizer)}.",
        "",
        *(["```python", loading_code(folder, shards), "```", ""] if shards else []),
        *_version(manifest, configs, folder),
        *_rows(layout),
        "",
        *_training(layout, consumer, tokenizer if is_model else _MODEL, folder),
        "## Records",
        "",
        "| records | |",
        "| --- | ---: |",
        f"| read | {records['read']:,} |",
        f"| kept | {records['kept']:,} |",
        f"| truncated | {records['truncated']:,} |",
        f"| dropped | {dropped} |",
        f"| rejected | {rejected} |",
        "",
        *([f"Contamination: {_as_text(text)}.", ""] if (text := contamination_text(manifest)) else []),
        *_unread(manifest),
        *_format_sources_table(manifest),
        *(_recipe(manifest) or _format_options_table(_without_paths(job.get("custom", {})) | options)),
        "`manifest.json` has all details, with a sha256 for each shard.",
        "",
    ]
    return "\n".join(lines)


def _recipe(manifest: Mapping[str, Any]) -> list[str]:
    """The lines of the recipe; none if a custom pipeline built the dataset."""
    job = manifest["job"]
    text = recipe_text({**manifest, "job": job | {"recipe": _without_paths(job.get("recipe"))}})
    if text is None:
        return []
    text = visible(text)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return [
        "## Recipe",
        "",
        f"{fence}yaml",
        text.rstrip(),
        fence,
        "",
        "`recipe.yaml` next to the dataset has it with all paths.",
        "",
    ]


def _format_options_table(options: Mapping[str, Any]) -> list[str]:
    """The lines of a table of options."""
    return [
        "| option | |",
        "| --- | --- |",
        *(
            f"| {_as_text(name)} | {_as_text(', '.join(map(str, value)) if isinstance(value, list) else value)} |"
            for name, value in options.items()
        ),
        "",
    ]


def _unread(manifest: Mapping[str, Any]) -> list[str]:
    """What the records have and was not read."""
    text = _as_text(unread_text(manifest, _MOST_UNREAD))
    events = _as_text(unread_events_text(manifest, _MOST_UNREAD))
    return [
        *([f"Not read: {text}.", ""] if text else []),
        *([f"Events of traces that were not read: {events}.", ""] if events else []),
    ]


def _configs(
    shards: Sequence[ShardEntry], versions: Iterable[tuple[int, Sequence[ShardEntry]]]
) -> dict[str, dict[str, list[str]]]:
    """The files of each split by the name of the version: of the newest, and of as many others as are read quickly."""
    configs, globs = dict[str, dict[str, list[str]]](), 0
    for name, version_shards in chain([("default", shards)], ((f"v{number}", of) for number, of in versions)):
        files = datasets_files(version_shards) if version_shards else {}
        globs += sum(map(len, files.values()))
        if files and (not configs or globs <= _MOST_GLOBS):
            configs[name] = files
        if globs > _MOST_GLOBS:
            break  # before others are looked up, which takes long then
    return configs


def _header(configs: Mapping[str, Mapping[str, Sequence[str]]]) -> list[str]:
    """The lines that list the files of each split."""
    lines = ["configs:"] if configs else ["pretty_name: token shards"]
    for name, files in configs.items():
        lines += [f"- config_name: {name}", "  data_files:"]
        for split, globs in files.items():
            one_or_all = [f"    path: {globs[0]}"] if len(globs) == 1 else ["    path:", *(f"    - {g}" for g in globs)]
            lines += [f"  - split: {split}", *one_or_all]
    return lines


def _version(manifest: Mapping[str, Any], configs: Iterable[str], folder: str) -> list[str]:
    """Which version it is, if it is not the first one, and how an older one is loaded. configs: their names."""
    if manifest["version"] == 1:
        return []
    newest = f"It is version {manifest['version']} of the dataset."
    if names := [name for name in configs if name != "default"]:
        newest += f' `datasets.load_dataset("{folder}", "{names[-1]}")` loads version {names[-1][1:]}.'
    return [newest, ""]


def _format_sources_table(manifest: dict[str, Any]) -> list[str]:
    """The lines of a table of the sources, if there are several."""
    sources = manifest["sources"]
    if len(sources) == 1:
        return []
    rows = [described_source(manifest, number) for number in range(len(sources))]
    titles = [*rows[0]]
    return [
        f"| source | {' | '.join(titles)} |",
        f"| --- |{' ---: |' * len(titles)}",
        *(
            f"| {_as_text(source['name'])} | {' | '.join(row.values())} |"
            for source, row in zip(sources, rows, strict=True)
        ),
        "",
    ]


def _rows(layout: RowLayout) -> list[str]:
    """What a row is."""
    length = "of any length" if layout.max_length is None else f"of at most {layout.max_length:,} tokens"
    lines = [f"A row holds {'several examples' if layout.packed else 'one example'}, {length}."]
    if layout.packed:
        lines[0] = f"A row holds several examples, packed with `{layout.packing}`, {length}."
    if "labels" in layout.columns and not layout.shift_labels:
        lines.append("`labels` are the token ids where a token is trained on, and -100 for all others.")
    if "labels" in layout.columns and layout.shift_labels:
        lines.append("`labels` are shifted: the id of the next token if that is trained on, and -100 for all others.")
    if "seq_lengths" in layout.columns and layout.packed:
        lines.append("`seq_lengths` are the lengths of the examples in a row.")
    return lines


def _training(layout: RowLayout, consumer: str | None, model: str, folder: str) -> list[str]:
    """How each trainer reads the rows, or why it must not; for the one that was chosen, if one was."""
    lines = ["## Training", ""]
    if consumer is None:
        lines += [line for _, text in layout_warnings(layout) for line in (f"**Careful**: {_as_text(text)}", "")]
    for trainer in [TRAINERS[consumer]] if consumer else TRAINERS.values():
        if problems := trainer.problems(layout):
            lines += [f"Not for {trainer.title}: {_as_text(problems[0].text)}", ""]
        else:
            lines += [f"{trainer.title}:", "", trainer.recipe(folder, model, layout), ""]
    return lines


def _without_paths(value: Any) -> Any:
    """A value with the name alone in place of each path on the machine that wrote the dataset."""
    if isinstance(value, dict):
        return {
            _without_paths(name): named if name == "chat_template_kwargs" else _without_paths(named)
            for name, named in value.items()
        }
    if isinstance(value, list):
        return [_without_paths(part) for part in value]
    if isinstance(value, str) and value.startswith(("/", "~", ".", "file:")):
        return value.rstrip("/").rpartition("/")[2]
    return value


def _as_text(value: Any) -> str:
    """Return a value as a part of a paragraph, or as a cell of a table: without markup, links and HTML."""
    return _SIGNS.sub(r"\\\g<0>", _in_one_line(str(value)))


def _as_code(value: Any) -> str:
    """Return a value as a span of code, for a paragraph: the cells of tables end at a `|` in code, too."""
    text = _in_one_line(str(value))
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _in_one_line(text: str) -> str:
    return visible(" ".join(re.split("[\t\n\r ]+", text.strip("\t\n\r "))))
