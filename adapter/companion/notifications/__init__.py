"""Notifications for people: what is due, how it reads, and how it is sent."""
