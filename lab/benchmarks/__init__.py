"""Benchmarks: each stores its figures in `results`; `python -m lab.benchmarks` runs them again."""
