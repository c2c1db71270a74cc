"""How a load source can be wrong: falsified answers of Prometheus and of metrics-server."""

import datetime as dt
from typing import Any

from lab.faults.proxies import Falsify

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


def ahead(seconds: float) -> Falsify:
    """The true load, with times that are ahead: a source whose clock is wrong."""

    def falsify(asked: str, answer: Any) -> Any:
        for one in _results(answer) if TIMES in asked else ():
            one["value"][1] = str(float(one["value"][1]) + seconds)
        return answer

    return falsify


def old(seconds: float) -> Falsify:
    """A quarter of the load, of a moment in the past: a source that answers from an old copy."""

    def falsify(asked: str, answer: Any) -> Any:
        for one in _results(answer):
            value = float(one["value"][1])
            one["value"][1] = str(value - seconds if TIMES in asked else value / 4)
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


def usage_ahead(seconds: float) -> Falsify:
    """The true usage, with times that are ahead."""

    def falsify(asked: str, answer: Any) -> Any:
        for pod in _pods(asked, answer):
            pod["timestamp"] = _shifted(pod["timestamp"], seconds)
        return answer

    return falsify


def usage_of_the_past(seconds: float) -> Falsify:
    """A quarter of the usage, of a moment in the past."""

    def falsify(asked: str, answer: Any) -> Any:
        for pod in _pods(asked, answer):
            pod["timestamp"] = _shifted(pod["timestamp"], -seconds)
            for container in pod["containers"]:
                container["usage"] = {**container["usage"], "cpu": "250m"}
        return answer

    return falsify


def _shifted(timestamp: str, seconds: float) -> str:
    return (dt.datetime.fromisoformat(timestamp) + dt.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
