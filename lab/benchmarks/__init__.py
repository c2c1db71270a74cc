"""Benchmarks: each stores its figures, and docs/performance.md is made from them."""
