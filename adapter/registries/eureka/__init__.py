"""Eureka: the whole registry, then deltas."""
