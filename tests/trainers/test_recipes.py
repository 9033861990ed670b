"""The recipes of docs/guide/trainers.md and of the dataset cards, run with the real trainers and a tiny random model.

The loss of each example in the trainer, in a batch with other examples, must be that of the example alone. The trainers
take gigabytes: they are installed, once for each requirements file, if TEST_TRAINERS is set (tests/run.sh --trainers).
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.datasets import read_manifest, read_rows
from support.trainers import HERE, environment_in, find_python, needs_trainers
from transforms.report.trainers import TRAINERS
from transforms.rows.layout import RowLayout

pytestmark = needs_trainers
PACKED = ("--packing=bfd", "--max_length=256")
CONTAMINATED = 0.01  # of a loss of 10: examples that attend to others differ by more


def recipe_of(consumer: str, output: Path, model: Path) -> str:
    """Return the code of the recipe, as the card of the dataset has it, for a CPU."""
    layout = RowLayout.of(read_manifest(output)["job"]["options"])
    block = TRAINERS[consumer].recipe("PATH OF THIS FOLDER", "YOUR MODEL", layout)
    assert block in (output / "README.md").read_text()
    code = "\n".join(block.splitlines()[1:-1]).replace("PATH OF THIS FOLDER", str(output))
    code = code.replace('"YOUR MODEL"', f'"{model}"').replace(": YOUR MODEL\n", f": {model}\n")
    return code.replace("SFTConfig(", "SFTConfig(bf16=False, use_cpu=True, ")


def losses_of(tmp_path: Path, code: str, examples: Path, without: tuple[str, ...] = ()) -> dict[str, Any]:
    request = {"recipe": code, "examples": read_rows(examples), "without": without}
    done = subprocess.run(
        [find_python("requirements.txt"), HERE / "run_recipe.py"],
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


def test_packed_rows_without_seq_lengths_are_contaminated_in_trl(dataset, model, tmp_path):
    """What `--for trl` refuses; and the proof that these tests would notice it."""
    code = recipe_of("trl", dataset("--for=trl", *PACKED), model)
    found = losses_of(tmp_path, code, dataset("--for=trainer"), without=("seq_lengths",))
    assert max(abs(a - b) for a, b in zip(found["in_trainer"], found["alone"], strict=True)) > CONTAMINATED


def test_axolotl_keeps_each_row_and_its_loss(dataset, model, tmp_path):
    python = find_python("axolotl.txt")
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
            input=json.dumps(read_rows(output)), env=environment_in(tmp_path), stdout=log,
            stderr=log, text=True, check=False, timeout=300,
        )  # fmt: skip
        log.seek(0)
        assert done.returncode == 0, log.read()
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["rows"] == len(read_rows(output)) == 9
    assert found["in_trainer"] == pytest.approx(found["alone"], rel=1e-5)
