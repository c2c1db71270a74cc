"""How usage becomes a count: one module a strategy, all reading a `Tally`."""
