"""A job: how it is prepared, planned, launched and run."""
