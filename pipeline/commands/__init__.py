"""The commands: each a module of its name, with `run(arguments) -> exit code`; pipeline/cli/program.py lists them."""
