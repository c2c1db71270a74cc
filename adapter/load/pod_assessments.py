"""The pods of an assessment with their usage, which is added when they are listed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import overload

from adapter.load.assessment import PodAssessment
from adapter.load.sample_columns import Columns


class PodAssessments(Sequence[PodAssessment]):
    """The pods of a target with their usage, added to each one that is asked for: few assessments are ever listed.

    `columns` are by metric name; `without_usage` are the same pods as the census has them.
    """

    def __init__(self, pods: Sequence[PodAssessment], columns: Mapping[str, Columns]) -> None:
        self.without_usage = pods
        self._columns: Mapping[str, Columns] | None = columns
        self._usage: Mapping[str, Mapping[str, int]] = {}
        self._missing: Mapping[str, Mapping[str, str]] = {}

    def __len__(self) -> int:
        return len(self.without_usage)

    def __iter__(self) -> Iterator[PodAssessment]:
        return map(self._with_usage, self.without_usage)

    @overload
    def __getitem__(self, index: int) -> PodAssessment: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PodAssessment]: ...
    def __getitem__(self, index: int | slice) -> PodAssessment | Sequence[PodAssessment]:
        if isinstance(index, slice):
            return [self._with_usage(one) for one in self.without_usage[index]]
        return self._with_usage(self.without_usage[index])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def _with_usage(self, one: PodAssessment) -> PodAssessment:
        if self._columns is not None:
            self._usage = {name: columns.usage() for name, columns in self._columns.items()}
            self._missing = {name: columns.missing() for name, columns in self._columns.items()}
            self._columns = None
        uid = one.pod.uid
        lacks = {name: by_pod[uid] for name, by_pod in self._missing.items() if uid in by_pod}
        used = {name: by_pod[uid] for name, by_pod in self._usage.items() if uid in by_pod}
        return one._replace(usage=used, missing=lacks or one.missing)


def without_usage(pods: Sequence[PodAssessment]) -> Sequence[PodAssessment]:
    """The pods of an assessment without their usage: the same object while no state changes."""
    return pods.without_usage if isinstance(pods, PodAssessments) else pods
