"""Which files of a dataset are read, on the Hub and in a folder: the splits that `datasets` sees, if one is chosen."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import datasets
import fsspec
import pytest

from support.hub import Hub
from support.layouts import LAYOUTS, NAMED, read_files, taken_by_datasets, write_files, write_layout
from support.paths import ROOT
from support.reading import list_paths, list_urls, listed
from transforms import ParameterError


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with Hub() as hub, hub.in_process(tmp_path_factory.mktemp("home")):
        yield hub


def on_hub(name: str, *splits: str) -> list[str]:
    """Return the paths of the input files of a dataset, in order."""
    return [url.partition("@")[2].partition("/")[2] for url in list_urls(name, *splits, input_format="jsonl")]


def in_folder(folder: Path, *splits: str) -> list[str]:
    return list_paths(folder, *splits, input_format="jsonl")


def find_problem(pattern: object, *splits: str) -> str:
    with pytest.raises(ParameterError) as error:
        list_urls(pattern, *splits, input_format="jsonl")
    return error.value.problem


@pytest.mark.parametrize("layout", LAYOUTS)
def test_splits_are_those_that_datasets_sees(hub, layout, tmp_path):
    folder = write_layout(tmp_path / "my-test" / "train-set", LAYOUTS[layout])  # what is above does not count
    name = f"of/{layout.replace(' ', '-')}"
    hub.add(name, read_files(LAYOUTS[layout]))
    expected = taken_by_datasets(folder)
    assert expected
    for config, splits in expected.items():
        for split, paths in splits.items():
            assert sorted(on_hub(f"{name}:{config}", split)) == paths, (config, split)
        with pytest.raises(ParameterError, match="has no split nonesuch; it has " + "(.*), ".join([*splits])):
            on_hub(f"{name}:{config}", "nonesuch")
    if len(expected) > 1:
        with pytest.raises(ParameterError, match="it has several configurations: " + ", ".join(expected)):
            in_folder(folder, "train")
        return
    for split, paths in splits.items():
        assert in_folder(folder, split) == paths, split
    with pytest.raises(ParameterError, match="has no split nonesuch; it has " + "(.*), ".join(splits)):
        in_folder(folder, "nonesuch")
    if len(splits) > 1:
        with pytest.raises(ParameterError, match="it has several splits: " + r" \(.*\), ".join(splits)):
            in_folder(folder)


CASES = [json.loads(line) for line in (ROOT / "tests" / "data" / "splits.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_what_is_read_is_what_a_case_says(hub, tmp_path, caplog, case):
    """A case has the files of a layout, what is below them, if not all are read, and what is read if splits are chosen:
    the files, or parts of the problem."""
    on_the_hub, folder = f"cases/{CASES.index(case)}", write_layout(tmp_path, case["files"])
    hub.add(on_the_hub, read_files(case["files"]))
    for where in case["where"].split():
        name = (on_the_hub if where == "hub" else str(folder)) + case.get("below", "")
        for splits, found in case["reads"].items():
            if isinstance(found, list):
                problem = find_problem(name, *splits.split())
                assert [part for part in found if part not in problem] == [], problem
            else:
                read = on_hub(name, *splits.split()) if where == "hub" else in_folder(Path(name), *splits.split())
                assert read == found.split()
        assert [log for log in case.get("logs", []) if f"{name}: {log}" not in caplog.text] == []


# In a folder


def test_card_of_a_folder_names_no_file_outside_of_it(tmp_path):
    outside, folder = tmp_path / "outside.jsonl", tmp_path / "folder"
    outside.write_text("{}\n")
    write_layout(folder, f"---\nconfigs: [{{config_name: a, data_files: ['{outside}', a.jsonl]}}]\n---\na.jsonl")
    assert find_problem(folder) == f"{outside} is in a split, and not there. Copy it again, or name the files to read."


def test_snapshot_of_links_into_a_cache_has_splits(tmp_path):
    """`hf download` without --local-dir leaves links to blobs."""
    write_layout(tmp_path / "blobs", "1.jsonl 2.jsonl")
    snapshot = tmp_path / "snapshots" / "0123"
    (snapshot / "data").mkdir(parents=True)
    (snapshot / "data" / "train-00000-of-00001.jsonl").symlink_to("../../../blobs/1.jsonl")
    (snapshot / "data" / "test-00000-of-00001.jsonl").symlink_to("../../../blobs/2.jsonl")
    assert "it has several splits: train (8 bytes), test (8 bytes)" in find_problem(snapshot)
    assert in_folder(snapshot, "train") == ["data/train-00000-of-00001.jsonl"]


def test_card_of_a_folder_in_a_bucket_is_read_and_no_key_leads_out_of_it():
    card = "---\nconfigs: [{config_name: a, data_files: [{split: x, path: 'b/*.jsonl'}]}]\n---\n"
    store = fsspec.filesystem("memory").store
    for name, content in read_files(card + "b/c.jsonl a.jsonl").items():
        fsspec.filesystem("memory").pipe_file(f"/carded/{name}", content)
    outside = Path(tempfile.gettempdir(), "chatmill-outside.jsonl")
    store["/carded/../chatmill-outside.jsonl"] = store["/carded/a.jsonl"]
    assert list_urls("memory://carded", input_format="jsonl") == ["memory:///carded/b/c.jsonl"]
    del store["/carded/../chatmill-outside.jsonl"]
    assert not outside.exists()


def test_key_of_a_bucket_that_no_file_can_have_is_named():
    card, name = "---\nconfigs: [{config_name: a, data_files: a.jsonl}]\n---\n", "n" * 300
    for path, content in read_files(f"{card}a.jsonl {name}").items():
        fsspec.filesystem("memory").pipe_file(f"/keyed/{path}", content)
    problem = f"its splits cannot be found, since {name} cannot be a file (File name too long). Name its files."
    assert find_problem("memory://keyed") == problem


def test_folder_in_a_bucket_has_splits():
    for name in ("train/a.jsonl", "test/b.jsonl"):
        fsspec.filesystem("memory").pipe_file(f"/splits/{name}", name[:-2].encode())
    assert "it has several splits: train (11 bytes), test (10 bytes)" in find_problem("memory://splits")
    assert list_urls("memory://splits", "train", input_format="jsonl") == ["memory:///splits/train/a.jsonl"]


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
        assert list_paths(saved, split) == paths
        assert list_paths(saved / split) == [path.removeprefix(f"{split}/") for path in paths]
    with pytest.raises(
        ParameterError, match=r"it has several splits: train \(936 bytes\), test \(.*\), sft \(.*\)\. Choose"
    ):
        list_paths(saved)
    for damage, problem in (
        (
            lambda: (saved / "train" / "data-00001-of-00002.arrow").unlink(),
            "train/data-00001-of-00002.arrow is in a split, and not there. Copy it again",
        ),
        (
            lambda: (saved / "test" / "state.json").unlink(),
            "its splits cannot be found: what save_to_disk wrote is incomplete or damaged (JSONDecodeError(",
        ),
        (
            lambda: (saved / "dataset_dict.json").write_text("[]"),
            "what save_to_disk wrote is incomplete or damaged (TypeError(",
        ),
    ):
        damage()
        assert problem in find_problem(saved, "train")


def test_names_of_folders_of_sessions_are_no_splits(tmp_path):
    """Claude Code names a folder by the path of its project."""
    folder = write_layout(tmp_path, "-home-me-my-test/a.jsonl -home-me-train-llm/b.jsonl -home-me/c.jsonl")
    assert len(list_paths(folder, input_format="claude_code")) == 3
    assert list_paths(folder, "test", input_format="claude_code") == ["-home-me-my-test/a.jsonl"]
    assert "it has several splits: train" in find_problem(folder)


def test_without_datasets_folders_without_a_card_are_read_and_others_say_what_is_missing(hub, tmp_path, monkeypatch):
    hub.add("org/plain", read_files("a.jsonl"))
    plain, card = write_layout(tmp_path / "plain", "train.jsonl test.jsonl"), write_layout(tmp_path / "card", NAMED)
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert in_folder(plain, "test") == ["test.jsonl"]
    problem = "which of its files are a split is found by the package datasets: run `pip install 'datasets>=5'`."
    assert find_problem("org/plain") == find_problem(card) == problem
    assert on_hub("hf://datasets/org/plain/*.jsonl") == ["a.jsonl"]


# On the Hub


def test_folder_of_a_repository_has_splits_too(hub):
    hub.add("org/folder", read_files("en/train.jsonl en/test.jsonl fr/a.jsonl x.jsonl"))
    assert on_hub("hf://datasets/org/folder/fr") == ["fr/a.jsonl"]
    assert on_hub("hf://datasets/org/folder@main/en/", "test") == ["en/test.jsonl"]
    with pytest.raises(ParameterError, match=r"several splits: train \(.*\), test \("):
        on_hub("hf://datasets/org/folder/en")
    assert on_hub("hf://datasets/org/folder/*/t*.jsonl") == ["en/test.jsonl", "en/train.jsonl"]
    assert on_hub("hf://datasets/org/folder/en/test.jsonl") == ["en/test.jsonl"]
    assert find_problem("hf://datasets/org/folder/de") == "there is no such file or folder."
    assert find_problem("hf://datasets/org/folder/*/z*").startswith("it has no file of records (")
    assert "is not a dataset, and has no splits" in find_problem("hf://datasets/org/folder/*/t*.jsonl", "train")


def test_converted_files_take_the_place_of_a_script(hub, caplog):
    repo = hub.add("org/made", read_files("made.py raw.jsonl"))
    assert "Dataset scripts are no longer supported, but found made.py. Name" in find_problem("org/made")
    converted = {"en/train/0000.parquet": b"PAR1PAR1", "en/partial-test/0000.parquet": b"PAR1PAR1"}
    repo.commit(converted, revision="refs/convert/parquet")
    commit = repo.refs["refs/convert/parquet"]
    assert list_urls("org/made:en", "train") == [f"hf://datasets/org/made@{commit}/en/train/0000.parquet"]
    assert "what the Hub converted to Parquet is read" in caplog.text
    problem = find_problem("org/made", "test")
    assert "has no split test; it has partial-test (8 bytes), train (" in problem
    # What the recipe of a build names is read again. Another revision was not converted.
    assert len(list_urls(f"org/made:en@{commit}", "train")) == 1
    assert "but found made.py. Name" in find_problem(f"org/made@{repo.refs['refs/heads/main']}")


def test_branch_of_converted_files_is_read_as_datasets_does(hub):
    paths = ["default/train/0000.parquet", "default/train/0001.parquet", "default/test/0000.parquet"]
    hub.add("org/branch", read_files("a.jsonl")).commit(
        dict.fromkeys(paths, b"PAR1PAR1"), revision="refs/convert/parquet"
    )
    name = "org/branch@refs/convert/parquet"
    loaded = datasets.load_dataset_builder("org/branch", revision="refs/convert/parquet").config.data_files
    assert {split: list_urls(name, split) for split in loaded} == loaded
    assert [*loaded] == ["train", "test"] and on_hub("org/branch") == ["a.jsonl"]


def test_part_that_the_hub_converted_is_not_taken_for_the_whole(hub):
    repo = hub.add("org/large", {"large.py": b"x"})
    assert "Dataset scripts are no longer supported, but found large.py. Name" in find_problem("org/large")
    repo.commit({"default/partial-train/0000.parquet": b"PAR1PAR1"}, revision="refs/convert/parquet")
    assert "the Hub converted a part of it only: partial-train" in find_problem("org/large")
    assert len(list_urls("org/large", "partial-train")) == 1
    assert len(list_urls("hf://datasets/org/large@refs/convert/parquet/default/partial-train/0000.parquet")) == 1


def test_names_on_the_hub_have_a_configuration_and_a_revision_and_an_existing_path_wins(hub, tmp_path, monkeypatch):
    repo = hub.add("org/named", read_files("a.jsonl"))
    configs = b"---\nconfigs: [{config_name: c d, data_files: b.jsonl}]\n---\n"
    repo.commit({"b.jsonl": b"b", "README.md": configs}, revision="refs/pr/3")
    assert on_hub("org/named:c d@refs/pr/3") == ["b.jsonl"]
    assert on_hub("hf://datasets/org/named@refs%2Fpr%2F3/b.jsonl") == ["b.jsonl"]
    monkeypatch.chdir(tmp_path)
    for path in ("a", "a/b/c", "./a", "../a", "a/b.jsonl", "a/b.json.gz", "~/a", "a/"):
        assert find_problem(path) == "there is no such file or folder."
    write_layout(tmp_path / "org" / "named", "here.jsonl")
    assert [Path(url).name for url in list_urls("org/named", input_format="jsonl")] == ["here.jsonl"]
    assert "there is no dataset org/nmaed on" in find_problem("org/nmaed")


def test_revisions_of_one_file_are_not_inputs_together(hub):
    repo = hub.add("org/twice", read_files("a.jsonl"))
    commit = repo.refs["refs/heads/main"]
    repo.commit({"b.jsonl": b"b"})
    with pytest.raises(ParameterError, match=r"hf://datasets/org/twice/a.jsonl.*in two revisions"):
        listed(["org/twice", f"org/twice@{commit}"], input_format="jsonl")


def test_default_configuration_of_a_standalone_file_is_read_as_datasets_does(hub, tmp_path, caplog):
    replaced = "---\nconfigs: [{config_name: replaced, data_files: c.jsonl}]\n---\na.jsonl b.jsonl c.jsonl"
    configs = b"configs: [{config_name: other, data_files: b.jsonl}, {config_name: default, data_files: a.jsonl}]\n"
    files = read_files(replaced) | {".huggingface.yaml": configs}
    write_files(tmp_path, files)
    loaded = datasets.load_dataset_builder(str(tmp_path)).config.data_files["train"]
    assert [Path(path).name for path in loaded] == ["a.jsonl"]
    hub.add("org/standalone", files)
    assert on_hub("org/standalone") == in_folder(tmp_path) == ["a.jsonl"]
    assert caplog.text.count(": its configuration default is read, not other") == 2
    assert on_hub("org/standalone:other") == ["b.jsonl"]
