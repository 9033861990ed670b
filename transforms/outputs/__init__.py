"""Outputs: a module for each format of shards."""
