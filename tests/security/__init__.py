"""Attacks as regression tests: one module for each thing that has to hold."""
