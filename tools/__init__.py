"""Programs that make parts of the repository: run them with `python -m tools.NAME`."""
