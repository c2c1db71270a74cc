"""Who sends a request: front-proxy headers, client certificates and tokens."""
