"""What pip installs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile

from conftest import ROOT


def test_every_module_is_in_the_distribution(tmp_path):
    """Tests run from the sources, and would not miss a package that setup.py leaves out."""
    sources = tmp_path / "sources"
    for name in ("pipeline", "transforms"):
        shutil.copytree(ROOT / name, sources / name)
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, sources)
    how = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", f"--wheel-dir={tmp_path}"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *how, "."], cwd=sources, check=True, timeout=120)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        packed = set(wheel.namelist())
    modules = {
        str(path.relative_to(ROOT)) for name in ("pipeline", "transforms") for path in (ROOT / name).rglob("*.py")
    }
    assert modules <= packed
