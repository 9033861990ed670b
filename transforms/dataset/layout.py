"""Where the parts of a dataset are, and which folders may become one."""

from __future__ import annotations

from transforms.errors import ParameterError
from transforms.model.receipts import INCREMENTS, work_of
from transforms.outputs import output_folders
from transforms.storage.files import exists, holds_anything, join, kind_of

# Of the rows of a dataset.
SPLITS = ("train", "validation")
# What a dataset consists of.
PARTS = (
    "_SUCCESS", "manifest.json", "report.html", "README.md", *output_folders(), "rejects", "ledger", "_delta_log",
    "_chatmill",
)  # fmt: skip


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
        self.delta = join(output, "_delta_log")
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

    def parts(self) -> list[str]:
        """The urls of all that a dataset consists of, except the claims."""
        return [*(join(self.output, part) for part in PARTS if part != "_chatmill"), *self.work_parts()]


def check_free(folder: Folder, overwrite: bool = False) -> None:
    """Check that a folder is new or empty, or holds a dataset, finished or not.

    Args:
        folder: where a dataset is to be written.
        overwrite: whether the dataset in it is to be replaced.

    Raises:
        ParameterError: if it is a file, or holds something else.
    """
    kind = kind_of(folder.output)
    if kind == "file":
        raise ParameterError("output", folder.output, "there is a file of that name. Give a folder.")
    if kind == "directory" and not exists(folder.work) and holds_anything(folder.output):
        advice = "overwrite replaces only what Chatmill wrote; " if overwrite else ""
        problem = f"the folder holds other files. {advice}Give one that is empty or new."
        raise ParameterError("output", folder.output, problem)
