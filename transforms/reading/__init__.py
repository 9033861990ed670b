"""How a dataset is read: rows, examples, excerpts."""
