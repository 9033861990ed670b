"""What keeps a dataset small: expiry."""
