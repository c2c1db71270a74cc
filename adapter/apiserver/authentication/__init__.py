"""Authentication: front-proxy headers, client certificates and bearer tokens."""
