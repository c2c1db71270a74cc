"""Where it is known which pods serve: one module per registry, and `roster`, the pure rules that all of them share."""
