"""The recipes of docs/guide/trainers.md and of the dataset cards, run with the real trainers and a tiny random model.

The loss of each example in the trainer, in a batch with other examples, must be that of the example alone. The trainers
take gigabytes: they are installed, once for each requirements file, if TEST_TRAINERS is set (tests/run.sh --trainers).
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.datasets import build_in_process, manifest_of, rows_of, write_jsonl
from support.paths import ROOT, TOKENIZER
from support.programs import CACHE
from transforms.catalog.consumers import RowLayout, recipe

pytestmark = pytest.mark.skipif(
    "TEST_TRAINERS" not in os.environ, reason="trainers take gigabytes: tests/run.sh --trainers installs and runs them"
)
HERE = ROOT / "tests" / "trainers"
PACKED = ("--packing=bfd", "--max_length=256")
CONTAMINATED = 0.01  # of a loss of 10: examples that attend to others differ by more
WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu"]


def python_of(requirements: str) -> Path:
    """Return the Python of an environment with a requirements file, which is created once."""
    content = (HERE / requirements).read_bytes() + sys.version.encode()
    environment = CACHE / f"{Path(requirements).stem}-{hashlib.sha256(content).hexdigest()[:12]}"
    python, stamp = environment / "bin" / "python", environment / "installed"
    if not stamp.exists():
        install = [python, "-m", "pip", "install", "--quiet", "-r", HERE / requirements]
        for command in ([sys.executable, "-m", "venv", "--clear", environment], install):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
                pytest.skip(f"{requirements} cannot be installed: {' '.join(map(str, command))}: {reason}")
        stamp.touch()
    return python


def conversation(number: int) -> dict[str, Any]:
    """A conversation of one to three turns; no two are alike. One answer in three has another weight."""
    messages: list[dict[str, Any]] = []
    for turn in range(1 + number % 3):
        words = [WORDS[(number * 5 + turn * 7 + i * (number + 1)) % len(WORDS)] for i in range(4 + (number + turn) % 9)]
        messages.append({"role": "user", "content": f"{number}: {' '.join(words)}"})
        answer = {"role": "assistant", "content": " ".join(reversed(words))}
        messages.append(answer | ({"weight": 0.25} if (number + turn) % 3 == 0 else {}))
    return {"messages": messages}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Callable[..., Path]:
    """Build a dataset of the same conversations with some options, once for each."""
    folder = tmp_path_factory.mktemp("datasets")
    records = [conversation(number) for number in range(9)]
    weighted = write_jsonl(folder / "weighted.jsonl", records)
    plain = [{"messages": [{**m, "weight": 1} for m in record["messages"]]} for record in records]
    unweighted = write_jsonl(folder / "plain.jsonl", plain)
    built: dict[tuple[str, ...], Path] = {}

    def build(*options: str) -> Path:
        if options not in built:
            output = folder / str(len(built))
            corpus = weighted if any("loss_weights" in option for option in options) else unweighted
            done = build_in_process(
                f"--input={corpus}",
                f"--tokenizer={TOKENIZER}",
                f"--output={output}",
                "--direct_num_workers=1",
                *options,
            )
            assert done.returncode == 0, done.stderr
            built[options] = output
        return built[options]

    return build


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    subprocess.run([python_of("requirements.txt"), HERE / "make_model.py", TOKENIZER, folder], check=True)
    return folder


def environment_in(folder: Path) -> dict[str, str]:
    """The environment of a trainer, with a cache of its own: `datasets` may take another dataset from a shared one."""
    return os.environ | {"HF_DATASETS_CACHE": str(folder / "cache")}


def recipe_of(consumer: str, output: Path, model: Path) -> str:
    """Return the code of the recipe, as the card of the dataset has it, for a CPU."""
    layout = RowLayout.of(manifest_of(output)["job"]["options"])
    block = recipe(consumer, "PATH OF THIS FOLDER", TOKENIZER.name, layout)
    assert block in (output / "README.md").read_text()
    code = "\n".join(block.splitlines()[1:-1]).replace("PATH OF THIS FOLDER", str(output))
    code = code.replace(f'"{TOKENIZER.name}"', f'"{model}"').replace(f": {TOKENIZER.name}\n", f": {model}\n")
    return code.replace("SFTConfig(", "SFTConfig(bf16=False, use_cpu=True, ")


def losses_of(tmp_path: Path, code: str, examples: Path, without: tuple[str, ...] = ()) -> dict[str, Any]:
    request = {"recipe": code, "examples": rows_of(examples), "without": without}
    done = subprocess.run(
        [python_of("requirements.txt"), HERE / "run_recipe.py"],
        input=json.dumps(request), cwd=tmp_path, env=environment_in(tmp_path),
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def assert_each_loss_is_that_of_the_example_alone(found: dict[str, Any]) -> None:
    assert len(found["alone"]) == 9
    assert found["in_trainer"] == pytest.approx(found["alone"], rel=1e-5)
    assert found["trained"] == pytest.approx(found["mean"], rel=1e-5)


def unchanged(code: str) -> str:
    return code


def padding_free(code: str) -> str:
    return code.replace("packing=True", "padding_free=True, max_length=None")


def flattened(code: str) -> str:
    start = code.index("DataCollatorForSeq2Seq(")
    code = code[:start] + "DataCollatorWithFlattening(),\n)"
    return code.replace("DataCollatorForSeq2Seq", "DataCollatorWithFlattening")


@pytest.mark.parametrize(
    ("consumer", "options", "variant"),
    [
        ("trl", PACKED, unchanged),
        ("trl", PACKED, padding_free),
        ("trl", (), unchanged),
        ("trainer", (), unchanged),
        ("trainer", (), flattened),
    ],
    ids=["trl-packed", "trl-padding-free", "trl", "trainer", "trainer-flattening"],
)
def test_loss_of_each_example_is_that_of_the_example_alone(dataset, model, tmp_path, consumer, options, variant):
    code = variant(recipe_of(consumer, dataset(f"--for={consumer}", *options), model))
    assert_each_loss_is_that_of_the_example_alone(losses_of(tmp_path, code, dataset("--for=trainer")))


def test_weighted_loss_of_each_example_is_that_of_the_example_alone(dataset, model, tmp_path):
    output = dataset("--for=trainer", "--write_columns=input_ids,labels,loss_weights")
    assert {weight for row in rows_of(output) for weight in row["loss_weights"]} == {0.0, 0.25, 1.0}
    found = losses_of(tmp_path, recipe_of("trainer", output, model), output)
    assert_each_loss_is_that_of_the_example_alone(found)
    unweighted = losses_of(tmp_path, recipe_of("trainer", dataset("--for=trainer"), model), dataset("--for=trainer"))
    assert abs(found["mean"] - unweighted["mean"]) > CONTAMINATED


def test_packed_rows_without_seq_lengths_are_contaminated_in_trl(dataset, model, tmp_path):
    """What `--for trl` refuses; and the proof that these tests would notice it."""
    code = recipe_of("trl", dataset("--for=trl", *PACKED), model)
    found = losses_of(tmp_path, code, dataset("--for=trainer"), without=("seq_lengths",))
    assert max(abs(a - b) for a, b in zip(found["in_trainer"], found["alone"], strict=True)) > CONTAMINATED


def test_axolotl_keeps_each_row_and_its_loss(dataset, model, tmp_path):
    python = python_of("axolotl.txt")
    output = dataset("--for=axolotl", "--max_length=256")
    settings = {
        "output_dir": tmp_path / "out",
        "dataset_prepared_path": tmp_path / "prepared",
        "micro_batch_size": 2,
        "gradient_accumulation_steps": 1,
        "max_steps": 1,
        "learning_rate": 0.001,
        "optimizer": "adamw_torch",
        "bf16": "false",
        "fp16": "false",
        "float32": "true",
        "dataloader_num_workers": 0,
    }
    config = tmp_path / "config.yaml"
    lines = [f"{name}: {value}" for name, value in settings.items()]
    config.write_text("\n".join([recipe_of("axolotl", output, model), *lines]))
    with open(tmp_path / "log", "w+") as log:
        done = subprocess.run(
            [python, HERE / "run_axolotl.py", config, tmp_path / "found.json"],
            input=json.dumps(rows_of(output)), env=environment_in(tmp_path), stdout=log,
            stderr=log, text=True, check=False, timeout=300,
        )  # fmt: skip
        log.seek(0)
        assert done.returncode == 0, log.read()
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["rows"] == len(rows_of(output)) == 9
    assert found["in_trainer"] == pytest.approx(found["alone"], rel=1e-5)
