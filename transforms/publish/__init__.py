"""How a dataset is committed, and what is derived from its newest version: manifest.json, card, report."""
