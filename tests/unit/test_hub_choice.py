"""Which files of a dataset on the Hub are read: those that `datasets` takes, and none without a choice."""

from __future__ import annotations

import zlib
from pathlib import Path

import datasets
import pytest

from support.hub import Hub
from support.layouts import LAYOUTS, NAMED, OF_CARD, files_of, taken_by_datasets, write_files, write_layout
from transforms import ParameterError
from transforms.inputs.hub.card import read_card
from transforms.inputs.hub.names import HubName, hub_name, in_full
from transforms.inputs.hub.patterns import MalformedError
from transforms.inputs.listing import find_files, list_inputs


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with Hub() as hub, hub.in_process(tmp_path_factory.mktemp("home")):
        yield hub


def listed(name: str, *splits: str) -> list[str]:
    """Return the paths of the input files of a dataset, in order."""
    return [file.url.partition("@")[2].partition("/")[2] for file in list_inputs(name, "jsonl", splits=splits)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_of_each_split_are_those_that_datasets_takes(hub, layout, tmp_path):
    name = f"of/{layout.replace(' ', '-')}"
    hub.add(name, files_of(LAYOUTS[layout]))
    expected = taken_by_datasets(write_layout(tmp_path, LAYOUTS[layout]))
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


OTHER = "{config_name: other, data_files: b.jsonl}"
DEFAULTS = {
    "called default": f"[{OTHER}, {{config_name: default, data_files: a.jsonl}}]",
    "says that it is": f"[{OTHER}, {{config_name: main, data_files: a.jsonl, default: true}}]",
}


@pytest.mark.parametrize("standalone", [False, True], ids=["README.md", ".huggingface.yaml"])
@pytest.mark.parametrize("configs", DEFAULTS.values(), ids=DEFAULTS)
def test_default_configuration_is_read_as_datasets_does_on_the_hub_and_in_a_folder(
    hub, configs, standalone, tmp_path, caplog
):
    files = files_of("a.jsonl b.jsonl c.jsonl")
    if standalone:
        files["README.md"] = b"---\nconfigs: [{config_name: replaced, data_files: c.jsonl}]\n---\n"
        files[".huggingface.yaml"] = f"configs: {configs}\n".encode()
    else:
        files["README.md"] = f"---\nconfigs: {configs}\n---\n".encode()
    write_files(tmp_path, files)
    loaded = datasets.load_dataset_builder(str(tmp_path)).config.data_files["train"]
    assert [Path(path).name for path in loaded] == ["a.jsonl"]
    name = f"defaults/{zlib.crc32(repr(files).encode())}"
    hub.add(name, files)
    for pattern in (name, str(tmp_path)):
        assert [Path(file.url).name for file in list_inputs(pattern, "jsonl")] == ["a.jsonl"]
        default = "main" if "main" in configs else "default"
        assert f"{pattern}: its configuration {default} is read, not other" in caplog.messages
    assert listed(f"{name}:other") == ["b.jsonl"]


def test_several_default_configurations_are_an_error(hub):
    card = b"---\nconfigs: [{config_name: a, default: true}, {config_name: default}]\n---\n"
    hub.add("org/defaults", {"README.md": card, "a.jsonl": b"x"})
    with pytest.raises(ParameterError, match="it has several default configurations, a and default"):
        listed("org/defaults")
