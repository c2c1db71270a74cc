"""Figures as people read them."""

from itertools import dropwhile, islice

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
NOT_KNOWN = "–"


def hours(seconds: float) -> float:
    """Hours of a number of seconds."""
    return seconds / 3600


def minutes(seconds: float) -> float:
    """Minutes of a number of seconds."""
    return seconds / 60


def duration_text(seconds: float) -> str:
    """A duration by its two largest units: 5 h 40 min; 0 min for none."""
    rest = round(seconds)
    parts = []
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        parts.append((count, unit))
    shown = islice(dropwhile(lambda part: part[0] == 0, parts), 2)
    return " ".join(f"{count} {unit}" for count, unit in shown if count) or "0 min"


def count_text(value: float) -> str:
    """A number with thousands separated; below 100 with one digit after the point, where it has one."""
    short = round(value, 1 if abs(value) < 100 else 0)
    return f"{short:,.0f}" if float(short).is_integer() else f"{short:,.1f}"


def signed_text(value: float) -> str:
    """A number with its sign."""
    text = count_text(abs(value))
    return "0" if text == "0" else f"{'−' if value < 0 else '+'}{text}"


def share_text(share: float | None) -> str:
    """A share as percent; a small one is never shown as nothing."""
    if share is None:
        return NOT_KNOWN
    return "< 0.01 %" if 0 < share < 0.0001 else f"{100 * share:.3g} %"


def change_text(value: float, before: float) -> str:
    """How much more or less than before, in percent with its sign."""
    if before == 0:
        return "±0 %" if value == 0 else NOT_KNOWN
    change = round(100 * (value / before - 1), 1)
    return "±0 %" if change == 0 else f"{change:+.1f} %".replace("-", "−")
