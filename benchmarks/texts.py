"""Compare the text of every kept record with what untouched `apply_chat_template` of transformers prints.

    PYTHONPATH=.:tests .venv/bin/python benchmarks/texts.py --corpora FOLDER --templates FOLDER --tokenizer FOLDER
        [--only-corpora sgd,kdconv] [--only-templates qwen3,phi3] [--records N] [--processes N]

The corpora are the NAME.jsonl of a folder, the templates its NAME.jinja. For each pair a line is printed: how many
records were kept, how many texts are equal and how many are not, why the others were rejected. The exit code is 1 if a
text or a compiled template differs, or if a record is missing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import datetime
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from support.cases import without_json
from support.transformers_text import TransformersText
from transforms.chat.config import RenderConfig
from transforms.model.batches import Slice, Task
from transforms.model.chunks import CHUNK_BYTES
from transforms.records.input_options import ParseOptions
from transforms.steps.parse import Parser
from transforms.steps.read import read_task
from transforms.steps.render import Renderer

NOW = datetime(2026, 11, 20, 12)
_ROLES = {"human": "user", "gpt": "assistant"}


class Compared(NamedTuple):
    """What became of the records of a corpus under a template.

    Attributes:
        counts: read, kept, equal and different.
        rejects: rejected records by reason.
        first: the first thing that is wrong; None if nothing is.
    """

    counts: Counter[str]
    rejects: Counter[str]
    first: str | None


def compare(corpus: Path, template: Path, tokenizer: Path, records: int | None) -> Compared:
    """Render a corpus with the steps of the project, and compare each text with that of transformers."""
    chat_template = template.read_text(encoding="utf-8")
    config = RenderConfig(
        tokenizer=str(tokenizer), chat_template=chat_template, now=NOW.isoformat(), unprinted="report",
        special_tokens_in_content="allow",
    )  # fmt: skip
    parse, render = Parser(ParseOptions(as_chat=True)), Renderer(config)
    expected = TransformersText(chat_template, tokenizer, NOW)
    counts, rejects, first = Counter[str](), Counter[str](), None
    task = Task(0, (Slice(str(corpus), "jsonl", None, 0, _bytes_of(corpus, records)),))
    with corpus.open("rb") as lines:
        for batch in read_task(task, CHUNK_BYTES):
            texts = render(parse(batch))
            outcomes = texts.outcomes
            counts.update(read=outcomes.read, kept=len(texts.texts))
            rejects.update(reject.reason for reject in outcomes.rejects)
            for text in texts.texts:
                lines.seek(text.example.position)
                wanted = expected.apply(*arguments_of(json.loads(lines.readline()), expected))
                counts["equal" if text.text == wanted else "different"] += 1
                if text.text != wanted:
                    where = f"byte {text.example.position:,}"
                    first = first or f"{where}: {text.text!r}\n  transformers: {wanted!r}"
            if found := outcomes.first_examples.get("compiled_template_differs"):
                first = first or f"a compiled template differs: {found}"
    if counts["read"] != counts["kept"] + rejects.total():
        first = first or "the counts do not add up"
    return Compared(counts, rejects, first)


def arguments_of(record: dict[str, Any], expected: TransformersText) -> tuple[list[dict[str, Any]], Any]:
    """Return the messages and tools of a record of the corpora, as docs/records.md says that a template gets them."""
    if "conversations" in record:
        messages = [
            {"role": _ROLES.get(turn["from"], turn["from"]), "content": turn["value"]}
            for turn in record["conversations"]
        ]
    elif "prompt" in record:
        messages = [
            {"role": "user", "content": record["prompt"]},
            {"role": "assistant", "content": record["completion"]},
        ]
    else:
        messages = [without_json(message) for message in record["messages"]]
    return expected.prepared(messages), record.get("tools")


def _bytes_of(corpus: Path, records: int | None) -> int:
    """The bytes of the first records of a corpus, or of all."""
    if records is None:
        return corpus.stat().st_size
    with corpus.open("rb") as file:
        return sum(map(len, islice(file, records)))


def _chosen(folder: Path, suffix: str, only: str | None) -> Iterator[Path]:
    names = only.split(",") if only else sorted(path.stem for path in folder.glob(f"*{suffix}"))
    return (folder / f"{name}{suffix}" for name in names)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpora", type=Path, required=True, help="folder of NAME.jsonl")
    parser.add_argument("--templates", type=Path, required=True, help="folder of NAME.jinja")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of the tokenizer")
    parser.add_argument("--only-corpora", help="names, with commas (default: all of the folder)")
    parser.add_argument("--only-templates", help="names, with commas (default: all of the folder)")
    parser.add_argument("--records", type=int, help="the first ones of each corpus (default: all)")
    parser.add_argument("--processes", type=int, default=1, help="(default: %(default)s)")
    arguments = parser.parse_args()
    corpora = list(_chosen(arguments.corpora, ".jsonl", arguments.only_corpora))
    templates = list(_chosen(arguments.templates, ".jinja", arguments.only_templates))
    for folder, found in ((arguments.corpora, corpora), (arguments.templates, templates)):
        if not found:
            parser.error(f"{folder} has none of the files that are asked for")
    start, total, wrong = time.monotonic(), Counter[str](), 0
    with ProcessPoolExecutor(arguments.processes, get_context("spawn")) as pool:
        jobs = {
            pool.submit(compare, corpus, template, arguments.tokenizer, arguments.records): (template, corpus)
            for template in templates
            for corpus in corpora
        }
        for job in as_completed(jobs):
            template, corpus = jobs[job]
            counts, rejects, first = job.result()
            names = ("read", "kept", "equal", "different")
            shown = [f"{counts[name]:,} {name}" for name in names] + [f"{n:,} {why}" for why, n in rejects.items()]
            print(f"{template.stem}  {corpus.stem}:  {', '.join(shown)}", flush=True)
            if first:
                print(f"  {first}", flush=True)
            total += counts
            wrong += first is not None
    seconds = time.monotonic() - start
    shown = [f"{total[name]:,} {name}" for name in names]
    print(f"all:  {', '.join(shown)}, {wrong} of {len(jobs)} wrong, {seconds:,.0f} seconds")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
