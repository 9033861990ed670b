"""Which files of a folder are read: the splits that `datasets` sees, and none of several without a choice."""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import datasets
import fsspec
import pytest

from support.layouts import LAYOUTS, NAMED, OF_CARD, taken_by_datasets, write_layout
from transforms import ParameterError, ReadConversations


def urls_of(pattern: object, *splits: str, format: str = "jsonl") -> list[str]:
    """Return the urls of the input files that a pattern names."""
    read = ReadConversations(str(pattern), input_format=format, split=splits)
    beam.Pipeline() | read
    return [file.url for file in read.files]


def listed(folder: Path, *splits: str, format: str = "jsonl") -> list[str]:
    """Return the paths of the input files of a folder, in order."""
    return [str(Path(url).relative_to(folder)) for url in urls_of(folder, *splits, format=format)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_splits_of_a_folder_are_those_that_datasets_sees(layout, tmp_path):
    folder = write_layout(tmp_path / "my-test" / "train-set", LAYOUTS[layout])  # what is above does not count
    expected = taken_by_datasets(folder)
    if len(expected) > 1:
        with pytest.raises(ParameterError, match="it has several configurations: " + r" \(.*, ".join(expected)):
            listed(folder, "train")
        return
    [splits] = expected.values()
    for split, paths in splits.items():
        assert listed(folder, split) == paths, split
    with pytest.raises(ParameterError, match="has no split nonesuch; it has " + "(.*), ".join(splits)):
        listed(folder, "nonesuch")
    if len(splits) > 1:
        with pytest.raises(ParameterError, match="it has several splits: " + r" \(.*\), ".join(splits)):
            listed(folder)


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ("a.jsonl b/c.parquet b/d.csv", "a.jsonl b/c.parquet b/d.csv"),
        ("train.jsonl others.jsonl x/latest.json", "others.jsonl train.jsonl x/latest.json"),
        ("data/train-00000-of-00001.jsonl more.jsonl", "data/train-00000-of-00001.jsonl more.jsonl"),
        ("a.jsonl test.py tests/run.sh eval.md", "a.jsonl"),
        ("a.jsonl .test.jsonl .cache/test/a.jsonl _old/test.jsonl", "a.jsonl"),
        ("test/a.jsonl test/b.jsonl", "test/a.jsonl test/b.jsonl"),
        ("---\nlicense: mit\n---\na.jsonl b.csv", "a.jsonl b.csv"),
    ],
)
def test_folder_of_plain_files_with_one_split_is_read_as_a_whole(paths, expected, tmp_path):
    assert listed(write_layout(tmp_path, paths)) == expected.split()


@pytest.mark.parametrize("test", ["test.jsonl", "dev/x.jsonl", "data/test-00000-of-00001.jsonl"])
def test_evaluation_files_next_to_others_are_not_read_without_a_choice(test, tmp_path, caplog):
    folder = write_layout(tmp_path, f"a.jsonl b.jsonl {test}")
    split = "validation" if "dev" in test else "test"
    with pytest.raises(ParameterError) as error:
        listed(folder)
    assert error.value.problem == (
        f"it has a split {split} ({len(test) + 1} bytes), and 2 files in none: a.jsonl, b.jsonl. Choose with split, "
        f"such as {split}, or name the files."
    )
    assert listed(folder, split) == [test]
    assert f"{folder}: files in no split are not read (2): a.jsonl, b.jsonl. To read such a file, name it." in (
        caplog.messages
    )
    assert len(urls_of(folder / "**/*.jsonl")) == 3  # the user named them


def test_choice_among_several_splits(tmp_path, caplog):
    folder = write_layout(tmp_path, "train.jsonl test.jsonl x.jsonl")
    with pytest.raises(ParameterError) as error:
        listed(folder)
    assert (error.value.parameter, error.value.value, error.value.problem) == (
        "patterns",
        str(folder),
        "it has several splits: train (12 bytes), test (11 bytes). Choose with split, such as train.",
    )
    assert listed(folder, "test", "train") == ["test.jsonl", "train.jsonl"]
    with pytest.raises(ParameterError, match=rf"{folder} has no split tests; it has .* Did you mean test\?"):
        listed(folder, "train", "tests")
    for named in (folder / "*.jsonl", folder / "train.jsonl"):
        with pytest.raises(ParameterError, match="is not a dataset, and has no splits"):
            urls_of(named, "train")


def test_several_configurations_of_a_folder_are_listed_and_files_named(tmp_path):
    folder = write_layout(tmp_path, NAMED + OF_CARD)
    with pytest.raises(ParameterError) as error:
        listed(folder)
    assert error.value.problem == (
        "it has several configurations: first (train_sft, test_sft, 1,239 rows, 123 bytes), second (train, 15 bytes), "
        f"third (train, test, 39 bytes). Name files, such as those of train_sft of first: "
        f"{folder}/data/train_sft-00000-of-00002.jsonl, {folder}/data/train_sft-00001-of-00002.jsonl."
    )
    assert listed(folder / "third", "test") == ["test/b.jsonl"]


