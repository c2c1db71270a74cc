"""The algorithms of the autoscalers that objects are migrated from, to be replayed against the migrated pairs."""

from adapter.migrate.migration import migrate
from adapter.migrate.originals import Keda, Original, StockHpa, Wpa
from adapter.migrate.pair import Migrated, Style
from adapter.replay.originals.keda import KedaAutoscaler
from adapter.replay.originals.stock import StockAutoscaler
from adapter.replay.originals.wpa import WpaAutoscaler
from adapter.replay.service import Autoscaler

_STYLE = Style()


def read_originals(text: str, file: str) -> tuple[Migrated, ...]:
    """The originals of a file, each with what it is migrated to. Raises MigrationError.

    The metrics of their algorithms have the names that the migration gives them.
    """
    return migrate([(file, text)], _STYLE).pairs


def autoscaler_of(original: Original, name: str) -> Autoscaler:
    """A new autoscaler with the original's algorithm; `name` is what reports call it."""
    match original:
        case Wpa():
            return WpaAutoscaler(original, name)
        case Keda():
            return KedaAutoscaler(original, name)
        case StockHpa():
            return StockAutoscaler(original, name)
