"""What travels between the steps: records, examples, texts, tokens and rows, and the outcomes of records."""
