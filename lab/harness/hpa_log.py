"""Reads the HPA controller's log: one line for each sync of each HPA.

An HPA's status is written only on changes, so it cannot tell "synced without a change" from "did not sync". The
controller's log can (`--vmodule=horizontal=4`): every sync ends in "Decided not to scale", "Successfully rescaled"
or an error that names the target.
"""

import datetime as dt
import re
from dataclasses import dataclass
from pathlib import Path

_NOT = '"Decided not to scale"'
_DONE = '"Successfully rescaled"'
_FAILED = ("failed to compute desired number of replicas", "failed to rescale", "failed to query scale subresource")
_HEAD = re.compile(r"^[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6})")


def logged_at(line: str) -> float | None:
    """When a line was logged (seconds), in this machine's year and zone; None for a line without a time."""
    head = _HEAD.match(line)
    if head is None:
        return None
    month, day, hour, minute, second, micro = map(int, head.groups())
    now = dt.datetime.now().astimezone()
    return now.replace(month=month, day=day, hour=hour, minute=minute, second=second, microsecond=micro).timestamp()


@dataclass(frozen=True)
class Sync:
    """The result of one sync: kept, rescaled or failed, with its count and its log line."""

    outcome: str
    desired: int | None
    line: str


class HpaLog:
    """Reads the log of a kube-controller-manager from its beginning or from a mark."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mark(self) -> int:
        """The current end of the log."""
        return self.path.stat().st_size

    def lines(self, since: int = 0) -> list[str]:
        with self.path.open("rb") as log:
            log.seek(since)
            return log.read().decode(errors="replace").splitlines()

    def syncs(self, namespace: str, target: str, *, hpa: str | None = None, since: int = 0) -> list[Sync]:
        """The syncs of the HPA that scales `target` ("Deployment/web" or "web"); `hpa` defaults to its name."""
        kind, _, name = target.rpartition("/")
        reference = f"{kind or 'Deployment'}/{namespace}/{name}"
        names_target = re.compile(re.escape(reference) + r"[:\s\"]")
        syncs = []
        for line in self.lines(since):
            if _NOT in line and f'scaleTarget="{reference}"' in line:
                outcome = "kept"
            elif _DONE in line and f'HPA="{namespace}/{hpa or name}"' in line:
                outcome = "rescaled"
            elif any(word in line for word in _FAILED) and names_target.search(line):
                outcome = "failed"
            else:
                continue
            count = re.search(r"desiredReplicas=(\d+)", line)
            syncs.append(Sync(outcome, int(count[1]) if count else None, line))
        return syncs
