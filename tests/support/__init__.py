"""Helpers that several test modules use. No test module imports another."""
