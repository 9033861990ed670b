"""The names that a user chooses from. Kept apart, since the command line must not wait for what the steps import."""

TRUNCATIONS = ("keep_start", "keep_end", "drop")
PACKINGS = ("none", "bfd", "bfd_split", "ffd", "wrapped")
