"""The command line: its options, recipes, sources, and how it prints. The commands are in pipeline/commands."""
