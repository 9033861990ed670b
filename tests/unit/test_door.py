"""The door: what a test may know of the program, so that everything behind it can move.

Tests import the public names of `transforms` and `pipeline`, and run the command line; what is patched is the world
(a disk, a clock, a server, a signal), not a function of ours by its name.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import transforms
from support.paths import ROOT

# Files that know the inside yet. A file leaves this list when it does not; none is added.
BELOW_THE_DOOR = """
integration/test_output_format.py
runners/test_dataflow.py
support/chats.py
trainers/test_recipes.py
unit/test_architecture.py
unit/test_cores.py
unit/test_progress.py
unit/test_stopping.py
"""
_INSIDE = re.compile(r"\b(?:from|import) (?:transforms|pipeline)\.\w|^(?:transforms|pipeline)\.[\w.]+$", re.MULTILINE)
_PROGRAMS = {"pipeline.__main__", "pipeline.runners.worker"}


def knows_the_inside(path: Path) -> bool:
    """Whether a file imports a module below `transforms` or `pipeline`, or names one in a string, as a patch does."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names if _INSIDE.search(f"import {alias.name}")]
        elif isinstance(node, ast.ImportFrom):
            found = [node.module] if _INSIDE.search(f"from {node.module} ") else []
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = [node.value] if _INSIDE.search(node.value) else []
        else:
            continue
        if {*found} - _PROGRAMS:
            return True
    return False


def test_tests_stay_at_the_door():
    files = {path: str(path.relative_to(ROOT / "tests")) for path in sorted((ROOT / "tests").rglob("*.py"))}
    below = [name for path, name in files.items() if knows_the_inside(path)]
    assert below == BELOW_THE_DOOR.split(), "import public names; run commands by support.command_line"


def test_the_public_names_are_few_and_each_has_a_docstring():
    assert len(transforms.__all__) <= 40
    assert [name for name in transforms.__all__ if not getattr(transforms, name).__doc__] == []
