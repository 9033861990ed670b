"""The documentation site: `sphinx-build -W -c docs . out/site` builds it, without a network.

The source folder is the root of the repository, so links between the guides, README.md and deploy/*/README.md work on
the site as they do in the sources. The tool is Sphinx, because mkdocs 1.x is no longer maintained.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT))

import apache_beam as beam  # noqa: E402

import transforms  # noqa: E402
from pipeline import __version__  # noqa: E402

project = "Chatmill"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "deploy/*/README.md", "examples/README.md", "benchmarks/*.md"]
html_theme = "furo"
html_title = f"Chatmill {version}"
html_copy_source = False
default_role = "code"
myst_heading_anchors = 3
myst_enable_extensions = ["substitution"]

autoclass_content = "both"
autodoc_inherit_docstrings = False
autodoc_typehints = "description"
autodoc_default_options = {"members": True, "member-order": "bysource"}
napoleon_google_docstring = True
napoleon_numpy_docstring = False


def _sections(names: list[str], members: bool = True) -> str:
    """MyST that documents public names of `transforms`, and perhaps their members, from their docstrings."""
    directives = []
    for name in names:
        directive = "autoexception" if _is(name, Exception) else "autoclass" if _is(name, object) else "autofunction"
        option = "" if members else "   :no-members:\n"
        directives.append(f"### {name}\n\n```{{eval-rst}}\n.. {directive}:: transforms.{name}\n{option}```\n")
    return "\n".join(directives)


def _is(name: str, kind: type) -> bool:
    value = getattr(transforms, name)
    return isinstance(value, type) and issubclass(value, kind)


_names = list(transforms.__all__)
_steps = [name for name in _names if _is(name, beam.PTransform)]
_functions = [name for name in _names if not _is(name, object)]
_errors = [name for name in _names if _is(name, Exception)]
# For docs/api.md, so that a new public name is documented without an edit there.
myst_substitutions = {
    "steps": _sections(_steps, members=False),
    "functions": _sections(_functions),
    "errors": _sections(_errors),
    "values": _sections([name for name in _names if name not in {*_steps, *_functions, *_errors}]),
}


# Files outside docs/ are pages too. The navigation is not in README.md, where a code host would show it as text.
_NAVIGATION = {
    "Guides": [
        "docs/records",
        "docs/sources",
        "docs/masks",
        "docs/output",
        "docs/growing",
        "docs/inspect",
        "docs/verify",
        "docs/metrics",
        "docs/stores",
        "docs/reliability",
        "docs/engines",
    ],
    "Python": ["docs/api"],
    "Deployment": [f"deploy/{where}/README" for where in ("dataflow", "flink", "kubernetes", "airflow")],
    "Project": ["examples/README", "benchmarks/README", "benchmarks/RESULTS", "CONTRIBUTING", "CHANGELOG"],
}


def _add_navigation(app: Any, page: str, source: list[str]) -> None:
    if page == root_doc:
        for caption, pages in _NAVIGATION.items():
            listed = "\n".join(f"/{name}" for name in pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n"


def _copy_entry_page(app: Any, error: Exception | None) -> None:
    """Give the site an index.html, which web servers look for."""
    if error is None and app.builder.name == "html":
        shutil.copy(Path(app.outdir, "README.html"), Path(app.outdir, "index.html"))


def setup(app: Any) -> None:
    app.connect("source-read", _add_navigation)
    app.connect("build-finished", _copy_entry_page)
