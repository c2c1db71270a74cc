"""What has been seen of a target's replica count, by every replica of the companion, whether it leads or not."""

from dataclasses import dataclass, replace

from adapter.policy.behavior import ReplicaChange
from adapter.snapshot import PolicyView

REMEMBERED_SECONDS = 1800.0
"""The longest period that an HPA's scaling policy can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A target's count since it was first seen (seconds), and how it rose in the last half hour, whoever raised it.

    `scaled_before`: when the HPA had last scaled it by then, as it said itself; None where it never had.
    """

    target: str
    since: float
    scaled_before: float | None
    replicas: int
    rises: tuple[ReplicaChange, ...] = ()


def look(known: Watched | None, view: PolicyView, now: float) -> Watched | None:
    """What is known after another look at the policy; None where its target has not been seen yet."""
    if view.target is None or view.scale is None or view.bounds is None:
        return known
    replicas = view.scale.replicas
    if known is None or known.target != view.target.uid:
        last = view.bounds.last_scale
        return Watched(target=view.target.uid, since=now, scaled_before=last, replicas=replicas)
    if replicas == known.replicas:
        return known
    rises = known.rises if replicas < known.replicas else (*known.rises, ReplicaChange(now, replicas - known.replicas))
    return replace(known, replicas=replicas, rises=tuple(rise for rise in rises if now - rise.at < REMEMBERED_SECONDS))
