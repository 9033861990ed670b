"""The recipes of docs/exports.md, run with the real trainers and a tiny random model.

The trainer's own command loads the export, and trains one step. The loss of each example, in a batch with another one,
must be that of the example alone.
"""

from __future__ import annotations

import json
import shlex
import subprocess

import pytest

from pipeline.cli.program import main
from support.datasets import rows_of
from support.paths import TOKENIZER
from support.trainers import HERE, environment_in, needs_trainers, python_of
from transforms.catalog.consumers import RowLayout, recipe

pytestmark = needs_trainers
# What is needed for a tiny model on a CPU, and for one step with all rows.
STEP = "--per_device_train_batch_size 9 --num_train_epochs 1 --gradient_accumulation_steps 1 --report_to none"
OPTIONS = {
    "llamafactory": f"{STEP} --template empty --finetuning_type full --use_cpu --save_strategy no",
    "ms_swift": f"{STEP} --model_type llama --template dummy --tuner_type full --torch_dtype float32",
}


@pytest.mark.parametrize("consumer", OPTIONS)
def test_command_of_the_trainer_trains_on_each_example_as_if_it_was_alone(dataset, model, tmp_path, consumer):
    output = dataset(f"--for={consumer}")
    path = tmp_path / "out" / consumer
    assert main(["export", str(output), f"--for={consumer}", f"--output={path}", "--shards=2"]) == 0
    code = recipe(consumer, str(output), TOKENIZER.name, RowLayout(("input_ids", "labels"), ("parquet",)))
    _, command = "\n".join(code.splitlines()[1:-1]).replace("\\\n", " ").splitlines()
    words = [str(model) if word == TOKENIZER.name else word for word in shlex.split(command, comments=True)]
    done = subprocess.run(
        [python_of(f"{consumer}.txt"), HERE / "run_export.py", "found.json", *words, *shlex.split(OPTIONS[consumer])],
        cwd=tmp_path, env=environment_in(tmp_path), capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["rows"] == [row["input_ids"] for row in rows_of(output)] and len(found["rows"]) == 9
    assert found["in_trainer"] == pytest.approx(found["alone"], rel=1e-5)
    assert found["trained"] == pytest.approx(found["mean"], rel=1e-5)


def test_documents_of_olmo_core_have_the_loss_of_each_example_alone(dataset, model, tmp_path):
    output = dataset("--for=olmo_core", "--max_length=256")
    path = tmp_path / "out" / "olmo_core"
    assert main(["export", str(output), "--for=olmo_core", f"--output={path}", "--shards=2"]) == 0
    layout = RowLayout(("input_ids", "labels"), ("parquet",), max_length=256)
    code = "\n".join(recipe("olmo_core", str(output), TOKENIZER.name, layout).splitlines()[1:-1])
    loads = f'TokenizerConfig.from_hf("{TOKENIZER.name}")'  # from the Hub alone
    assert loads in code
    config = json.loads((model / "config.json").read_text())
    ids = f"vocab_size={config['vocab_size']}, eos_token_id=2, pad_token_id=0"
    (tmp_path / "recipe.py").write_text(code.replace(loads, f"TokenizerConfig({ids})"))
    done = subprocess.run(
        [python_of("olmo_core.txt"), HERE / "run_olmo_core.py", model, "recipe.py", "found.json"],
        cwd=tmp_path, env=environment_in(tmp_path), input=json.dumps(rows_of(output)),
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert len(found["alone"]) == 9
    assert found["in_trainer"] == pytest.approx(found["alone"], rel=1e-5)
