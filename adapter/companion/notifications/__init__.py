"""Sends notifications: to which routes, in which words, within which limits."""
