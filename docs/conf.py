"""The documentation site: `sphinx-build -W -c docs . out/site` builds it, without a network.

The source folder is the root of the repository, so links between the guides, README.md and deploy/README.md work on
the site as they do in the sources. The tool is Sphinx, because mkdocs 1.x is no longer maintained.
"""

from __future__ import annotations

import dataclasses
import inspect
import shutil
import sys
from pathlib import Path
from typing import Any, get_type_hints

_ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT))

import apache_beam as beam  # noqa: E402

import transforms  # noqa: E402
from pipeline import __version__  # noqa: E402
from pipeline.cli.options import command_line_fields, help_text, metavar  # noqa: E402
from pipeline.config import option_name  # noqa: E402

project = "Chatmill"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "README"
include_patterns = [
    "*.md",
    "docs/*.md",
    "docs/guide/*.md",
    "deploy/README.md",
    "examples/README.md",
    "benchmarks/*.md",
]
html_theme = "furo"
html_title = f"Chatmill {version}"
html_copy_source = False
smartquotes = False  # it makes one dash of the two of an option
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


def _option_tables() -> str:
    """MyST that lists the options of a build with their help and default, a table for each group."""
    groups: dict[str, list[str]] = {}
    for field in command_line_fields():
        groups.setdefault(field.metadata["group"], []).append(_option_row(field))
    head = "| option | | default |\n| --- | --- | --- |"
    return "\n\n".join("\n".join([f"### {title}\n\n{head}", *rows]) for title, rows in groups.items())


def _option_row(field: dataclasses.Field[Any]) -> str:
    text, _, default = help_text(field).rpartition(" (")
    default = default.removesuffix(")").removeprefix("default: ")
    name = f"`--{option_name(field.name)} {metavar(field)}`"
    text = text.replace("\\", r"\\").replace("<", "&lt;").replace("*", r"\*")
    cells = (name, text, default)
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


_names = list(transforms.__all__)
_steps = [name for name in _names if _is(name, beam.PTransform)]
_functions = [name for name in _names if not _is(name, object)]
_errors = [name for name in _names if _is(name, Exception)]
# For docs/api.md and docs/options.md, so that a new public name or option is documented without an edit there.
myst_substitutions = {
    "options": _option_tables(),
    "steps": _sections(_steps, members=False),
    "functions": _sections(_functions),
    "errors": _sections(_errors),
    "values": _sections([name for name in _names if name not in {*_steps, *_functions, *_errors}]),
}
# The types of fields are shown without how their values are checked.
for _class in transforms.RenderConfig.__mro__[:-1]:
    _class.__annotations__ = {name: get_type_hints(_class)[name] for name in inspect.get_annotations(_class)}


# Files outside docs/ are pages too. The navigation is not in the pages, where a code host would show it as text.
_NAVIGATION = {
    root_doc: {
        "Guide": [
            "docs/guide/first_dataset",
            "docs/guide/trl",
            "docs/guide/tools_and_reasoning",
            "docs/guide/many_sources",
            "docs/guide/appending",
            "docs/guide/cluster",
            "docs/guide/trainers",
        ],
        "Reference": [
            "docs/options",
            "docs/records",
            "docs/traces",
            "docs/sources",
            "docs/corpus",
            "docs/masks",
            "docs/checks",
            "docs/output",
            "docs/inspect",
            "docs/verify",
            "docs/growing",
            "docs/stores",
            "docs/metrics",
            "docs/api",
            "docs/limits",
        ],
        "Internals": [
            "docs/engines",
            "docs/reliability",
            "benchmarks/README",
            "benchmarks/RESULTS",
            "CONTRIBUTING",
            "CHANGELOG",
        ],
    },
    "docs/guide/first_dataset": {"": ["examples/README"]},
    "docs/guide/cluster": {"": ["deploy/README"]},
}


def _add_navigation(app: Any, page: str, source: list[str]) -> None:
    for caption, pages in _NAVIGATION.get(page, {}).items():
        listed = "\n".join(f"/{name}" for name in pages)
        title = f":caption: {caption}\n" if caption else ""
        source[0] += f"\n```{{toctree}}\n:hidden:\n{title}\n{listed}\n```\n"


def _copy_entry_page(app: Any, error: Exception | None) -> None:
    """Give the site an index.html, which web servers look for."""
    if error is None and app.builder.name == "html":
        shutil.copy(Path(app.outdir, "README.html"), Path(app.outdir, "index.html"))


def setup(app: Any) -> None:
    app.connect("source-read", _add_navigation)
    app.connect("build-finished", _copy_entry_page)
