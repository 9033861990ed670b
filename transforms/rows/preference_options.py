"""Which options go together if the rows of a dataset are pairs, or answers with a label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transforms.base.errors import ParameterError
from transforms.rows.answers import ANSWER_COLUMNS, COLUMNS_OF, LABEL, PREFERENCE, PROMPT, UNPAIRED
from transforms.rows.packing import PAIRS

# Values with which an answer would not be one row, or its prompt would be trained on; and why they are refused.
_ONE_ROW, _OF_ANSWERS = "each answer is one row", "only answers are trained on"
_REFUSED = (
    ("parity", "expand", _ONE_ROW),
    ("truncation", "windows", _ONE_ROW),
    ("shift_labels", True, "their trainers shift labels themselves"),
    ("loss_on", "all", _OF_ANSWERS),
    ("loss_on", "assistant", _OF_ANSWERS),
)


def of_preference(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that follow from the schema: those of rows of preference data, unless others are given.

    Args:
        options: of a job, by their names.
    """
    schema = options["schema"]
    if schema not in COLUMNS_OF:
        return {}
    packing = PAIRS if schema == PREFERENCE and options["packing"] == "none" else options["packing"]
    return {"packing": packing, "write_columns": options["write_columns"] or COLUMNS_OF[schema]}


def check_preference(options: Mapping[str, Any], columns: Sequence[str] | None) -> None:
    """Check that the steps of a job agree on whether its rows are pairs, or answers with a label.

    Args:
        options: of the steps, by their names.
        columns: the columns that are written; None for the default.

    Raises:
        ParameterError: if one of them does not suit the others.
    """
    schema, packing = options.get("schema", "auto"), options.get("packing", "none")
    if packing == PAIRS and schema != PREFERENCE:
        raise ParameterError("schema", schema, f"rows of pairs need the schema {PREFERENCE}, for all sources.")
    if schema == PREFERENCE and packing == "none":
        raise ParameterError("schema", schema, f"all sources need it, and packing {PAIRS}.")
    if schema == UNPAIRED and LABEL not in (columns or ()):
        raise ParameterError("schema", schema, f"all sources need it, and the column {LABEL}.")
    if schema in COLUMNS_OF:
        if packing not in ("none", PAIRS):
            raise ParameterError("packing", packing, f"the answers of the schema {schema} are never packed.")
        for name, value, reason in _REFUSED:
            if options.get(name) == value:
                raise ParameterError(name, value, f"with records of the schema {schema}, {reason}.")
    _check_columns(schema, columns or ())


def _check_columns(schema: str, columns: Sequence[str]) -> None:
    own = COLUMNS_OF.get(schema, ())
    for name in columns:
        if name in (*ANSWER_COLUMNS, LABEL) and name not in own:
            needed = " or ".join(known for known, names in COLUMNS_OF.items() if name in names)
            raise ParameterError("write_columns", name, f"it needs the schema {needed}, for all sources.")
    if schema not in COLUMNS_OF or not columns:
        return
    of_answers = [name for name in columns if name in ANSWER_COLUMNS]
    others = [name for name in columns if name not in own]
    if of_answers and others:
        raise ParameterError("write_columns", others[0], f"it does not go with {of_answers[0]}. Leave one of them out.")
    missing = [name for name in own if name.endswith("_ids") and name not in (PROMPT, *columns)]
    if missing and (of_answers or (schema == PREFERENCE and "seq_lengths" not in columns)):
        raise ParameterError("write_columns", ",".join(columns), f"expected {' and '.join(missing)}, too.")
