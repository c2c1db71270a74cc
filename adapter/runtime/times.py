"""RFC 3339 times as the Kubernetes API writes them (metav1.Time and metav1.MicroTime)."""

from datetime import UTC, datetime


def parse_time(text: object) -> float | None:
    """Epoch seconds of an RFC 3339 time with an offset; digits beyond microseconds are cut.

    None for anything else, including a time before the year 1 or after 9999 in UTC, which cannot be written back.
    """
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
        if moment is None or moment.tzinfo is None:
            return None
        seconds = moment.astimezone(UTC).timestamp()
        datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError):
        return None
    return seconds


def format_time(seconds: float) -> str:
    """UTC with whole seconds, as metav1.Time."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(seconds: float) -> str:
    """UTC with microseconds, as metav1.MicroTime."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
