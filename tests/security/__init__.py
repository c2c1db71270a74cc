"""Attacks as regression tests: one module per defence."""
