"""TSV with a header: as CSV, with tabs between the cells."""

from __future__ import annotations

from transforms.files.formats.csv import delimited

FORMAT = delimited(".tsv", "\t")
