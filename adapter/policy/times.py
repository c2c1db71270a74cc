"""RFC 3339 times as people and the API write them."""

from datetime import UTC, datetime


def seconds_of(text: object) -> float | None:
    """Epoch seconds of a time with its offset; None for anything else, and for what is no time in UTC any more."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
        seconds = moment.timestamp()
        datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError):
        return None
    return seconds if moment.tzinfo is not None else None
