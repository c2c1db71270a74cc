"""The algorithms of the autoscalers that objects are migrated from, to be replayed against the migrated pairs."""

from typing import NamedTuple

from adapter.commands.migrate.migration import migrate
from adapter.commands.migrate.original import MigrationError
from adapter.commands.migrate.originals import Keda, Original, StockHpa, Wpa
from adapter.commands.migrate.pair import Migrated
from adapter.commands.replay.originals.keda import KedaAutoscaler
from adapter.commands.replay.originals.stock import StockAutoscaler
from adapter.commands.replay.originals.wpa import WpaAutoscaler
from adapter.commands.replay.service import Autoscaler
from adapter.load.spec import Policy
from adapter.runtime.faults import Fault


class AgainstOriginal(NamedTuple):
    """An original to compare a policy with: what reports call it, and the metrics that it needs."""

    name: str
    original: Original
    metrics: tuple[str, ...]


def read_original(text: str, file: str, policy: Policy) -> AgainstOriginal:
    """The original of a file: the one that becomes this policy, or the only one. Raises MigrationError.

    Its metrics have the names that the migration gives them.
    """
    pairs = migrate([(file, text)]).pairs
    chosen = [one for one in pairs if (one.namespace or "default", one.name) == (policy.namespace, policy.name)]
    chosen = chosen or list(pairs)
    if len(chosen) != 1:
        names = ", ".join(one.name for one in pairs)
        advice = f"has several originals ({names}) and none that becomes policy {policy.name}; give a file with one"
        raise MigrationError([Fault(file, None, advice)], "this cannot be replayed")
    return _against(chosen[0])


def _against(pair: Migrated) -> AgainstOriginal:
    assert pair.original is not None
    metrics = tuple(str(metric["name"]) for metric in pair.policy["spec"]["metrics"])
    return AgainstOriginal(f"{pair.source} {pair.name}", pair.original, metrics)


def autoscaler_of(original: Original, name: str) -> Autoscaler:
    """A new autoscaler with the original's algorithm; `name` is what reports call it."""
    match original:
        case Wpa():
            return WpaAutoscaler(original, name)
        case Keda():
            return KedaAutoscaler(original, name)
        case StockHpa():
            return StockAutoscaler(original, name)
