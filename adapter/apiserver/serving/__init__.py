"""The serving certificate, its renewal, and the TLS listener."""
