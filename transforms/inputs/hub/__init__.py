"""Inputs that are datasets of the Hugging Face Hub: a name, a configuration and a split become files."""
