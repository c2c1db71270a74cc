"""From the name of a metric back to its Prometheus series, by the `name` and `seriesQuery` of a rule.

The regular expressions come from a stranger's file: only those that cannot take long are evaluated.
"""

import re
from collections.abc import Iterable

_LONGEST_SERIES = 128
_LONGEST_PATTERN = 200
_MOST_REPEATS = 2
_LITERAL = re.compile(r"[A-Za-z0-9_:]*", re.ASCII)
_CAPTURE = re.compile(r"\^?(?P<before>[A-Za-z0-9_:]*)\((?P<inner>\.\*|\.\+)\)(?P<after>[A-Za-z0-9_:]*)\$?", re.ASCII)
_REFERENCE = re.compile(r"\$(?:\{(\d)\}|(\d))", re.ASCII)
_SELECTOR = re.compile(r"\s*(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)?\s*(?P<matchers>\{.*\})?\s*", re.ASCII | re.DOTALL)
_NAME_MATCHER = re.compile(r'__name__\s*(?P<sign>=~|!~|!=|=)\s*"(?P<value>[^"\\]*)"', re.ASCII)
_SAFE = re.compile(r"[A-Za-z0-9_:.^$|()*+?\[\]-]*", re.ASCII)
_GROUP_REPEATED = re.compile(r"\)[*+?]")


class Unclear(Exception):  # noqa: N818  it is no error of the program: a rule that only its own adapter can evaluate
    """A rule cannot be evaluated here; the text says why, without the rule's name."""


def series_of(matches: str, as_name: str, metric: str, series_query: str) -> str:
    """The series that is called `metric` in the API, empty where there is none. Raises Unclear."""
    if len(metric) > _LONGEST_SERIES:
        return ""
    capture = _CAPTURE.fullmatch(matches) if matches else None
    if capture is None:
        return _without_capture(matches, as_name, metric, series_query)
    found = _captured(as_name or "$1", metric)
    if found is None or (capture["inner"] == ".+" and not found):
        return ""
    number, text = found
    if number == 1:
        return f"{capture['before']}{text}{capture['after']}"
    begins, ends = text.startswith(capture["before"]), text.endswith(capture["after"])
    return text if begins and ends else ""


def _without_capture(matches: str, as_name: str, metric: str, series_query: str) -> str:
    """The series of a rule whose name has no group: the metric's own name, or the one series of a fixed name."""
    if not as_name or as_name in {"$0", "${0}"}:
        if "(" in matches:
            raise Unclear(f"its name.matches {matches[:60]!r} is more than one group with .* between fixed texts")
        return metric if not matches or _search(matches, metric) else ""
    if _REFERENCE.search(as_name):
        raise Unclear(f"its name.as {as_name[:60]!r} refers to a group that cannot be told from the metric's name")
    if as_name != metric:
        return ""
    named = _SELECTOR.fullmatch(series_query)
    if named is None or not named["name"]:
        raise Unclear("its seriesQuery names no single series")
    return named["name"]


def _captured(as_name: str, metric: str) -> tuple[int, str] | None:
    """Which group `as` refers to, and what it holds for the metric; None where the metric is not called so."""
    references = list(_REFERENCE.finditer(as_name))
    if len(references) != 1:
        raise Unclear(f"its name.as {as_name[:60]!r} has not exactly one reference to a group")
    [one] = references
    before, after = as_name[: one.start()], as_name[one.end() :]
    if len(metric) < len(before) + len(after) or not metric.startswith(before) or not metric.endswith(after):
        return None
    return int(one[1] or one[2]), metric[len(before) : len(metric) - len(after)]


def selects(series_query: str, filters: Iterable[tuple[str, str]], series: str) -> bool:
    """Whether the series is among those that the rule selects. Raises Unclear."""
    query = _SELECTOR.fullmatch(series_query)
    if query is None:
        raise Unclear("its seriesQuery is no plain selector of series")
    if query["name"] and query["name"] != series:
        return False
    for one in _NAME_MATCHER.finditer(query["matchers"] or ""):
        value, is_regex = one["value"], "~" in one["sign"]
        fits = _search(f"^({value})$", series) if is_regex else value == series
        if fits == one["sign"].startswith("!"):
            return False
    return all(_search(pattern, series) is (kind == "is") for kind, pattern in filters if pattern)


def _search(pattern: str, text: str) -> bool:
    """Whether a simple expression is found in the text. Raises Unclear for one that might take long."""
    repeats = sum(pattern.count(sign) for sign in "*+")
    simple = _SAFE.fullmatch(pattern) and len(pattern) <= _LONGEST_PATTERN and repeats <= _MOST_REPEATS
    if not simple or _GROUP_REPEATED.search(pattern) or len(text) > _LONGEST_SERIES:
        raise Unclear(f"the expression {pattern[:60]!r} is too involved to evaluate here")
    try:
        return re.search(pattern, text, re.ASCII) is not None
    except re.error:
        raise Unclear(f"the expression {pattern[:60]!r} is not one") from None
