"""The steps, in this order: read, parse, render, parity, tokenize, label, pack, write. One PTransform each."""
