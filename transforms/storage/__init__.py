"""Files at any url that fsspec opens."""
