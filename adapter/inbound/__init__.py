"""Incoming connections: bounds on the memory and event-loop time that unknown clients may use."""
