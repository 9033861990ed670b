"""Makes metadata.json, the parameters of the Flex Template, from the options of `chatmill build`.

.venv/bin/python deploy/dataflow/metadata.py
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from pipeline.cli.options import command_line_fields, help_text, option_name

FILE = Path(__file__).with_name("metadata.json")
_REQUIRED = ("tokenizer", "output")


def metadata() -> dict[str, Any]:
    """Each option, and the image of the workers; not the runner, which is Dataflow, nor detach, which is always so."""
    image = {
        "name": "sdk_container_image",
        "label": "Sdk container image",
        "helpText": "the image of the workers: that of this template",
        "regexes": ["^[^ ]+$"],
    }
    fields = [field for field in command_line_fields() if field.name not in ("runner", "detach")]
    return {
        "name": "Chatmill",
        "description": "Build a dataset of token shards for training from conversations.",
        "parameters": [*map(_parameter, fields), image],
    }


def _parameter(field: dataclasses.Field[Any]) -> dict[str, Any]:
    kind = field.metadata["kind"]
    parameter = {
        "name": option_name(field.name),
        "label": option_name(field.name).replace("_", " ").capitalize(),
        "helpText": f"{field.metadata['metavar']}: {help_text(field)}",
        "groupName": field.metadata["group"],
    }
    if field.name not in _REQUIRED:
        parameter["isOptional"] = True
    if kind.regex:
        parameter["regexes"] = [f"^({kind.regex})$"]
    return parameter


if __name__ == "__main__":
    FILE.write_text(json.dumps(metadata(), indent=2) + "\n")
