"""What a dataset consists of: its layout, versions, sums and manifest."""

# Kinds of reports that are written with a dataset.
REPORTS = ("html", "none")
