"""Every picture of the documentation, made by one command: `python -m lab.harness.pictures`."""
