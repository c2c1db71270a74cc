"""The samples of a namespace's pods as columns: a tenth of the objects that one for each pod and container takes."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")

_SPARSE = 4
"""A column is sparse if fewer than one in so many pods have an amount."""


class SparseAmounts(dict[int, int | None]):
    """The amounts of a container that few pods have, by row; None for the others."""

    def __missing__(self, row: int) -> None:
        """No amount, and nothing is kept of the question."""
        return


Amounts = Sequence[int | None] | SparseAmounts
"""One resource of one container by row, in nano-units; None: the pod has no such sample."""
_NONE: Mapping[str, Amounts] = {}


class UsageRow(NamedTuple):
    """The usage of one pod: a row of the columns, read where it is asked for."""

    row: int
    at: float
    window: float
    shape: tuple[str, ...]
    columns: Mapping[str, Mapping[str, Amounts]]

    @property
    def containers(self) -> dict[str, dict[str, int]]:
        """All amounts: container → resource → nano-units."""
        return {
            container: {
                resource: amount
                for resource in self.columns.get(container, _NONE)
                if (amount := self.amount(container, resource)) is not None
            }
            for container in self.shape
        }

    def amount(self, container: str, resource: str) -> int | None:
        """What a container uses of a resource (nano-units); None where there is no such sample."""
        if container not in self.shape:
            return None
        column = self.columns.get(container, _NONE).get(resource)
        return None if column is None else column[self.row]


class UsageColumns(Mapping[str, UsageRow]):
    """Usage by pod name. Each pod has a row; `ats` and `windows` (seconds) are by row."""

    __slots__ = ("_amounts", "_shapes", "ats", "rows", "windows")

    def __init__(
        self,
        rows: Mapping[str, int],
        ats: Sequence[float],
        windows: Sequence[float],
        shapes: Sequence[tuple[str, ...]],
        amounts: Mapping[str, Mapping[str, Amounts]],
    ) -> None:
        """`shapes` are the names of each pod's containers, `amounts` the columns by container and resource."""
        self.rows = rows
        self.ats = ats
        self.windows = windows
        self._shapes = shapes
        self._amounts = amounts

    def has_same_times(self, other: "UsageColumns") -> bool:
        """Whether the samples are of the same pods and times."""
        if self.rows is other.rows:
            return self.ats == other.ats
        return self.times() == other.times()

    def times(self) -> dict[str, float]:
        """The time of each pod's sample."""
        return {name: self.ats[row] for name, row in self.rows.items()}

    def __getitem__(self, name: str) -> UsageRow:
        row = self.rows[name]
        return UsageRow(row, self.ats[row], self.windows[row], self._shapes[row], self._amounts)

    def __contains__(self, name: object) -> bool:
        return name in self.rows

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


NO_USAGE = UsageColumns({}, [], [], [], {})


class UsageColumnsBuilder:
    """Makes UsageColumns pod by pod. The last ones lend their rows where the pods are still the same."""

    def __init__(self, last: UsageColumns = NO_USAGE) -> None:
        self._last = last
        self._rows: dict[str, int] = {}
        self._ats: list[float] = []
        self._windows: list[float] = []
        self._shapes: list[tuple[str, ...]] = []
        self._known_shapes: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._amounts: dict[str, dict[str, _Filled]] = {}

    def __len__(self) -> int:
        """The number of pods added."""
        return len(self._ats)

    def add(self, name: str, at: float, window: float, containers: tuple[str, ...]) -> int:
        """Add a pod, and return its row; of two pods of one name the later one counts."""
        row = len(self._ats)
        self._rows[name] = row
        self._ats.append(at)
        self._windows.append(window)
        self._shapes.append(self._known_shapes.setdefault(containers, containers))
        return row

    def fill(self, container: str, resource: str, rows: Iterable[int], amounts: Iterable[int | None]) -> None:
        """Set a container's amounts (nano-units) in these rows."""
        filled = self._amounts.setdefault(container, {}).setdefault(resource, _Filled([], []))
        filled.rows.extend(rows)
        filled.amounts.extend(amounts)

    def columns(self) -> UsageColumns:
        """The columns of all pods."""
        rows: Mapping[str, int] = self._rows
        places: list[int] | None = None
        order: list[int] | None = None  # None: that in which the pods were added
        last, count = self._last.rows, len(self._ats)
        if len(self._last.ats) == len(last) == len(self._rows) == count and last.keys() == self._rows.keys():
            rows, order = last, [self._rows[name] for name in last]
            if order == list(range(count)):
                order = None
        if order is not None:
            places = [0] * len(order)
            for index, row in enumerate(order):
                places[row] = index
        packed: dict[str, dict[str, Amounts]] = {}
        for container, columns in self._amounts.items():
            packed[container] = {}
            for resource, filled in columns.items():
                packed[container][resource] = filled.packed(len(self._ats), places)
        ats, windows = _in_order(self._ats, order), _in_order(self._windows, order)
        return UsageColumns(rows, ats, windows, _in_order(self._shapes, order), packed)


class _Filled(NamedTuple):
    """The amounts of one column as they were added, and their rows."""

    rows: list[int]
    amounts: list[int | None]

    def packed(self, count: int, places: list[int] | None) -> Amounts:
        """The column of `count` pods; `places` are the rows to take for those of the pods as they were added.

        Containers are often named after their service: a full column for each would take the square of the pods.
        """
        rows = self.rows if places is None else [places[row] for row in self.rows]
        if len(rows) * _SPARSE < count:
            return SparseAmounts(zip(rows, self.amounts, strict=True))
        column: list[int | None] = [None] * count
        for row, amount in zip(rows, self.amounts, strict=True):
            column[row] = amount
        # Eight bytes a pod, where every pod has an amount and none is too large (9 × 10⁹ units).
        amounts = [amount for amount in column if amount is not None]
        if len(amounts) < len(column):
            return column
        try:
            return array("q", amounts)
        except OverflowError:
            return column


def _in_order(column: list[T], order: list[int] | None) -> list[T]:
    return column if order is None else [column[row] for row in order]
