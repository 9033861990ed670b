"""Inputs that are datasets, on the Hugging Face Hub or in a folder: a configuration and a split become files."""
