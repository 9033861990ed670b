"""Which files of a dataset on the Hub are read: those that `datasets` takes, and none without a choice."""

from __future__ import annotations

import functools
import zlib
from pathlib import Path

import pytest

from support.hub import Hub
from transforms import ParameterError
from transforms.inputs.hub.card import read_card
from transforms.inputs.hub.names import HubName, hub_name, in_full
from transforms.inputs.hub.patterns import MalformedError
from transforms.inputs.listing import find_files, list_inputs

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
    "other patterns": "---\nconfigs:\n- config_name: a\n  data_files: ['./x.jsonl', '**/y*.jsonl', 'z/[ab].jsonl']\n"
    "---\nx.jsonl y1.jsonl d/y2.jsonl z/a.jsonl z/c.jsonl x/x.jsonl",
    "a pattern in a folder": "---\nconfigs:\n- config_name: a\n  data_dir: d\n  data_files:\n  - split: train\n"
    "    path: '*.jsonl'\n---\n" + "a.jsonl d/b.jsonl d/e/c.jsonl",
}


def files_of(layout: str) -> dict[str, bytes]:
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


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with Hub() as hub, hub.in_process(tmp_path_factory.mktemp("home")):
        yield hub


def listed(name: str, *splits: str) -> list[str]:
    """Return the paths of the input files of a dataset, in order."""
    return [file.url.partition("@")[2].partition("/")[2] for file in list_inputs(name, "jsonl", splits=splits)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_of_each_split_are_those_that_datasets_takes(hub, layout, tmp_path):
    files = files_of(LAYOUTS[layout])
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    name = f"of/{layout.replace(' ', '-')}"
    hub.add(name, files)
    expected = taken_by_datasets(tmp_path)
    assert expected
    for config, splits in expected.items():
        for split, paths in splits.items():
            assert sorted(listed(f"{name}:{config}", split)) == paths, (config, split)
        with pytest.raises(ParameterError, match="has no split nonesuch; it has " + "(.*), ".join([*splits])):
            listed(f"{name}:{config}", "nonesuch")


def test_only_split_needs_no_choice_and_several_do(hub):
    hub.add("org/one", files_of("a.jsonl b.jsonl"))
    assert listed("org/one") == listed("org/one:default") == listed("org/one", "train") == ["a.jsonl", "b.jsonl"]
    hub.add("org/two", files_of("train.jsonl test.jsonl"))
    with pytest.raises(ParameterError) as error:
        listed("org/two")
    assert error.value.problem == (
        "it has several splits: train (12 bytes), test (11 bytes). Choose with split, such as train."
    )
    assert listed("org/two", "test", "train") == ["test.jsonl", "train.jsonl"]
    with pytest.raises(ParameterError) as error:
        find_files(["org/two@main"], splits=None)
    named = "hf://datasets/org/two@main/test.jsonl"
    assert error.value.problem == (
        f"it has several splits: train (12 bytes), test (11 bytes). Name files, such as those of test: {named}."
    )
    assert len(find_files([named], splits=None)) == 1
    with pytest.raises(ParameterError, match=r"org/two has no split tests; .* Did you mean test\?"):
        listed("org/two", "train", "tests")


def test_several_configurations_are_listed_with_rows_and_bytes(hub):
    hub.add("org/many", files_of(NAMED + OF_CARD))
    with pytest.raises(ParameterError) as error:
        listed("org/many", "train_sft")
    assert error.value.problem == (
        "it has several configurations: first (train_sft, test_sft, 1,239 rows, 123 bytes), "
        "second (train, 15 bytes), third (train, test, 39 bytes). Name one, such as org/many:first."
    )
    with pytest.raises(
        ParameterError, match=r"no configuration secnd; it has first, second, third. Did you mean second\?"
    ):
        listed("org/many:secnd")
    with pytest.raises(
        ParameterError, match=r"several splits: train_sft \(1,234 rows, 72 bytes\), test_sft \(5 rows, "
    ):
        listed("org/many:first")
    assert listed("org/many:second") == ["second/a.jsonl"]


def test_folder_of_a_repository_has_splits_too(hub):
    hub.add("org/folder", files_of("en/train.jsonl en/test.jsonl fr/a.jsonl x.jsonl"))
    assert listed("hf://datasets/org/folder/fr") == ["fr/a.jsonl"]
    assert listed("hf://datasets/org/folder@main/en/", "test") == ["en/test.jsonl"]
    with pytest.raises(ParameterError, match=r"several splits: train \(.*\), test \("):
        listed("hf://datasets/org/folder/en")
    assert listed("hf://datasets/org/folder/*/t*.jsonl") == ["en/test.jsonl", "en/train.jsonl"]
    assert listed("hf://datasets/org/folder/en/test.jsonl") == ["en/test.jsonl"]
    for missing in ("hf://datasets/org/folder/de", "hf://datasets/org/folder/*/z*"):
        with pytest.raises(ParameterError, match="no such file or folder in org/folder, revision main"):
            listed(missing)
    with pytest.raises(ParameterError, match="is not a dataset, and has no splits"):
        listed("hf://datasets/org/folder/*/t*.jsonl", "train")


def test_converted_files_take_the_place_of_a_script(hub, caplog):
    repo = hub.add("org/made", files_of("made.py raw.jsonl"))
    assert listed("org/made") == ["raw.jsonl"]
    repo.commit(
        {"en/train/0000.parquet": b"PAR1PAR1", "en/partial-test/0000.parquet": b"PAR1PAR1"},
        revision="refs/convert/parquet",
    )
    assert [file.url for file in list_inputs("org/made:en", splits=["train"])] == [
        f"hf://datasets/org/made@{repo.refs['refs/convert/parquet']}/en/train/0000.parquet"
    ]
    assert "what the Hub converted to Parquet is read" in caplog.text
    with pytest.raises(ParameterError, match=r"has no split test; it has partial-test \(8 bytes\), train \("):
        listed("org/made", "test")
    # Another revision was not converted.
    assert listed(f"org/made@{repo.refs['refs/heads/main']}") == ["raw.jsonl"]


def test_part_that_the_hub_converted_is_not_taken_for_the_whole(hub):
    repo = hub.add("org/large", {"large.py": b"x"})
    with pytest.raises(ParameterError, match=r"its script large.py makes them, .* has not converted it to Parquet"):
        listed("org/large")
    repo.commit({"default/partial-train/0000.parquet": b"PAR1PAR1"}, revision="refs/convert/parquet")
    with pytest.raises(ParameterError, match="the Hub converted a part of it only: partial-train"):
        listed("org/large")
    assert len(list_inputs("org/large", splits=["partial-train"])) == 1
    named = "hf://datasets/org/large@refs/convert/parquet/default/partial-train/0000.parquet"
    with pytest.raises(ParameterError, match=f"such as those of partial-train: {named}"):
        find_files(["org/large"], splits=None)
    assert len(find_files([named], splits=None)) == 1


@pytest.mark.parametrize(
    ("paths", "problem"),
    [
        ("a.png b.png c.jsonl", r"its files end in .png, which is not a format that is read"),
        ("---\nconfigs: [{config_name: a, data_files: 'a.*'}]\n---\na.jsonl a.txt", r"its files end in .txt"),
        ("train.zip", r"its files end in .zip"),
        ("LICENSE", r"it has no file of records\."),
        ("data/a b-00000-of-00001.jsonl".replace(" ", "+"), r"its files name a split a\+b, which is not a name"),
        ("---\nconfigs: {a: b}\n---\na.jsonl", "its configs are not a list of mappings"),
        (
            "---\nconfigs: [{config_name: a, data_files: 3}]\n---\na.jsonl",
            "of its configuration a, data_files is neither",
        ),
    ],
)
def test_what_cannot_be_read_is_an_error(hub, paths, problem):
    name = f"org/bad-{zlib.crc32(paths.encode())}"
    hub.add(name, files_of(paths))
    with pytest.raises(ParameterError, match=problem):
        listed(name)


def test_files_of_other_formats_are_logged(hub, caplog):
    hub.add("org/mixed", files_of("a.jsonl b.jsonl c.csv"))
    assert listed("org/mixed") == ["a.jsonl", "b.jsonl"]
    assert "files of other formats are not read (1): c.csv" in caplog.text


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("a/b", ("a/b", None, None, "")),
        ("a/b:c", ("a/b", "c", None, "")),
        ("a/b:c d@refs/pr/3", ("a/b", "c d", "refs/pr/3", "")),
        ("a/b@v1.0", ("a/b", None, "v1.0", "")),
        ("hf://datasets/a/b@refs/convert/parquet/c/*.parquet", ("a/b", None, "refs/convert/parquet", "c/*.parquet")),
        ("hf://datasets/a/b@feature%2Fx/c.jsonl", ("a/b", None, "feature/x", "c.jsonl")),
        ("hf://datasets/a/b-1.0_x/", ("a/b-1.0_x", None, None, "")),
    ],
)
def test_names_on_the_hub(url, name):
    found = hub_name(in_full(url, lambda _: False))
    assert found == HubName(*name)
    assert hub_name(found._replace(revision=None).url) == found._replace(revision=None)


