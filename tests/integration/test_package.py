"""The contents and the metadata of the wheel."""

from __future__ import annotations

import zipfile
from email import message_from_string

import pytest

from support.paths import ROOT
from support.programs import build_wheel
from transforms import __version__


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    return zipfile.ZipFile(build_wheel(tmp_path_factory.mktemp("wheel")))


def test_every_module_is_in_the_distribution(wheel):
    """Tests run from the sources, and would not notice a package that setup.py leaves out."""
    modules = {
        str(path.relative_to(ROOT)) for name in ("pipeline", "transforms") for path in (ROOT / name).rglob("*.py")
    }
    assert modules <= set(wheel.namelist())


def test_files_of_the_report_are_in_the_distribution(wheel):
    """Beam's workers have what is in it, and nothing else; a worker commits the dataset."""
    report = ROOT / "transforms" / "report"
    files = [path for folder in ("page_files", "recipes") for path in (report / folder).iterdir()]
    assert {str(path.relative_to(ROOT)) for path in files} <= set(wheel.namelist())


def test_type_checkers_use_the_annotations_of_both_packages(wheel):
    assert {"pipeline/py.typed", "transforms/py.typed"} <= set(wheel.namelist())


def test_metadata_has_the_version_the_description_and_the_python_versions(wheel):
    name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = message_from_string(wheel.read(name).decode())
    assert (metadata["Name"], metadata["Version"]) == ("chatmill", __version__)
    assert metadata["Summary"] and metadata["Keywords"]
    assert metadata.get_payload().startswith("# Chatmill")
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    assert {"dataflow", "docs", "test"} <= set(metadata.get_all("Provides-Extra"))
