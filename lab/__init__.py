"""What people run around the adapter: a cluster on one machine, the demo, chaos and benchmarks."""
