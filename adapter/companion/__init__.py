"""The companion: the only one that writes. `plan` (pure) says what to do, `writer` does it."""
