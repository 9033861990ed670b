"""The import of Beam, which takes most of the time until a small job starts."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from typing import Any

from pipeline.cli.console import show_phase
from pipeline.cli.options import Options
from pipeline.runners import runner_of

# What Beam imports if it is installed, which takes a second, and what a job on this machine does not need of Beam: the
# clients of clouds (all stores are reached through fsspec) and of databases, and data frames.
_NOT_NEEDED = frozenset({
    "apache_beam.io.gcp.bigquery", "apitools", "boto3", "bson", "google.api_core", "google.auth", "google.cloud",
    "pandas",
})  # fmt: skip


def import_beam(options: Options) -> None:
    """Import Beam; for a job on this machine without what only runners on clusters and pipelines of others need.

    Beam does then as it does if it was installed without its extras. It has no effect if Beam is imported already.

    Args:
        options: of the build, with a formatter if one of its sources has one: it may use anything of Beam.
    """
    if "apache_beam" not in sys.modules:
        show_phase("importing Beam")
    logging.getLogger("apache_beam.io.mongodbio").setLevel(logging.ERROR)  # it warns if it does not find bson
    needs_all = not runner_of(options.runner).has_our_workers or options.formatter is not None
    with _hidden(frozenset() if needs_all else _NOT_NEEDED):
        import apache_beam  # noqa: F401
        import pyarrow

        pyarrow.array([])  # it looks for pandas when it makes its first array, and keeps the answer


@contextmanager
def _hidden(packages: frozenset[str]) -> Iterator[None]:
    """Inside, packages are not found, as if they were not installed, unless they are imported already."""

    class Hiding(MetaPathFinder):
        def find_spec(self, name: str, *_: Any) -> None:
            if name in packages:
                raise ModuleNotFoundError(f"{name} is hidden", name=name)

    finder = Hiding()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
