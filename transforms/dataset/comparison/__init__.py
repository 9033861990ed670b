"""Compare two datasets, whatever order, rows and shards their examples are in."""
