"""Compare two datasets by their examples, in any order, rows and shards."""
