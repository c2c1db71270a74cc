"""Everything the companion writes to the API server."""
