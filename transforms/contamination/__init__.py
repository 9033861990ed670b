"""Contamination: which conversations share a run of words with a record of an evaluation set."""
