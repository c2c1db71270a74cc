"""What the adapter says of itself: metrics on a port of their own, and logs. Knows no room."""
