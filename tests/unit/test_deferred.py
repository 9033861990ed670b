"""A package whose `__init__` is deferred: submodules do not run it, another of its names does, once."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from support.paths import ROOT
from transforms.base.deferred import defer_init


@pytest.fixture
def package(tmp_path, monkeypatch) -> str:
    """A package that counts how often its `__init__` runs, and whose submodule imports a name from it."""
    name = "package_of_test_deferred"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text(
        'import sys\nsys.runs = getattr(sys, "runs", 0) + 1\n__version__ = "2"\nfrom .sub import Class\nvalue = 1\n'
    )
    (folder / "sub.py").write_text("from . import __version__\nclass Class: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "runs", 0, raising=False)
    yield name
    for module in [module for module in sys.modules if module.startswith(name)]:
        del sys.modules[module]


def test_init_runs_only_when_another_name_is_used_and_only_once(package):
    defer_init(package, __version__="2")
    before = sys.modules[package]
    sub = importlib.import_module(f"{package}.sub")
    assert sub.__version__ == "2" and sys.runs == 0
    assert before.value == 1 and sys.runs == 1
    assert sys.modules[package] is not before
    assert before.value == sys.modules[package].value == 1 and sys.runs == 1
    assert before.Class is sys.modules[package].Class is sub.Class, "submodules are not imported again"


def test_a_name_that_the_package_does_not_have_is_an_attribute_error(package):
    defer_init(package, __version__="2")
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        sys.modules[package].other  # noqa: B018


def test_a_package_that_is_imported_stays_as_it_is(package):
    imported = importlib.import_module(package)
    defer_init(package, __version__="3")
    assert sys.modules[package] is imported and imported.__version__ == "2"


TRANSFORMERS = """
import os, sys
os.environ["CHATMILL_ONLY_TOKENIZERS"] = "1"
from transforms.tokens.tokenizer import load_tokenizer
tokenizer = load_tokenizer("examples/tokenizer")
print("transformers.dependency_versions_check" in sys.modules, "PIL" in sys.modules)  # __init__ imports the first
import transformers
print(transformers.__version__, transformers.PreTrainedTokenizerFast is type(tokenizer))
print(transformers.AutoTokenizer.from_pretrained("examples/tokenizer").get_vocab() == tokenizer.get_vocab())
"""


def test_a_tokenizer_needs_no_init_of_transformers_whose_names_are_there_all_the_same():
    done = subprocess.run([sys.executable, "-c", TRANSFORMERS], cwd=ROOT, capture_output=True, text=True, check=False)
    import transformers

    assert done.stdout == f"False False\n{transformers.__version__} True\nTrue\n", done.stderr
