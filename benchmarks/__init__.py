"""What is fast, measured side by side: `python -m benchmarks.serving`."""
