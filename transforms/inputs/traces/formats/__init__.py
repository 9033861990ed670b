"""The formats of traces: one module each, whose name is the name of the format."""
