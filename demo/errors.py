"""Why a demo cannot go on."""


class DemoError(Exception):
    """One sentence for the person at the terminal: what is wrong, and what to do."""
