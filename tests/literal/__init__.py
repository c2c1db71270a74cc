"""A second, literal implementation of docs/decision.md: slow and simple, compared with the adapter."""
