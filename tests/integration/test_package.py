"""What pip installs."""

from __future__ import annotations

import zipfile

from support.places import ROOT
from support.programs import build_wheel


def test_every_module_is_in_the_distribution(tmp_path):
    """Tests run from the sources, and would not miss a package that setup.py leaves out."""
    with zipfile.ZipFile(build_wheel(tmp_path)) as wheel:
        packed = set(wheel.namelist())
    modules = {
        str(path.relative_to(ROOT)) for name in ("pipeline", "transforms") for path in (ROOT / name).rglob("*.py")
    }
    assert modules <= packed
