"""A dataset: its folder, its manifest, its card, and how it is committed."""

# Kinds of reports that are written with a dataset.
REPORTS = ("html", "none")
