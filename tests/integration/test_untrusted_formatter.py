"""Formatters of datasets: none is run unless it is trusted, and only as it was when its job was planned."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli.program import main
from pipeline.job.prepare import prepare
from support.datasets import write_jsonl
from support.harms import edit_log
from support.kinds import dataset_of
from support.paths import TOKENIZER
from transforms import Dataset
from transforms.base.errors import UserError

pytestmark = pytest.mark.slow

FORMATTER = """
from pathlib import Path


def text(record):
    return record["body"]
"""


@pytest.fixture
def planted(tmp_path) -> tuple[Path, Path, str]:
    """A dataset with a formatter, the file that is created if its code is run, and this code."""
    folder, ran = tmp_path / "dataset", tmp_path / "ran"
    shutil.copytree(dataset_of("formatter"), folder)
    return folder, ran, f"{stored_formatter(folder).read_text()}\nopen({str(ran)!r}, 'w').close()\n"


def stored_formatter(folder: Path) -> Path:
    (formatter,) = (folder / "_chatmill" / "formatters").iterdir()
    return formatter


def sign(folder: Path, code: str) -> None:
    """Store the code as the dataset's formatter, with its sha256 in the log."""
    stored, sha256 = stored_formatter(folder), hashlib.sha256(code.encode()).hexdigest()
    stored.write_text(code)
    stored.rename(stored.with_name(f"{sha256[:16]}.py"))
    edit_log(folder, lambda entry: entry["job"].update(formatter=sha256))


def verify(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["verify", *map(str, arguments)])
    return code, *capsys.readouterr()


def test_a_replay_runs_no_code_of_a_dataset_unless_it_is_trusted(planted, capsys):
    folder, ran, code = planted
    sign(folder, code)
    ended, out, err = verify(capsys, folder, "--replay", "0.1")
    assert (ended, out, ran.exists()) == (2, "", False)
    name = f"{stored_formatter(folder)}:several"
    assert err == (
        f"chatmill: {folder}: --replay runs code that came with the dataset, its formatter ({name}). Read it, and "
        "if you trust it, add --trust_formatter.\n"
    )
    _, out, _ = verify(capsys, folder, "--replay", "0.1", "--trust_formatter")
    assert ran.exists() and "records replayed" in out and "replayed," not in out


def test_a_formatter_with_another_sha256_is_not_run_even_if_it_is_trusted(planted, capsys):
    folder, ran, code = planted
    stored_formatter(folder).write_text(code)
    ended, out, _ = verify(capsys, folder, "--replay", "0.1", "--trust_formatter")
    assert (ended, ran.exists()) == (1, False)
    name = f"_chatmill/formatters/{stored_formatter(folder).name}"
    assert f"{name}: it is not the formatter that the job was run with: it was not run" in out


@pytest.mark.parametrize("name", ["json:loads", "{folder}/elsewhere.py:several"], ids=["module", "unsigned file"])
def test_a_formatter_that_is_not_stored_with_the_dataset_is_not_run_either(planted, capsys, name):
    folder, ran, code = planted
    (folder / "elsewhere.py").write_text(code)

    def change(entry: dict[str, Any]) -> None:
        entry["job"]["formatter"], entry["job"]["options"]["formatter"] = None, name.format(folder=folder)

    edit_log(folder, change)
    ended, _, err = verify(capsys, folder, "--replay", "0.1")
    assert (ended, ran.exists()) == (2, False) and "add --trust_formatter" in err
    if name.endswith(".py:several"):
        ended, out, _ = verify(capsys, folder, "--replay", "0.1", "--trust_formatter")
        assert (ended, ran.exists()) == (1, False) and "it was not run" in out


@pytest.mark.parametrize("of", ["all sources", "one source"])
def test_a_formatter_that_is_replaced_after_the_job_was_planned_is_not_run(of, build, monkeypatch, tmp_path):
    write_jsonl(tmp_path / "in.jsonl", [{"body": f"{number} apples"} for number in range(5)])
    (tmp_path / "own.py").write_text(FORMATTER)
    output, ran = tmp_path / "out", tmp_path / "ran"
    options = [f"--input={tmp_path}/in.jsonl", f"--formatter={tmp_path}/own.py:text"]
    if of == "one source":
        config = [{"name": "apples", "input": "in.jsonl", "formatter": "own.py:text"}]
        (tmp_path / "mix.yaml").write_text(json.dumps({"sources": config}))
        options = [f"--recipe={tmp_path}/mix.yaml"]

    def prepare_and_replace(*arguments: Any) -> Any:
        job = prepare(*arguments)
        stored_formatter(output).write_text(f"{FORMATTER}\nPath({str(ran)!r}).touch()\n")
        return job

    monkeypatch.setattr("pipeline.job.prepare.prepare", prepare_and_replace)
    ended = build(*options, f"--tokenizer={TOKENIZER}", f"--output={output}", "--direct_num_workers=1")
    stored = stored_formatter(output)
    message = f"chatmill: {stored}: the formatter was changed during the build. Run the same command again.\n"
    assert (ended.code, ran.exists()) == (2, False) and ended.err.endswith(message), ended.err
    assert not (output / "_SUCCESS").exists()


def test_python_code_has_to_trust_a_formatter_as_well(planted):
    from pipeline.viewing.replayed_records import replay

    with pytest.raises(UserError, match="runs code that came with the dataset"):
        replay(Dataset(str(planted[0])), 0.1)
