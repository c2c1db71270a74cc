"""Who carries the demand: it is shared by the pods that serve, so each carries less when one joins.

Pure. Loads are in millicores.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

IDLE = 20
"""What a pod uses that nobody calls."""


@dataclass(frozen=True)
class Replica:
    """One pod as the load balancing sees it; `created` orders pods by age. `usage` is what it is set to use now."""

    name: str
    ready: bool = True
    leaving: bool = False
    created: str = ""
    usage: int | None = None


def serving(replicas: Iterable[Replica], pulled_out: Collection[str]) -> list[Replica]:
    """The pods that requests reach."""
    return [one for one in replicas if one.ready and not one.leaving and one.name not in pulled_out]


def share(demand: int, count: int) -> int | None:
    """What each of `count` serving pods carries; None where nobody is there to carry anything."""
    return round(demand / count) if count else None


def usages(replicas: Iterable[Replica], pulled_out: Collection[str], demand: int) -> dict[str, int]:
    """What each pod that is not leaving uses, by name."""
    staying = [one for one in replicas if not one.leaving]
    carriers = {one.name for one in serving(staying, pulled_out)}
    each = share(demand, len(carriers))
    return {one.name: each if each is not None and one.name in carriers else IDLE for one in staying}


def to_pull_out(replicas: Iterable[Replica], count: int, already: Collection[str] = ()) -> list[str]:
    """The oldest pods that serve: the same rule for both services, so that neither is favoured."""
    candidates = sorted(serving(replicas, already), key=lambda one: (one.created, one.name))
    return [one.name for one in candidates[:count]]
