"""The trainers that read a dataset: what each needs of its rows, and how it reads them.

Each statement about a trainer is checked against the trainer itself by tests/trainers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from string import Template
from typing import NamedTuple

from transforms.outputs import output_format
from transforms.rows.columns import OUTPUT_COLUMNS, PROVENANCE_COLUMNS
from transforms.rows.layout import RowLayout


class Problem(NamedTuple):
    """Why rows of a layout are not trained on as they should be.

    option: the option of the job that has to be another. text: what would happen, and what to do.
    """

    option: str
    text: str


@dataclass(frozen=True)
class Trainer:
    """What is known of a trainer.

    Attributes:
        title: its name.
        recipe_file: the code that reads a dataset, in the folder recipes, as a block of Markdown.
        columns: that it reads; of packed rows, seq_lengths, too.
        if_packed: what would happen with packed rows, and what to do; empty if it reads them.
        other_problems: finds what else is wrong with a layout for this trainer.
    """

    title: str
    recipe_file: str
    columns: tuple[str, ...]
    if_packed: str = ""
    other_problems: Callable[[RowLayout], Iterable[Problem]] = lambda layout: ()

    def columns_for(self, packed: bool) -> tuple[str, ...]:
        """Return the columns that it reads. packed: whether a row may hold several examples."""
        return (*self.columns, "seq_lengths") if packed else self.columns

    def problems(self, layout: RowLayout) -> list[Problem]:
        """Return why it would not train on rows of a layout as it should; nothing if its recipe holds."""
        problems = []
        if layout.shift_labels:
            problems.append(Problem("shift_labels", f"{self.title} shifts labels itself: they would be shifted twice."))
        if not _datasets_reads(layout):
            problems.append(
                Problem("output_format", f"{self.title} loads Parquet with datasets, which cannot read it.")
            )
        if layout.packed and self.if_packed:
            problems.append(Problem("packing", self.if_packed))
        problems += self.other_problems(layout)
        missing = [name for name in self.columns_for(layout.packed) if name not in layout.columns]
        if missing and not problems:
            problems.append(Problem("write_columns", f"{self.title} needs {', '.join(missing)}, too."))
        return problems

    def recipe(self, path: str, model: str, layout: RowLayout) -> str:
        """Return the code with which it reads a dataset, as a block of Markdown. layout: one without problems."""
        text = (files("transforms.report") / "recipes" / self.recipe_file).read_text(encoding="utf-8").rstrip("\n")
        packing = "packing=True, " if layout.packed else ""
        return Template(text).substitute(path=path, model=model, max_length=layout.max_length, packing=packing)


def layout_warnings(layout: RowLayout) -> list[Problem]:
    """Find what is a trap in a layout for every trainer, if it is not known which one will read it."""
    problems = []
    if layout.packed and not layout.has_segments:
        text = "without seq_lengths, nothing separates the examples in a packed row, so each attends to others."
        problems.append(Problem("write_columns", text))
    if layout.packed and "attention_mask" in layout.columns:
        text = "with an attention_mask, transformers reads a packed row as one example, so each attends to others."
        problems.append(Problem("write_columns", text))
    if layout.shift_labels:
        text = "TRL, Axolotl and transformers' Trainer shift labels themselves: they would be shifted twice."
        problems.append(Problem("shift_labels", text))
    if not _datasets_reads(layout):
        problems.append(Problem("output_format", "datasets.load_dataset cannot read it."))
    return problems


def _datasets_reads(layout: RowLayout) -> bool:
    return any(output_format(name).datasets_files for name in layout.formats)


def _trl_problems(layout: RowLayout) -> Iterator[Problem]:
    if layout.packed and "seq_lengths" not in layout.columns:
        yield Problem("write_columns", "without seq_lengths, TRL lets each example of a packed row attend to others.")


def _trainer_problems(layout: RowLayout) -> Iterator[Problem]:
    if "position_ids" in layout.columns:
        yield Problem("write_columns", "DataCollatorForSeq2Seq does not pad position_ids: it fails for most batches.")


def _axolotl_problems(layout: RowLayout) -> Iterator[Problem]:
    for name in layout.columns:
        if name not in TRAINERS["axolotl"].columns_for(layout.packed):
            option = "provenance" if name in PROVENANCE_COLUMNS else "keep_columns"
            option = "write_columns" if name in OUTPUT_COLUMNS else option
            yield Problem(option, f"Axolotl's collator fails for a column that it does not know, here {name}.")
    if layout.max_length is None:
        yield Problem("max_length", "Axolotl drops rows that are longer than its sequence_len. Give the same length.")


TRAINERS: dict[str, Trainer] = {
    # With packing=True, TRL makes one sequence of a batch, and keeps examples apart by seq_lengths. The datasets stay
    # as they are, since they are not prepared.
    "trl": Trainer("TRL", "trl.md", ("input_ids", "labels"), other_problems=_trl_problems),
    "axolotl": Trainer(
        "Axolotl",
        "axolotl.md",
        ("input_ids", "attention_mask", "labels"),
        "Axolotl overwrites the position_ids of packed rows, so each example attends to others. Do not pack: its "
        "sample_packing packs rows while they are loaded.",
        _axolotl_problems,
    ),
    "trainer": Trainer(
        "transformers' Trainer",
        "trainer.md",
        ("input_ids", "labels"),
        "transformers' collators read a packed row as one example, so each attends to others. Do not pack: "
        "DataCollatorWithFlattening packs rows while they are loaded.",
        _trainer_problems,
    ),
    # One path with the split alone: SkyRL mixes several paths in equal shares, and data/ has all splits and versions.
    "skyrl": Trainer(
        "SkyRL",
        "skyrl.md",
        ("input_ids", "loss_mask"),
        "SkyRL reads each row as one example, so each would attend to others. Do not pack.",
    ),
}
