"""What `chatmill verify` and `chatmill diff` do."""
