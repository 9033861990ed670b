"""Where the parts of a dataset are, and which folders may become one."""

from __future__ import annotations

from transforms.errors import ParameterError
from transforms.outputs import output_folders
from transforms.storage.files import exists, holds_anything, join, kind_of

# What a dataset consists of.
PARTS = ("_SUCCESS", "manifest.json", "README.md", *output_folders(), "rejects", "_chatmill")


class Folder:
    """The urls of the parts of a dataset.

    Args:
        output: the url of its folder.
    """

    def __init__(self, output: str):
        self.output = output
        self.work = join(output, "_chatmill")
        self.job = join(self.work, "job.json")
        self.plan = join(self.work, "plan.jsonl")
        self.tokenizer = join(self.work, "tokenizer")
        self.formatter = join(self.work, "formatter.py")
        self.formatters = join(self.work, "formatters")
        self.receipts = join(self.work, "receipts")
        self.shards = join(self.work, "shards")
        self.failures = join(self.work, "failures")
        self.claims = join(self.work, "claims")
        self.manifest = join(output, "manifest.json")
        self.card = join(output, "README.md")
        self.success = join(output, "_SUCCESS")

    def work_parts(self) -> list[str]:
        """The urls of what is in `work`, except the claims: a build removes the others when it holds the folder."""
        return [
            self.receipts, self.shards, self.failures, self.job, self.plan, self.tokenizer, self.formatter,
            self.formatters,
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
