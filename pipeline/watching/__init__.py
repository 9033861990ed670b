"""Watch: files that arrive are appended to a dataset, for as long as the process runs."""
