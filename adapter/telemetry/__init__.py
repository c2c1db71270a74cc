"""The adapter's own metrics, on a separate port, and its logs. Imports no other room."""
