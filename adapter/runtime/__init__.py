"""Helpers that know nothing of Kubernetes: back-off, slices of long work, single flight, bounded HTTP, faults."""