def test_files_that_a_card_does_not_name_are_not_read_and_logged(tmp_path, caplog):
    card = "---\nconfigs: [{config_name: default, data_files: [{split: all, path: '_x/[ab].jsonl'}]}]\n---\n"
    folder = write_layout(tmp_path, card + "_x/a.jsonl _x/c.jsonl d.jsonl train.jsonl")
    assert listed(folder) == listed(folder, "all") == ["_x/a.jsonl"]
    assert "files in no split are not read (2): d.jsonl, train.jsonl." in caplog.text
    (folder / "README.md").write_text("---\nconfigs: [\n---\n")
    with pytest.raises(ParameterError, match=r"its splits cannot be found: its metadata are not valid YAML.* Name its"):
        listed(folder)


def test_snapshot_of_links_into_a_cache_has_splits(tmp_path):
    """`hf download` without --local-dir leaves links to blobs."""
    write_layout(tmp_path / "blobs", "1.jsonl 2.jsonl")
    snapshot = tmp_path / "snapshots" / "0123"
    (snapshot / "data").mkdir(parents=True)
    (snapshot / "data" / "train-00000-of-00001.jsonl").symlink_to("../../../blobs/1.jsonl")
    (snapshot / "data" / "test-00000-of-00001.jsonl").symlink_to("../../../blobs/2.jsonl")
    with pytest.raises(ParameterError, match=r"it has several splits: train \(8 bytes\), test \(8 bytes\)"):
        listed(snapshot)
    assert listed(snapshot, "train") == ["data/train-00000-of-00001.jsonl"]


def test_folder_in_a_bucket_has_splits():
    for name in ("train/a.jsonl", "test/b.jsonl"):
        fsspec.filesystem("memory").pipe_file(f"/splits/{name}", name[:-2].encode())
    with pytest.raises(ParameterError, match=r"it has several splits: train \(11 bytes\), test \(10 bytes\)"):
        urls_of("memory://splits")
    assert urls_of("memory://splits", "train") == ["memory:///splits/train/a.jsonl"]


@pytest.fixture
def saved(tmp_path) -> Path:
    """A DatasetDict as `save_to_disk` writes it, loaded and mapped since, which leaves another file next to its own."""
    rows = [{"text": f"number {number}"} for number in range(6)]
    splits = {"train": rows, "test": rows[:2], "sft": rows[:3]}
    datasets.DatasetDict({split: datasets.Dataset.from_list(rows) for split, rows in splits.items()}).save_to_disk(
        tmp_path / "saved", num_shards={"train": 2, "test": 1, "sft": 1}
    )
    datasets.load_from_disk(str(tmp_path / "saved")).map(lambda row: {"text": row["text"] + "!"})
    assert [*(tmp_path / "saved" / "train").glob("cache-*.arrow")]
    return tmp_path / "saved"


def test_splits_of_a_saved_dataset_dict_are_those_that_datasets_loads(saved):
    expected = {
        split: sorted(str(Path(file["filename"]).relative_to(saved)) for file in dataset.cache_files)
        for split, dataset in datasets.load_from_disk(str(saved)).items()
    }
    assert expected["train"] == ["train/data-00000-of-00002.arrow", "train/data-00001-of-00002.arrow"]
    for split, paths in expected.items():
        assert listed(saved, split, format="auto") == paths
        assert listed(saved / split, format="auto") == [path.removeprefix(f"{split}/") for path in paths]
    with pytest.raises(
        ParameterError, match=r"it has several splits: train \(936 bytes\), test \(.*\), sft \(.*\)\. Choose"
    ):
        listed(saved)
    (saved / "train" / "data-00001-of-00002.arrow").unlink()
    with pytest.raises(ParameterError, match=r"data-00001-of-00002.arrow is missing, which train/state.json names"):
        listed(saved, "train", format="auto")
    (saved / "test" / "state.json").unlink()
    with pytest.raises(
        ParameterError, match=r"its splits cannot be found: test/state.json is missing\. Name its files"
    ):
        listed(saved, "train", format="auto")
    (saved / "dataset_dict.json").write_text("[]")
    with pytest.raises(ParameterError, match=r"dataset_dict.json is not as datasets writes it \(.*\)\. Name its files"):
        listed(saved, "train", format="auto")


def test_names_of_folders_of_sessions_are_no_splits(tmp_path):
    """Claude Code names a folder by the path of its project."""
    folder = write_layout(tmp_path, "-home-me-my-test/a.jsonl -home-me-train-llm/b.jsonl -home-me/c.jsonl")
    assert len(listed(folder, format="claude_code")) == 3
    assert listed(folder, "test", format="claude_code") == ["-home-me-my-test/a.jsonl"]
    with pytest.raises(ParameterError, match="it has several splits: train"):
        listed(folder)
