"""Change files of a dataset."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.command_line import chatmill


def edit_version(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the version of a dataset that has one, and derive the rest from it again: as if a build had said so."""
    (path,) = (folder / "_chatmill" / "versions").glob("*.json")
    version = json.loads(path.read_bytes())
    change(version)
    path.write_text(json.dumps(version))
    assert chatmill("expire", folder, "--older_than=3650d") == 0  # which repairs what is derived


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
