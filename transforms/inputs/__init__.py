"""Inputs: the formats of files, and the schemas of records."""
