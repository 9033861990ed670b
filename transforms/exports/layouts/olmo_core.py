"""OLMo-core: what its `NumpyPackedFSLDataset` reads, memory maps of token ids and of a mask, and where documents begin.

Read by olmo_core/data/numpy_dataset.py. The files have no header. A document is one example; OLMo-core packs them. The
mask is that of the token itself. A document's first token has nothing before it, so it is never trained on: otherwise
it would be predicted from the document before it.
"""

from __future__ import annotations

import gzip
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from transforms.exports import CreateFile, Export, Place, Written, no_problems
from transforms.rows.columns import default_columns

if TYPE_CHECKING:
    from transforms.catalog.consumers import RowLayout
    from transforms.reading.row_examples import RowExamples


class _Writer:
    def __init__(self, create: CreateFile, place: Place):
        part = f"part_{place.number:04d}"
        self._ids, self._mask = create(f"token_ids_{part}.npy"), create(f"labels_mask_{part}.npy")
        # Without a time, so that the same rows are the same bytes.
        bounds = create(f"token_ids_{part}.csv.gz")
        self._bounds = gzip.GzipFile(filename="", mode="wb", fileobj=bounds, mtime=0)
        self._tokens = 0

    def write(self, examples: RowExamples) -> Written:
        self._ids.write(examples.ids.astype(np.uint32).tobytes())
        mask = examples.trained.copy()
        mask[examples.offsets[:-1]] = False
        self._mask.write(mask.tobytes())
        bounds = (examples.offsets + self._tokens).tolist()
        lines = [f"{start},{stop}\n" for start, stop in pairwise(bounds)]
        self._bounds.write("".join(lines).encode())
        self._tokens = bounds[-1]
        return Written(int(np.diff(examples.offsets).max()))

    def close(self) -> None:
        self._bounds.close()  # not the file below it


def _recipe(path: str, model: str, layout: RowLayout) -> str:
    return f"""# chatmill export {path} --for olmo_core --output out/olmo_core
from glob import glob

from olmo_core.data import NumpyDatasetDType, NumpyPackedFSLDatasetConfig, TokenizerConfig

dataset = NumpyPackedFSLDatasetConfig(
    tokenizer=TokenizerConfig.from_hf("{model}"),
    paths=sorted(glob("out/olmo_core/train/token_ids_part_*.npy")),
    label_mask_paths=sorted(glob("out/olmo_core/train/labels_mask_*.npy")),
    sequence_length={layout.max_length or "LONGEST ROW"},  # longer examples are cut
    dtype=NumpyDatasetDType.uint32,
    use_array_if_local=False,  # documents begin where the .csv.gz files say
    generate_doc_lengths=True,
    work_dir="out/work",
).build()
dataset.prepare()"""


EXPORT = Export(
    title="OLMo-core",
    columns=default_columns,
    problems=no_problems,
    recipe=_recipe,
    writer=_Writer,
)
