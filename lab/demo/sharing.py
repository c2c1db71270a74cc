"""Distributes the demand equally over the serving pods.

Pure. Loads are in millicores.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

IDLE = 20
"""The usage of a pod without requests."""


@dataclass(frozen=True)
class Replica:
    """One pod as the load balancing sees it; `created` orders pods by age, `usage` is its current setting."""

    name: str
    ready: bool = True
    leaving: bool = False
    created: str = ""
    usage: int | None = None


def serving(replicas: Iterable[Replica], pulled_out: Collection[str]) -> list[Replica]:
    """The pods that receive requests."""
    return [one for one in replicas if one.ready and not one.leaving and one.name not in pulled_out]


def share(demand: int, count: int) -> int | None:
    """The load of each of `count` serving pods; None if there are no serving pods."""
    return round(demand / count) if count else None


def usages(replicas: Iterable[Replica], pulled_out: Collection[str], demand: int) -> dict[str, int]:
    """The usage of each pod that is not being deleted, by name."""
    staying = [one for one in replicas if not one.leaving]
    carriers = {one.name for one in serving(staying, pulled_out)}
    each = share(demand, len(carriers))
    return {one.name: each if each is not None and one.name in carriers else IDLE for one in staying}


def to_pull_out(replicas: Iterable[Replica], count: int, already: Collection[str] = ()) -> list[str]:
    """The oldest serving pods; the rule is the same for both services."""
    candidates = sorted(serving(replicas, already), key=lambda one: (one.created, one.name))
    return [one.name for one in candidates[:count]]
