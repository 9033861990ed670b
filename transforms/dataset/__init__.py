"""A dataset: its folder, its manifest, its card, and how it is committed."""
