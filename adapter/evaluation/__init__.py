"""Keeps the picture current: a change marks the policies it touches, a worker assesses them in small slices."""
