"""Runs the adapter as `lab.faults.shim` does, notes what the controller is answered, and plants a defect if told to.

`python -m lab.soak.shim FOLDER serve …`: FOLDER/answers.jsonl gets a line for each answer to the controller;
FOLDER/plant may hold the name of a defect (`lab.soak.defects`).
"""

import contextvars
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from lab.faults import shim

_PATH = re.compile(r"/watermarkpolicies\.effective-load\.io/([^/?]+)/desired_replicas")
_note: contextvars.ContextVar[dict[str, Any]] = contextvars.ContextVar("note")


def real_time() -> float:
    """Seconds, whatever `lab.faults.shim` makes of the clock."""
    return time.clock_gettime(time.CLOCK_REALTIME)


def main() -> int:
    folder = Path(sys.argv[1])

    def prepare() -> None:
        record(folder / "answers.jsonl")
        plant = folder / "plant"
        if plant.exists() and (name := plant.read_text().strip()):
            from lab.soak import defects

            defects.plant(name)

    return shim.main(prepare)


def record(file: Path) -> None:
    """Notes each answer about a count that the controller gets, once it is made."""
    from adapter.apiserver.handler import Handler
    from adapter.apiserver.provider import LiveDecision, MetricsProvider

    answer, decide = Handler.__call__, MetricsProvider._decision
    lines = file.open("a", buffering=1)

    async def noted(self: Handler, request: Any) -> Any:
        match = _PATH.search(request.path)
        if match is None or "kube-controller-manager" not in request.headers.get("User-Agent", ""):
            return await answer(self, request)
        note: dict[str, Any] = {"name": match[1]}
        _note.set(note)
        made = await answer(self, request)
        note |= {"at": real_time(), "status": made.status}
        lines.write(json.dumps(note) + "\n")
        return made

    async def decided(self: MetricsProvider, view: Any) -> LiveDecision:
        live = await decide(self, view)
        note = _note.get(None)
        if note is not None:
            note |= {
                "desired": live.decision.desired,
                "current": live.decision.current,
                "goal": max((one.proposal for one in live.decision.outcomes), default=None),
                "samples": samples_of(view),
                "generation": view.policy.generation,
            }
        return live

    Handler.__call__ = noted  # type: ignore[method-assign]
    MetricsProvider._decision = decided  # type: ignore[method-assign]


def samples_of(view: Any) -> str:
    """Which samples the policy's assessment is of, by their times, and how many pods have none, are out, or may be."""
    samples, assessment = view.inputs.samples, view.assessment
    times = {"": {one.at for one in samples.resources.pods.values()}}
    for name, query in samples.queries.items():
        times[name] = {one.at for one in query.pods.values()} | ({query.total.at} if query.total else set())
    unsure = {state.value: count for state, count in assessment.counts.items() if state.value != "serving"}
    missing = [(one.name, one.missing) for one in assessment.metrics]
    return repr((sorted((name, sorted(ats)) for name, ats in times.items()), sorted(unsure.items()), missing))


if __name__ == "__main__":
    sys.exit(main())
