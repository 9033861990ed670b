"""Consumers: the trainers that read a dataset, what each needs of its rows, and how it reads them.

Each statement about a trainer is checked against the trainer itself by tests/trainers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from transforms.outputs import output_format
from transforms.rows.columns import OUTPUT_COLUMNS, PROVENANCE_COLUMNS, default_columns
from transforms.rows.parts import KINDS


@dataclass(frozen=True)
class RowLayout:
    """How the rows of a dataset are laid out, as far as a trainer has to know it.

    Attributes:
        columns: all columns, in order.
        formats: of OUTPUT_FORMATS.
        packing: one of PACKINGS.
        max_length: tokens in a row at most; None for any number.
        shift_labels: whether labels are shifted.
    """

    columns: tuple[str, ...]
    formats: tuple[str, ...]
    packing: str = "none"
    max_length: int | None = None
    shift_labels: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> RowLayout:
        """Return the layout that the options of a job give. options: by the name that job.json has for each."""
        packing = options.get("packing", "none")
        columns = tuple(options.get("write_columns") or default_columns(packing != "none"))
        columns += PROVENANCE_COLUMNS if options.get("provenance") else ()
        return cls(
            columns=columns + tuple(options.get("keep_columns") or ()),
            formats=tuple(options.get("output_format") or ("parquet",)),
            packing=packing,
            max_length=options.get("max_length"),
            shift_labels=options.get("shift_labels", False),
        )

    @property
    def packed(self) -> bool:
        """Whether a row may hold several examples."""
        return self.packing != "none"

    @property
    def has_ids(self) -> bool:
        """Whether the rows have all their tokens."""
        return "input_ids" in self.columns

    @property
    def has_segments(self) -> bool:
        """Whether the columns say where the examples of a row begin."""
        return not self.packed or bool({"seq_lengths", "position_ids"} & {*self.columns})

    def described(self) -> dict[str, Any]:
        """Return what the manifest and the shards say of the layout, as JSON."""
        return {
            "columns": list(self.columns),
            "packing": self.packing,
            "max_length": self.max_length,
            "shift_labels": self.shift_labels,
            **({"part_kinds": list(KINDS)} if "part_kinds" in self.columns else {}),
        }


class Problem(NamedTuple):
    """Why rows of a layout are not trained on as they should be.

    option: the option of the job that has to be another. text: what would happen, and what to do.
    """

    option: str
    text: str


@dataclass(frozen=True)
class Consumer:
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


def about_rows(options: Mapping[str, Any], tokenizer: str) -> dict[str, Any]:
    """Return what each shard says of the dataset: the layout of its rows, and their tokenizer.

    Args:
        options: of the job.
        tokenizer: sha256 of the files of the tokenizer.
    """
    return RowLayout.of(options).described() | {"tokenizer": tokenizer}


def problems(consumer: str, layout: RowLayout) -> list[Problem]:
    """Find why a trainer would not train on rows of a layout as it should.

    Args:
        consumer: one of CONSUMERS.
        layout: of the rows.

    Returns:
        The problems; none if the recipe of the consumer holds.
    """
    known = _CONSUMERS[consumer]
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


def warnings(layout: RowLayout) -> list[Problem]:
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


def columns_for(consumer: str, packed: bool) -> tuple[str, ...]:
    """Return the columns that a trainer reads.

    Args:
        consumer: one of CONSUMERS.
        packed: whether a row may hold several examples.
    """
    return _CONSUMERS[consumer].columns(packed)


def title_of(consumer: str) -> str:
    """Return the name of a trainer. consumer: one of CONSUMERS."""
    return _CONSUMERS[consumer].title


def recipe(consumer: str, path: str, model: str, layout: RowLayout) -> str:
    """Return the code with which a trainer reads a dataset, as a block of Markdown.

    Args:
        consumer: one of CONSUMERS, which has no problem with the layout.
        path: of the dataset.
        model: the name of a model.
        layout: of the rows.
    """
    known = _CONSUMERS[consumer]
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


_CONSUMERS: dict[str, Consumer] = {
    "trl": Consumer("TRL", default_columns, _of_trl, _trl_recipe),
    "axolotl": Consumer("Axolotl", _axolotl_columns, _of_axolotl, _axolotl_recipe, language="yaml"),
    "trainer": Consumer("transformers' Trainer", default_columns, _of_trainer, _trainer_recipe),
    "skyrl": Consumer("SkyRL", _skyrl_columns, _of_skyrl, _skyrl_recipe, language="bash"),
}

CONSUMERS: tuple[str, ...] = tuple(_CONSUMERS)
