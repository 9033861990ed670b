"""The formats of input files: how the records of a slice of a file are found. One module for each."""
