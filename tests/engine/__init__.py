"""The engine as a whole, over an API server, Prometheus servers and registries whose every part can be broken alone."""
