"""Parity: each turn as it is trained, compared with what it is at inference."""
