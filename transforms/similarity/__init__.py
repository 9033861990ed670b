"""Similarity of records: shingles of their words, MinHash to propose pairs, Jaccard to decide."""