@pytest.mark.parametrize(
    "path",
    ["a", "a/b/c", "./a", "../a", "a/b.jsonl", "a/b.json.gz", "/a/b", "~/a", "a/*", "s3://a/b", "hf://a/b", "a/"],
)
def test_paths_are_not_names_on_the_hub(path):
    assert in_full(path, lambda _: False) == path
    assert hub_name(path) is None


def test_existing_path_wins_over_the_hub(tmp_path, monkeypatch):
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert in_full("org/name") == "org/name"
    assert in_full("org/other") == "hf://datasets/org/other"


def test_split_of_files_on_a_disk_is_an_error(tmp_path):
    (tmp_path / "train.jsonl").write_text("{}")
    with pytest.raises(ParameterError, match=f"split='train': {tmp_path} is not a dataset, and has no splits"):
        list_inputs(str(tmp_path), splits=["train"])


def test_revisions_of_one_file_are_not_inputs_together(hub):
    repo = hub.add("org/twice", files_of("a.jsonl"))
    commit = repo.refs["refs/heads/main"]
    repo.commit({"b.jsonl": b"b"})
    with pytest.raises(ParameterError, match=r"hf://datasets/org/twice/a.jsonl.*in two revisions"):
        list_inputs(["org/twice", f"org/twice@{commit}"])


def test_card_with_windows_line_ends_and_a_mark():
    card = read_card("\ufeff---\r\nconfigs:\r\n- config_name: 2020\r\n  data_files: a.csv\r\n---\r\ntext")
    assert card.configurations["2020"].patterns == {"train": ["a.csv"]}
    assert read_card("---\nno end").configurations == {}
    with pytest.raises(MalformedError, match="its metadata are not valid YAML"):
        read_card("---\nconfigs: [\n---")
    with pytest.raises(MalformedError, match="split train twice"):
        read_card(
            "---\nconfigs: [{config_name: a, data_files: [{split: train, path: a}, {split: train, path: b}]}]\n---"
        )
