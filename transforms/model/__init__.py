"""What travels between the steps: records, examples, texts, tokens, rows, and the outcome of each record."""
