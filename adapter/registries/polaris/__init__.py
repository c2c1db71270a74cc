"""Polaris: services by its HTTP discovery."""
