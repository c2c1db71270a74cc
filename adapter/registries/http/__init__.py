"""A platform of one's own: it is asked by HTTP, or tells by itself."""
