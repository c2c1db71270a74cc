"""Tests of the originals' algorithms."""
