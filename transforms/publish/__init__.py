"""How a dataset is committed, and what is derived from it: card, report, manifest.json, _SUCCESS."""
