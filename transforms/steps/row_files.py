"""The files of one shard in one format."""

from __future__ import annotations

import pyarrow as pa

from transforms.model.receipts import File
from transforms.outputs import output_format
from transforms.storage.files import join
from transforms.storage.writing import NewFile


class RowFiles:
    """Writes the files of one shard in one format. The first of them counts the rows.

    Args:
        output: the folder of the dataset.
        stem: of their names, which a suffix follows; of name_of.
        split: train or validation.
        format: one of OUTPUT_FORMATS.

    Attributes:
        tokens: that were written so far.
    """

    def __init__(self, output: str, stem: str, split: str, format: str):
        self._output = output
        self._stem = join(output_format(format).folder, stem)
        self._split = split
        self._format = format
        self._files: dict[str, NewFile] = {}
        self._writer = output_format(format).writer(self._create)
        self._trained_tokens = self._rows = self.tokens = 0

    def _create(self, suffix: str) -> NewFile:
        self._files[self._stem + suffix] = file = NewFile(join(self._output, self._stem + suffix))
        return file

    def write(self, rows: pa.Table, tokens: int, trained_tokens: int) -> None:
        """Write rows, which have this number of tokens."""
        self._writer.write(rows)
        self._rows += len(rows)
        self.tokens += tokens
        self._trained_tokens += trained_tokens

    def complete(self) -> list[File]:
        """Complete the files, and return what a receipt says of them."""
        self._writer.close()
        shards: list[File] = []
        for path, file in self._files.items():
            file.complete()
            counts = not shards
            shards.append(
                File(
                    path=path,
                    format=self._format,
                    split=self._split,
                    rows=self._rows if counts else 0,
                    tokens=self.tokens if counts else 0,
                    trained_tokens=self._trained_tokens if counts else 0,
                    bytes=file.bytes,
                    sha256=file.sha256,
                )
            )
        return shards
