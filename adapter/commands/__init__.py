"""What people run: each command's room, imported only when it runs."""
