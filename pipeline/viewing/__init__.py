"""What people see: summaries, rows, rejects, warnings and hints."""
