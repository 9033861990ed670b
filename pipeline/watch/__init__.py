"""Watch: a dataset grows by the files that arrive, for as long as the process runs."""
