"""The structure of the code: which module may import which."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import transforms
from support.paths import ROOT

# From the bottom to the top: a module imports only from its own layer and from the layers below it.
LAYERS = [
    {"transforms.base.version"},
    {"transforms.base"},
    {"transforms.storage"},
    {"transforms.rows"},
    {"transforms.model"},
    {
        "transforms.records",
        "transforms.traces",
        "transforms.files",
        "transforms.outputs",
        "transforms.tokens",
        "transforms.contamination",
    },
    {"transforms.chat.config"},
    {"transforms.chat.rendering"},
    {"transforms.chat.spans"},
    {"transforms.chat.special_tokens", "transforms.chat.traced"},
    {"transforms.chat.parity"},
    {"transforms.chat"},
    {"transforms.steps"},
    {"transforms.corpus"},
    {"transforms.dataset"},
    {"transforms.report"},
    # They write and read what is derived from a version: the card, the report.
    {f"transforms.dataset.{name}" for name in ("derived", "commit", "custom_pipeline", "expiry", "verification")},
    {"transforms.push"},
    {"pipeline.show.hints"},
    {"pipeline.cli.console"},
    {"pipeline.stopping", "pipeline.fork_server"},
    {"pipeline.workers"},
    {"pipeline.runners"},
    {"pipeline.config"},
    {"pipeline.recipe"},
    {"pipeline.cli"},
    {"pipeline.tokenizer"},
    {"pipeline.first_records"},
    {"pipeline.show"},
    {"pipeline.job"},
    {"pipeline.existing"},
    {"pipeline.inputs", "pipeline.plan"},
    {"pipeline.prepare"},
    {"pipeline.graph"},
    {"pipeline.progress"},
    {"pipeline.increments"},
    {"pipeline.run"},
    {"pipeline.commands"},
    {"pipeline.cli.program"},
    {"pipeline"},
]


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for name in ("pipeline", "transforms") for path in (ROOT / name).rglob("*.py")}


def imports_of(path: Path) -> set[str]:
    """Return our modules that a module imports, also inside functions, but not only for type checkers."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & MODULES.keys()


IMPORTS = {name: imports_of(path) for name, path in MODULES.items()}


def test_types_are_decoded_by_decoders_that_their_modules_make():
    """msgspec looks at the fields of a type when it is first decoded; a thread that decodes it meanwhile crashes."""
    for module, path in MODULES.items():
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        types = [
            each.value for call in calls if ast.unparse(call.func) == "msgspec.json.decode" for each in call.keywords
        ]
        assert [ast.unparse(type) for type in types if not ast.unparse(type).startswith("dict")] == [], module


def layer_of(module: str) -> int:
    """Return the layer of a module: that of the longest name. `transforms` itself only exports names of others."""
    of = {part: i for i, layer in enumerate(LAYERS) for part in layer if f"{module}.".startswith(f"{part}.")}
    return of[max(of, key=len)] if of else 0 if module == "transforms" else 99


def test_every_module_is_in_a_layer():
    assert [module for module in MODULES if layer_of(module) == 99] == []


def test_no_import_cycle():
    try:
        TopologicalSorter(IMPORTS).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_no_module_imports_one_of_a_layer_above_it():
    upwards = {
        (name, used) for name, all_used in IMPORTS.items() for used in all_used if layer_of(used) > layer_of(name)
    }
    assert upwards == set()


def test_a_runner_is_one_file_which_is_found_by_itself(tmp_path: Path):
    runners = {name for name in MODULES if name.startswith("pipeline.runners.")} - {"pipeline.runners.runner"}
    assert {name for name, used in IMPORTS.items() if used & runners} == set()
    (tmp_path / "mine.py").write_text(
        "from pipeline.runners.runner import Runner\nRUNNERS = (Runner('MyRunner', has_dry_run=True),)\n"
    )
    program = f"""
from pipeline import runners
runners.__path__.append({str(tmp_path)!r})
print(runners.find_runner("MyRunner").has_dry_run, runners.find_runner("Another").has_dry_run)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"


def test_a_command_is_one_file_which_is_found_by_itself(tmp_path: Path):
    (tmp_path / "count.py").write_text("SUMMARY = 'OUT', 'count'\n\ndef run(arguments):\n    return len(arguments)\n")
    program = f"""
from pipeline import commands, main
commands.__path__.append({str(tmp_path)!r})
print(main(["count", "x", "y"]), main(["coutn"]))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "2 2\n"
    assert "Did you mean count?" in done.stderr and "       chatmill count OUT " in done.stderr


def test_public_names_are_defined_in_the_listed_modules():
    assert list(transforms._HOMES) == transforms.__all__
    for name in transforms.__all__:
        assert getattr(transforms, name).__module__ == f"transforms.{transforms._HOMES[name]}"
