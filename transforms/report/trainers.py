"""The trainers that read a dataset: what each needs of its rows, and how it reads them.

Each statement about a trainer is checked against the trainer itself by tests/trainers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from transforms.outputs import output_format
from transforms.rows.columns import OUTPUT_COLUMNS, PROVENANCE_COLUMNS, default_columns
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
        columns: the columns that it reads, by whether rows are packed.
        problems: finds what is wrong with a layout, beyond what is wrong for each trainer.
        recipe: makes the code that reads a dataset: of its path, of the name of a model, and of its layout.
        language: of the recipe.
    """

    title: str
    columns: Callable[[bool], tuple[str, ...]]
    problems: Callable[[RowLayout], Iterator[Problem]]
    recipe: Callable[[str, str, RowLayout], str]
    language: str = "python"


def problems(trainer: str, layout: RowLayout) -> list[Problem]:
    """Find why a trainer would not train on rows of a layout as it should.

    Args:
        trainer: one of TRAINERS.
        layout: of the rows.

    Returns:
        The problems; none if the recipe of the trainer holds.
    """
    known = _TRAINERS[trainer]
    found = []
    if layout.shift_labels:
        found.append(Problem("shift_labels", f"{known.title} shifts labels itself: they would be shifted twice."))
    if not _datasets_reads(layout):
        found.append(Problem("output_format", f"{known.title} loads Parquet with datasets, which cannot read it."))
    found += known.problems(layout)
    missing = [name for name in known.columns(layout.packed) if name not in layout.columns]
    if missing and not found:
        found.append(Problem("write_columns", f"{known.title} needs {', '.join(missing)}, too."))
    return found


def layout_warnings(layout: RowLayout) -> list[Problem]:
    """Find what is a trap in a layout for every trainer, if it is not known which one will read it."""
    found = []
    if layout.packed and not layout.has_segments:
        text = "without seq_lengths, nothing separates the examples in a packed row, so each attends to others."
        found.append(Problem("write_columns", text))
    if layout.packed and "attention_mask" in layout.columns:
        text = "with an attention_mask, transformers reads a packed row as one example, so each attends to others."
        found.append(Problem("write_columns", text))
    if layout.shift_labels:
        text = "TRL, Axolotl and transformers' Trainer shift labels themselves: they would be shifted twice."
        found.append(Problem("shift_labels", text))
    if not _datasets_reads(layout):
        found.append(Problem("output_format", "datasets.load_dataset cannot read it."))
    return found


def _datasets_reads(layout: RowLayout) -> bool:
    return any(output_format(name).datasets_files for name in layout.formats)


def columns_for(trainer: str, packed: bool) -> tuple[str, ...]:
    """Return the columns that a trainer reads.

    Args:
        trainer: one of TRAINERS.
        packed: whether a row may hold several examples.
    """
    return _TRAINERS[trainer].columns(packed)


def title_of(trainer: str) -> str:
    """Return the name of a trainer. trainer: one of TRAINERS."""
    return _TRAINERS[trainer].title


def recipe(trainer: str, path: str, model: str, layout: RowLayout) -> str:
    """Return the code with which a trainer reads a dataset, as a block of Markdown.

    Args:
        trainer: one of TRAINERS, which has no problem with the layout.
        path: of the dataset.
        model: the name of a model.
        layout: of the rows.
    """
    known = _TRAINERS[trainer]
    return f"```{known.language}\n{known.recipe(path, model, layout)}\n```"


def _of_trl(layout: RowLayout) -> Iterator[Problem]:
    if layout.packed and "seq_lengths" not in layout.columns:
        yield Problem("write_columns", "without seq_lengths, TRL lets each example of a packed row attend to others.")


def _of_trainer(layout: RowLayout) -> Iterator[Problem]:
    if layout.packed:
        yield Problem(
            "packing",
            "transformers' collators read a packed row as one example, so each attends to others. Do not pack: "
            "DataCollatorWithFlattening packs rows while they are loaded.",
        )
    if "position_ids" in layout.columns:
        yield Problem("write_columns", "DataCollatorForSeq2Seq does not pad position_ids: it fails for most batches.")


def _of_axolotl(layout: RowLayout) -> Iterator[Problem]:
    if layout.packed:
        yield Problem(
            "packing",
            "Axolotl overwrites the position_ids of packed rows, so each example attends to others. Do not pack: "
            "its sample_packing packs rows while they are loaded.",
        )
    for name in layout.columns:
        if name not in _axolotl_columns(False) and not (layout.packed and name == "seq_lengths"):
            option = "provenance" if name in PROVENANCE_COLUMNS else "keep_columns"
            option = "write_columns" if name in OUTPUT_COLUMNS else option
            yield Problem(option, f"Axolotl's collator fails for a column that it does not know, here {name}.")
    if layout.max_length is None:
        yield Problem("max_length", "Axolotl drops rows that are longer than its sequence_len. Give the same length.")


def _of_skyrl(layout: RowLayout) -> Iterator[Problem]:
    if layout.packed:
        yield Problem("packing", "SkyRL reads each row as one example, so each would attend to others. Do not pack.")


def _skyrl_columns(packed: bool) -> tuple[str, ...]:
    return ("input_ids", "loss_mask")


def _axolotl_columns(packed: bool) -> tuple[str, ...]:
    return ("input_ids", "attention_mask", "labels")


def _trl_recipe(path: str, model: str, layout: RowLayout) -> str:
    # With packing=True, TRL makes one sequence of a batch, and keeps examples apart by seq_lengths. The datasets stay
    # as they are, since they are not prepared.
    config = "packing=True, " if layout.packed else ""
    return f"""import datasets
from trl import SFTConfig, SFTTrainer

dataset = datasets.load_dataset("{path}")
trainer = SFTTrainer(
    model="{model}",
    train_dataset=dataset["train"],
    args=SFTConfig({config}dataset_kwargs={{"skip_prepare_dataset": True}}),
)"""


def _trainer_recipe(path: str, model: str, layout: RowLayout) -> str:
    return f"""import datasets
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer

dataset = datasets.load_dataset("{path}")
trainer = Trainer(
    model=AutoModelForCausalLM.from_pretrained("{model}"),
    train_dataset=dataset["train"],
    data_collator=DataCollatorForSeq2Seq(AutoTokenizer.from_pretrained("{model}")),
)"""


def _axolotl_recipe(path: str, model: str, layout: RowLayout) -> str:
    return f"""base_model: {model}
sequence_len: {layout.max_length}    # Axolotl drops longer rows
datasets:
  - path: {path}      # without a type: the rows are tokenized"""


def _skyrl_recipe(path: str, model: str, layout: RowLayout) -> str:
    # One path with the split alone: SkyRL mixes several paths in equal shares, and data/ has all splits and versions.
    return f"""python -c 'import datasets; datasets.load_dataset("{path}", split="train").save_to_disk("out/skyrl")'
python -m skyrl.train.main_sft model.path={model} "pretokenized_dataset_paths=['out/skyrl']\""""


_TRAINERS: dict[str, Trainer] = {
    "trl": Trainer("TRL", default_columns, _of_trl, _trl_recipe),
    "axolotl": Trainer("Axolotl", _axolotl_columns, _of_axolotl, _axolotl_recipe, language="yaml"),
    "trainer": Trainer("transformers' Trainer", default_columns, _of_trainer, _trainer_recipe),
    "skyrl": Trainer("SkyRL", _skyrl_columns, _of_skyrl, _skyrl_recipe, language="bash"),
}

TRAINERS: tuple[str, ...] = tuple(_TRAINERS)
