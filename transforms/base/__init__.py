"""What everything else may use: errors, checks, the declaration of options. It imports nothing of ours."""
