"""Special tokens that were typed in the contents of a record."""
