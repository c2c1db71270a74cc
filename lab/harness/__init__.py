"""Starts real servers for the tests, the demo and the benchmarks."""
