"""Records: what is in one, and the examples that are made of it."""
