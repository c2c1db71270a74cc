"""RFC 3339 times as the Kubernetes API writes them."""

from datetime import UTC, datetime


class TimeError(ValueError):
    """The text is no RFC 3339 time."""


def parse_time(text: str) -> float:
    """Epoch seconds of an RFC 3339 time, whole or with a fraction (digits beyond microseconds are cut).

    Raises TimeError for anything else, a time without an offset included.
    """
    try:
        moment = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        raise TimeError(f"{str(text)[:40]!r} is no RFC 3339 time") from None
    if moment.tzinfo is None:
        raise TimeError(f"{text!r} lacks its offset; write 2026-01-01T12:00:00Z")
    return moment.timestamp()


def known_time(text: str | None) -> float | None:
    """As `parse_time`, but None where there is no time or none that can be read."""
    if not text:
        return None
    try:
        return parse_time(text)
    except TimeError:
        return None


def format_time(seconds: float) -> str:
    """RFC 3339, whole seconds, UTC."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
