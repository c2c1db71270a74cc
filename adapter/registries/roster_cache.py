"""Names for the sources of the first edition, until they are rewritten."""

from adapter.registries.bridge import Book as RosterCache

__all__ = ["RosterCache"]
