"""The demo's error."""


class DemoError(Exception):
    """The demo cannot continue; the message is one sentence for the user: what is wrong, and what to do."""
