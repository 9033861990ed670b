"""What keeps a dataset small: compaction and expiry."""
