"""README.md and the guide: each command runs, each program runs, and each output that is shown is what they print."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from support.command_line import chatmill
from support.hub import Hub
from support.paths import CHATS, ROOT, TOKENIZER
from support.shared import built_once

GUIDE = sorted((ROOT / "docs" / "guide").glob("*.md"))
# In the order in which a reader takes them: later pages use the datasets of earlier ones.
NAMES = ("first_dataset", "trl", "tools_and_reasoning", "many_sources", "appending", "cluster", "trainers")
PAGES = ["README.md", *(f"docs/guide/{name}.md" for name in NAMES)]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# What a test cannot run: it would run all tests, needs a cluster, ends only at Ctrl-C, or needs a trainer.
ELSEWHERE = ("tests/run.sh", "chatmill build --append --every", "llamafactory-cli", "swift", "python -m skyrl")
TRAINERS = re.compile(r"^(?:from|import) (?:trl|transformers|megatron|torch|torchdata|grain)\b", re.MULTILINE)


def blocks(page: str) -> list[tuple[str, str]]:
    """The code of a page, each piece with its language."""
    return BLOCK.findall((ROOT / page).read_text())


def commands(block: str) -> list[str]:
    """The commands of a block; one may go on over several lines."""
    found: list[str] = []
    for line in block.splitlines():
        if found and not _is_complete(found[-1]):
            found[-1] += f"\n{line}"
        elif line.strip() and not line.startswith("#"):
            found.append(line)
    return found


def _is_complete(command: str) -> bool:
    here = re.search(r"<<'(\w+)'", command)
    return not command.endswith("\\") and (not here or command.splitlines()[-1] == here[1])


def arguments(command: str) -> list[str]:
    """What follows the name of a command of Chatmill."""
    return shlex.split(command.replace("\\\n", " "), comments=True)[2:]


def is_on_a_cluster(command: str) -> bool:
    return "--runner" in command or "gs://" in command


@pytest.fixture(scope="module")
def clone() -> Path:
    """A folder like a clone in which all pages were run."""
    return built_once("clone", lambda folder: run_pages(make_clone(folder)))


@pytest.fixture(scope="module")
def printed(clone) -> dict[str, list[str]]:
    """What each block of each page printed."""
    return json.loads((clone / "printed.json").read_text())


def make_clone(folder: Path) -> Path:
    """Make a folder like a clone in which ./run_local.sh has set up .venv, with some conversations in chats/."""
    for name in ("examples", "run_local.sh", "venv.sh", "setup.py"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "chats").symlink_to(ROOT / "examples" / "chats")
    (folder / "out").mkdir()
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, arguments in (("python", ""), ("chatmill", "-m pipeline ")):
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments}"$@"\n')
        (programs / name).chmod(0o755)
    (programs / "activate").write_text(f'PATH={shlex.quote(str(programs))}:"$PATH"\n')
    (folder / ".venv" / "installed-hub").write_text(f"{folder}\n{(ROOT / 'setup.py').read_text()}")
    return folder


def run_pages(clone: Path) -> None:
    """Run all blocks in the order of the pages, with one PATH, and write what each printed to printed.json."""
    outputs: dict[str, list[str]] = {}
    with Hub() as hub:
        shards = {
            f"data/{split}-00000-of-00001.jsonl": (CHATS / "support.jsonl").read_bytes()
            for split in ("train_sft", "test_sft")
        }
        hub.add("HuggingFaceH4/ultrachat_200k", shards)
        environment = os.environ | hub.environment(clone / "home", hub.token_of("me")) | {
            "PYTHONPATH": str(ROOT), "PATH": f"{clone / '.venv' / 'bin'}:{os.environ['PATH']}", "COLUMNS": "120",
        }  # fmt: skip
        for page in PAGES:
            outputs[page] = []
            for language, code in blocks(page):
                program = program_of(language, code)
                done = subprocess.run(
                    program, cwd=clone, env=environment, text=True, check=False, timeout=300,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                )  # fmt: skip
                assert done.returncode == 0, f"{page}:\n{code}\n{done.stdout}"
                outputs[page].append(done.stdout)
    (clone / "printed.json").write_text(json.dumps(outputs))


def program_of(language: str, code: str) -> list[str]:
    """The process that runs a piece of code of a page; one that does nothing for what is not run here."""
    code = code.replace("Qwen/Qwen3-8B", str(TOKENIZER))
    if language == "python" and not TRAINERS.search(code) and "out/mine" not in code:
        return [sys.executable, "-c", code]
    run = [command for command in commands(code) if not command.startswith(ELSEWHERE) and not is_on_a_cluster(command)]
    return ["bash", "-euo", "pipefail", "-c", "\n".join(run) if language == "bash" else ""]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_each_command_and_program_of_a_page_ends_with_0(printed, page):
    assert len(printed[page]) == len(blocks(page))


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_each_output_that_a_page_shows_is_what_the_code_before_it_prints(printed, page):
    for number, (language, shown) in enumerate(blocks(page)):
        if language == "text" and number:
            for part in re.split(r"^…\n", shown, flags=re.MULTILINE):
                assert part in printed[page][number - 1]


@pytest.mark.slow
def test_row_on_the_first_screen_is_one_of_the_example_dataset(clone, printed, capfd):
    [(language, shown), *_] = blocks("README.md")
    assert language == "text" and printed
    assert chatmill("inspect", clone / "out" / "example", "--full") == 0
    assert shown.rstrip("\n") in capfd.readouterr().out


def test_recipe_in_the_guide_is_the_example():
    [shown] = [code for language, code in blocks("docs/guide/many_sources.md") if language == "yaml"]
    assert yaml.safe_load(shown) == yaml.safe_load((ROOT / "examples" / "sources.yaml").read_text())


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_are_not_run_have_options_that_exist(page, capfd):
    for language, code in blocks(page):
        for command in commands(code) if language == "bash" else []:
            if is_on_a_cluster(command) or "--every" in command:
                assert chatmill("build", *arguments(command), "--nope=1") == 2
                assert capfd.readouterr().err.startswith("chatmill: unknown option --nope.")


def test_each_page_of_the_guide_is_run():
    assert {str(page.relative_to(ROOT)) for page in GUIDE} <= set(PAGES)
    assert all(blocks(page) for page in PAGES)


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().split()) <= 650
