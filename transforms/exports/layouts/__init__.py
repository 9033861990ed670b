"""One module for each layout, with its EXPORT. The name of the module is what `--for` takes."""
