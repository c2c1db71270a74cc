"""Histories of services: what they are read from, and how they are kept meanwhile."""
