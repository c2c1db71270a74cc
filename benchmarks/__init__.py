"""Benchmarks; the main one is `python -m benchmarks.serving`."""
