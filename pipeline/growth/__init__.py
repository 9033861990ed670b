"""Appends: what is new in the inputs, as increments of a dataset."""
