"""Every picture of the documentation, made by one command: `python -m harness.pictures`."""
