"""Layouts of datasets, and what `datasets` makes of them: which files each of their splits has."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

CARD = """---
license: mit
configs:
- config_name: {first}
  data_files:
  - split: train_sft
    path: data/train_sft-*
  - split: test_sft
    path: [data/test_sft-*, more/test.jsonl]
- config_name: {second}
  data_files: "second/*.jsonl"
- config_name: {third}
  data_dir: third
dataset_info:
- config_name: {first}
  splits:
  - {{name: train_sft, num_bytes: 9, num_examples: 1234}}
  - {{name: test_sft, num_bytes: 9, num_examples: 5}}
- config_name: {second}
---
# A dataset
"""
NAMED = CARD.format(first="first", second="second", third="third")
OF_CARD = (
    "data/train_sft-00001-of-00002.jsonl data/train_sft-00000-of-00002.jsonl data/test_sft-00000-of-00001.jsonl "
    "data/train_gen-00000-of-00001.jsonl more/test.jsonl more/train.jsonl second/a.jsonl second/sub/b.jsonl "
    "third/train/a.jsonl third/test/b.jsonl third/test/.c.jsonl"
)
LAYOUTS = {
    "shards in data": "data/train-00000-of-00002.parquet data/train-00001-of-00002.parquet "
    "data/test-00000-of-00001.parquet other.parquet",
    "shards of other splits": "data/test-00000-of-00001.jsonl data/b.c-00000-of-00001-0123.jsonl "
    "data/train-00000-of-00001.jsonl data/a-00000-of-00001.jsonl",
    "a file": "conversations.jsonl",
    "files without names of splits": "a.jsonl b/c.jsonl b/trainer.jsonl b/latest.jsonl",
    "names of files": "train.csv test.csv validation.csv README.md",
    "words in names of files": "x/my-train-file.jsonl training_0.jsonl x/dev.jsonl val.1.jsonl eval-a.jsonl x.jsonl",
    "names of folders": "data/train/a.jsonl data/train/b/c.jsonl data/testing/a.jsonl data/x_dev_1/a.jsonl train.jsonl",
    "two words in a name": "train-test.jsonl train.jsonl",
    "several formats": "a.parquet b.parquet c.jsonl d.txt",
    "as many of two formats": "b.csv a.jsonl c.jsonl d.csv",
    "images are fewer": "a.jsonl b.jsonl img/a.png",
    "compressed": "train.jsonl.gz test.json.zst",
    "hidden and special": ".hidden/train.jsonl __made__/train.jsonl train.jsonl .train.jsonl",
    "ignored names": "dataset_info.json config.json train.json",
    "other files": "train.py train.md train.jsonl LICENSE Makefile notes.train.jsonl",
    "a card": NAMED + OF_CARD,
    "a card with one configuration": CARD.format(first="first", second="second", third="third").split(
        "- config_name: second"
    )[0]
    + "---\n"
    + OF_CARD,
    "a card without configurations": "---\nlicense: mit\n---\n" + "train.jsonl test.jsonl",
    "no card but a README": "# Title\n" + "train.jsonl",
    "other patterns": "---\nconfigs:\n- config_name: a\n  data_files: ['x.jsonl', '**/y*.jsonl', 'z/[ab].jsonl']\n"
    "---\nx.jsonl y1.jsonl d/y2.jsonl z/a.jsonl z/c.jsonl x/x.jsonl",
    "a pattern in a folder": "---\nconfigs:\n- config_name: a\n  data_dir: d\n  data_files:\n  - split: train\n"
    "    path: '*.jsonl'\n---\n" + "a.jsonl d/b.jsonl d/e/c.jsonl",
}


def read_files(layout: str) -> dict[str, bytes]:
    """Return the files of a layout: paths after the text of README.md."""
    card, _, paths = layout.rpartition("\n")
    return {"README.md": f"{card}\n".encode()} | {path: f"{path}\n".encode() for path in paths.split()}


@functools.cache
def taken_by_datasets(folder: Path) -> dict[str, dict[str, list[str]]]:
    """Return the files of each configuration and split that `datasets` loads of a folder."""
    import datasets

    found = {}
    for config in datasets.get_dataset_config_names(str(folder)):
        files = datasets.load_dataset_builder(str(folder), config).config.data_files
        found[config] = {
            str(split): sorted({str(Path(file).relative_to(folder.resolve())) for file in files[split]})
            for split in files
            if files[split]
        }
    return found


def write_files(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write files into a folder, which is returned."""
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def write_layout(folder: Path, layout: str) -> Path:
    """Write the files of a layout into a folder, which is returned."""
    return write_files(folder, read_files(layout))
