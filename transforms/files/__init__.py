"""Input files: which they are, what is in them, and how they are cut into tasks."""
