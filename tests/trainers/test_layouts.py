"""What docs/guide/trainers.md has for trainers that read another layout, run with the trainers and a tiny random model.

The loss of each example, in a batch or a packed row with another one, must be that of the example alone.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys

import pytest

from support.datasets import rows_of
from support.paths import ROOT
from support.trainers import HERE, environment_in, needs_trainers, python_of

BLOCKS = re.findall(r"^```\w+\n(.*?)^```$", (ROOT / "docs/guide/trainers.md").read_text(), re.DOTALL | re.MULTILINE)
COLUMNS = "--write_columns=input_ids,attention_mask,labels"
# What is needed for a tiny model on a CPU, and for one step with all rows.
STEP = "--per_device_train_batch_size 9 --num_train_epochs 1 --gradient_accumulation_steps 1 --report_to none"
OPTIONS = {
    "llamafactory": f"{STEP} --template empty --finetuning_type full --use_cpu --save_strategy no",
    "ms_swift": f"{STEP} --model_type llama --template dummy --tuner_type full --torch_dtype float32",
}


@needs_trainers
@pytest.mark.parametrize("trainer", OPTIONS)
def test_command_of_the_trainer_trains_on_each_example_as_if_it_was_alone(dataset, model, tmp_path, trainer):
    output = dataset(COLUMNS)
    saves, command = (block for block in BLOCKS if f"out/{trainer}" in block)
    environment = environment_in(tmp_path)
    subprocess.run(
        [sys.executable, "-c", saves.replace("out/rows", str(output))], cwd=tmp_path, env=environment, check=True
    )
    words = [str(model) if word == "Qwen/Qwen3-8B" else word for word in shlex.split(command.replace("\\\n", " "))]
    done = subprocess.run(
        [python_of(f"{trainer}.txt"), HERE / "run_command.py", "found.json", *words, *shlex.split(OPTIONS[trainer])],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["rows"] == [row["input_ids"] for row in rows_of(output)] and len(found["rows"]) == 9
    assert found["in_trainer"] == pytest.approx(found["alone"], rel=1e-5)
    assert found["trained"] == pytest.approx(found["mean"], rel=1e-5)
