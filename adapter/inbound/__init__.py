"""Connections that others open to the adapter: what unknown clients may cost in memory and time of the event loop."""
