"""What is particular to one runner."""
