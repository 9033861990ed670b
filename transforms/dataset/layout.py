"""Where the parts of a dataset are, and which folders may become one."""

from __future__ import annotations

import re

from transforms.errors import ParameterError, UserError
from transforms.model.receipts import INCREMENTS, work_of
from transforms.outputs import output_folders
from transforms.storage.files import exists, join, kind_of
from transforms.storage.walking import holds_anything, link_below

# Of the rows of a dataset.
SPLITS = ("train", "validation")
# The folders of the files that a job publishes. An increment has a folder of its own in each.
PUBLISHED = (*output_folders(), "rejects", "ledger")
# What a dataset consists of.
PARTS = ("_SUCCESS", "manifest.json", "report.html", "README.md", *PUBLISHED, "_chatmill")
_INCREMENT = "[0-9a-f]{16}"
_NUMBERED = r"-\d{5,}-of-\d{5,}(\.\w+)+"
_PUBLISHED = re.compile(
    rf"(({'|'.join(output_folders())})/({_INCREMENT}/)?({'|'.join(SPLITS)})"
    rf"|rejects/({_INCREMENT}/)?rejects|ledger/({_INCREMENT}/)?ledger){_NUMBERED}"
)


class Folder:
    """The urls of the parts of a dataset, or of one increment of it that is being built.

    What is below `work` but the tokenizer, the formatters and the claims is the increment's own.

    Args:
        output: the url of its folder.
        increment: the id of the increment; empty for a dataset that is built at once.
    """

    def __init__(self, output: str, increment: str = ""):
        self.output = output
        self.increment = increment
        of_dataset = join(output, "_chatmill")
        of_increment = [increment] if increment else []
        self.work = work_of(of_dataset, increment)
        self.job = join(self.work, "job.json")
        self.plan = join(self.work, "plan.jsonl")
        self.tokenizer = join(of_dataset, "tokenizer")
        self.formatter = join(of_dataset, "formatter.py")
        self.formatters = join(of_dataset, "formatters")
        self.receipts = join(self.work, "receipts")
        self.shards = join(self.work, "shards")
        self.failures = join(self.work, "failures")
        self.claims = join(of_dataset, "claims")
        self.increments = join(of_dataset, INCREMENTS)
        self.log = join(of_dataset, "log")
        self.manifest = join(output, "manifest.json")
        self.report = join(output, "report.html")
        self.card = join(output, "README.md")
        self.rejects = join(output, "rejects", *of_increment)
        self.ledger = join(output, "ledger", *of_increment)
        self.success = join(output, "_SUCCESS")

    def work_parts(self) -> list[str]:
        """The urls of what is in `work`, except the claims: a build removes the others when it holds the folder."""
        return [
            self.receipts, self.shards, self.failures, self.job, self.plan, self.tokenizer, self.formatter,
            self.formatters, self.increments, self.log,
        ]  # fmt: skip


def is_increment(id: str) -> bool:
    """Return whether a text is the id of an increment: 16 hexadecimal digits."""
    return re.fullmatch(_INCREMENT, id) is not None


def is_published(path: str) -> bool:
    """Return whether a path, relative to the folder of a dataset, is that of a file that a job publishes."""
    return _PUBLISHED.fullmatch(path) is not None


def check_no_links(folder: Folder) -> None:
    """Check that nothing is written or removed through a link: no folder of a dataset may be one.

    Args:
        folder: of the dataset. It may itself be a link.

    Raises:
        UserError: if one is.
    """
    if link := next(filter(None, (link_below(join(folder.output, part)) for part in PARTS)), None):
        raise UserError(
            f"{link}: it is a link to a folder or to nothing; expected a folder of the dataset, in which files are "
            "written and removed. Put the folder itself there."
        )


def check_free(folder: Folder, overwrite: bool = False) -> None:
    """Check that a folder is new or empty, or holds a dataset, finished or not.

    Args:
        folder: where a dataset is to be written.
        overwrite: whether the dataset in it is to be replaced.

    Raises:
        ParameterError: if it is a file, or holds something else.
        UserError: if a folder of the dataset is a link.
    """
    check_no_links(folder)
    kind = kind_of(folder.output)
    if kind == "file":
        raise ParameterError("output", folder.output, "there is a file of that name. Give a folder.")
    if kind == "directory" and not exists(folder.work) and holds_anything(folder.output):
        advice = "overwrite replaces only what Chatmill wrote; " if overwrite else ""
        problem = f"the folder holds other files. {advice}Give one that is empty or new."
        raise ParameterError("output", folder.output, problem)
