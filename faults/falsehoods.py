"""How a load source can be wrong: falsified answers of Prometheus and of metrics-server."""

import datetime as dt
from typing import Any

from faults.proxies import Falsify

TIMES = "timestamp("
"""What the adapter's query for the times of samples contains, and its query for their values does not."""


def _results(answer: Any) -> list[dict[str, Any]]:
    return list(answer.get("data", {}).get("result", [])) if isinstance(answer, dict) else []


def _half(result: list[Any]) -> list[Any]:
    return result[::2]


def zeros(asked: str, answer: Any) -> Any:
    """Every other series of a query for values is 0."""
    if TIMES not in asked:
        for one in _half(_results(answer)):
            one["value"][1] = "0"
    return answer


def halves(_asked: str, answer: Any) -> Any:
    """Every other series is missing."""
    if found := _results(answer):
        answer["data"]["result"] = _half(found)
    return answer


def nothing(_asked: str, answer: Any) -> Any:
    """No series at all."""
    if _results(answer):
        answer["data"]["result"] = []
    return answer


def not_numbers(asked: str, answer: Any) -> Any:
    """Every value is NaN."""
    if TIMES not in asked:
        for one in _results(answer):
            one["value"][1] = "NaN"
    return answer


def shifted(seconds: float) -> Falsify:
    """Samples are from another time: a source with a wrong clock, or one that answers from an old copy."""

    def falsify(asked: str, answer: Any) -> Any:
        for one in _results(answer):
            if TIMES in asked:
                one["value"][1] = str(float(one["value"][1]) + seconds)
                # A load that was low then: whoever believes the time shrinks.
            else:
                one["value"][1] = str(float(one["value"][1]) / 4)
        return answer

    return falsify


# --- metrics-server ---


def _pods(asked: str, answer: Any) -> list[dict[str, Any]]:
    return list(answer.get("items", [])) if "/pods" in asked and isinstance(answer, dict) else []


def zero_usage(asked: str, answer: Any) -> Any:
    """Every other pod uses nothing."""
    for pod in _half(_pods(asked, answer)):
        for container in pod["containers"]:
            container["usage"] = dict.fromkeys(container["usage"], "0")
    return answer


def half_of_the_pods(asked: str, answer: Any) -> Any:
    """Every other pod is missing."""
    if found := _pods(asked, answer):
        answer["items"] = _half(found)
    return answer


def usage_of(seconds: float) -> Falsify:
    """A quarter of the usage, with the time of another moment."""

    def falsify(asked: str, answer: Any) -> Any:
        for pod in _pods(asked, answer):
            at = dt.datetime.fromisoformat(pod["timestamp"]) + dt.timedelta(seconds=seconds)
            pod["timestamp"] = at.strftime("%Y-%m-%dT%H:%M:%SZ")
            for container in pod["containers"]:
                container["usage"] = {**container["usage"], "cpu": "250m"}
        return answer

    return falsify
