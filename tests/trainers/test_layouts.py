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

from support.datasets import read_rows
from support.paths import ROOT
from support.trainers import HERE, environment_in, find_python, needs_trainers

BLOCKS = re.findall(r"^```\w+\n(.*?)^```$", (ROOT / "docs/guide/trainers.md").read_text(), re.DOTALL | re.MULTILINE)
EOS = 2  # of the tokenizer of the examples
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
        [find_python(f"{trainer}.txt"), HERE / "run_command.py", "found.json", *words, *shlex.split(OPTIONS[trainer])],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["rows"] == [row["input_ids"] for row in read_rows(output)] and len(found["rows"]) == 9
    assert found["in_trainer"] == pytest.approx(found["alone"], rel=1e-5)
    assert found["trained"] == pytest.approx(found["mean"], rel=1e-5)


@needs_trainers
@pytest.mark.parametrize("multiple", [1, 4])
def test_bridge_has_each_example_once_with_the_labels_that_are_trained_on(dataset, tmp_path, multiple):
    output = dataset()
    script = [sys.executable, ROOT / "examples" / "megatron_bridge.py", output, tmp_path, "--max_length=256"]
    subprocess.run([*script, f"--multiple={multiple}"], cwd=ROOT, check=True)
    python = find_python("megatron_bridge.txt", "megatron-bridge==0.6.2", "megatron-core==0.16.1")
    done = subprocess.run(
        [python, HERE / "run_megatron_bridge.py", tmp_path / "train", "256", str(multiple), str(EOS)],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["follows"] and len(found["examples"]) == 9
    expected = []
    for row in read_rows(output):
        trained = [int(label != -100) for label in row["labels"][1:]]
        # Bridge 0.6.2 never trains on what follows the end-of-text token, here a line break.
        ends = [token == EOS for token in row["input_ids"][:-1]]
        expected.append((row["input_ids"], [int(one and not end) for one, end in zip(trained, ends, strict=True)]))
    expected.sort()
    for (ids, mask), (own_ids, own_mask) in zip(sorted(found["examples"]), expected, strict=True):
        assert (ids[: len(own_ids)], mask[: len(own_mask)]) == (own_ids, own_mask)
        assert len(mask) % multiple == 0 and {*ids[len(own_ids) :]} <= {EOS} and not any(mask[len(own_mask) :])
