"""Spans: what of a rendering the model itself would write, and is trained on."""
