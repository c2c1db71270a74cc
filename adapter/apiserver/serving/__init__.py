"""Serving certificate and its renewal, TLS listener, connections."""
