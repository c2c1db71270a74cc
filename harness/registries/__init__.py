"""Real service registries, each a process that a test starts and stops."""
