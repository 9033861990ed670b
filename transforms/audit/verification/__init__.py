"""Verify: read a whole dataset, and find each fault in it."""
