"""Real service registries; tests start and stop their processes."""
