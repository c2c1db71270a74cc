"""Many services of one server, each asked about once in an interval, over a few connections."""
