"""Runs the adapter as `lab.faults.shim` does, and notes what the controller is answered.

`python -m lab.soak.shim FOLDER serve …`: FOLDER/answers.jsonl gets a line for each answer to the controller.
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
    return shim.main(lambda: record(folder / "answers.jsonl"))


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
            note["desired"] = live.decision.desired
        return live

    Handler.__call__ = noted  # type: ignore[method-assign]
    MetricsProvider._decision = decided  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.exit(main())
