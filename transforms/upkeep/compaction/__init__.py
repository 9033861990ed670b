"""Compaction: the small shards of a dataset are joined to larger ones, without tokenizing anything again."""
