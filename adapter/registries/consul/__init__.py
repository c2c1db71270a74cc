"""Consul: blocking queries on a service's health."""
