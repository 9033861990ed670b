"""What a dataset consists of: its layout, log, snapshots, sums and manifest."""

# Kinds of reports that are written with a dataset.
REPORTS = ("html", "none")
