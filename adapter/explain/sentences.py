"""An explained decision as plain lines and as data: where the output is no terminal, and for programs."""

from collections.abc import Iterator
from typing import Any

from adapter.document.decision import decided, decision_json
from adapter.explain import hpa
from adapter.explain.facts import input_rows
from adapter.explain.reading import Explained, HpaState
from adapter.load.assessment import Assessment, Decision
from adapter.load.explanation import explain
from adapter.load.explanation import headline as decision_headline
from adapter.load.quantity import milli_text
from adapter.runtime.times import format_time


def headline(explained: Explained, made: tuple[Assessment, Decision] | None) -> str:
    """What was served, in one sentence."""
    if made is None:
        return f"HPAs get an error: {explained.refusal}" if explained.refusal else "the server's decision is not known"
    assessment, decision = made
    served = "" if decision.served is None else f", served as {milli_text(decision.served)}"
    return f"{decision_headline(assessment, decision)}{served}"


def differences(explained: Explained, decision: Decision) -> tuple[str, ...]:
    """What the server decided, where this command decides otherwise on the same document; empty where they agree."""
    served = explained.served
    if served is None:
        return ()
    value = None if decision.served is None else milli_text(decision.served)
    if (served.desired_replicas, served.served, served.error) == (decision.desired, value, decision.error):
        return ()
    said = served.error or f"{served.desired_replicas}, served as {served.served}"
    return (
        f"the server (version {explained.server_version}) decided: {said}",
        "this command is of another version; use that of the server's image for its sentences",
    )


def lines(explained: Explained) -> Iterator[str]:
    """The page in plain lines."""
    made = decided(explained.case) if explained.case is not None else None
    yield f"WatermarkPolicy {explained.namespace}/{explained.name}: {headline(explained, made)}"
    yield from explained.trouble
    if explained.case is not None and made is not None:
        yield from differences(explained, made[1])
        yield from explain(*made, explained.case.inputs.bounds, explained.case.now)
        for row in input_rows(explained, made[0]):
            yield ", ".join(filter(None, (f"input {row.name}: {row.age}", row.counts, row.trouble)))
    else:
        for one in explained.conditions:
            yield f"status: {one.type} {one.status} ({one.reason}): {one.message}"
    yield from (f"HPA: {line}" for line in explained.hpa_trouble)
    if explained.hpa is not None:
        yield from (f"HPA {explained.hpa.hpa.name} will: {line}" for line in hpa.will_do(explained))
        yield from (f"HPA {explained.hpa.hpa.name} last: {line}" for line in hpa.did_last(explained.hpa, explained.at))


def data(explained: Explained) -> dict[str, Any]:
    """The page as JSON data; `decision` has the form of `decide -o json`."""
    case, served = explained.case, explained.served
    made = decided(case) if case is not None else None
    rows = list(input_rows(explained, made[0])) if made is not None else []
    return {
        "policy": f"{explained.namespace}/{explained.name}",
        "at": format_time(explained.at),
        "served": None if served is None else served.served,
        "error": explained.refusal or (served.error if served is not None else None),
        "serverVersion": explained.server_version or None,
        "decision": None if case is None else decision_json(case),
        "inputs": [{"name": row.name, "age": row.age, "counts": row.counts, "trouble": row.trouble} for row in rows],
        "trouble": [*explained.trouble, *explained.hpa_trouble],
        "hpa": None if explained.hpa is None else _hpa(explained, explained.hpa),
    }


def _hpa(explained: Explained, state: HpaState) -> dict[str, Any]:
    return {
        "name": state.hpa.name,
        "currentReplicas": state.current,
        "desiredReplicas": state.desired,
        "lastScaleTime": None if state.last_scale is None else format_time(state.last_scale),
        "willDo": list(hpa.will_do(explained)),
        "conditions": [
            {"type": one.type, "status": one.status, "reason": one.reason, "message": one.message}
            for one in state.conditions
        ],
    }
