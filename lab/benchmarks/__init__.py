"""Benchmarks; the main one is `python -m lab.benchmarks.serving`."""
