"""Shipped scenarios: loads and events that every autoscaler is put through, in the model of `replay`."""
