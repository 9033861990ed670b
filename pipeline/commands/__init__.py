"""The commands: one module each, of the command's name, with `run(arguments) -> exit code`. pipeline.cli lists them."""
