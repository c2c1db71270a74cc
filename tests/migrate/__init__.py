"""Tests of migrating other autoscalers' objects."""
