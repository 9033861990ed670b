"""What people see: text of rows, rejects, summary, hints, and how they are found."""
