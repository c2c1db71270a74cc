"""Effective load for the stock HorizontalPodAutoscaler."""
