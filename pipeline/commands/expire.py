"""Drop old versions of a dataset, and remove the files that only they have."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Annotated

from pipeline.cli.console import CommandParser, show_owner, show_phase
from pipeline.config import read_value
from transforms.base.options import PositiveInt, Values
from transforms.base.phrases import counted

SUMMARY = "OUT --older_than DURATION", "drop old versions of a dataset, and their files"


def _seconds(text: str) -> int:
    [(number, unit)] = re.findall(r"\A([0-9]+)([smhd])\Z", text)
    return int(number) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[unit]


_Duration = Annotated[int, Values("a duration, such as 30s, 10m, 6h or 7d", read=_seconds)]


def run(arguments: Sequence[str]) -> int:
    """Expire old versions; there may be none."""
    parser = CommandParser(
        "expire", SUMMARY, __doc__, ["out/mine --older_than 7d", "gs://shards/mine --older_than 30d --keep 10"]
    )
    parser.add_argument("dataset", metavar="OUT", help="the folder or url of the dataset (required)")
    parser.add_argument(
        "--older_than",
        metavar="DURATION",
        required=True,
        type=functools.partial(read_value, "older_than", type=_Duration),
        help="drop versions that were replaced longer ago than this, such as 12h or 7d; give more than the longest "
        "training that reads one (required)",
    )
    parser.add_argument(
        "--keep",
        metavar="INT",
        type=functools.partial(read_value, "keep", type=PositiveInt),
        default=1,
        help="always keep this many of the newest versions (default: 1)",
    )
    options = parser.parse_args(arguments)
    show_phase(f"reading {options.dataset}")

    from transforms.dataset.expiry import expire
    from transforms.storage.files import full_url

    url = full_url(options.dataset)
    expired = expire(url, options.older_than, options.keep, show_owner)
    first, last = expired.oldest, expired.newest
    kept = f"version {last}" if first == last else f"versions {first} to {last}"
    dropped, removed = counted(expired.versions, "version"), counted(expired.files, "file")
    print(f"{url}: {dropped} dropped, {removed} removed; it has {kept}.")
    return 0
