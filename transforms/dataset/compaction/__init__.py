"""Compaction: the small shards of a dataset that grows are joined to larger ones, without tokenizing anything again."""
