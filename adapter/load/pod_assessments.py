"""The pods of an assessment with their usage, which is added when they are listed."""

from collections.abc import Mapping, Sequence
from typing import overload

from adapter.load.assessment import PodAssessment
from adapter.load.sample_columns import Columns


class PodAssessments(Sequence[PodAssessment]):
    """The pods of a target with their usage, which is added on first access: most assessments are never listed.

    `columns` are by metric name.
    """

    def __init__(self, pods: Sequence[PodAssessment], columns: Mapping[str, Columns]) -> None:
        self._pods = pods
        self._columns: Mapping[str, Columns] | None = columns

    def __len__(self) -> int:
        return len(self._pods)

    @overload
    def __getitem__(self, index: int) -> PodAssessment: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PodAssessment]: ...
    def __getitem__(self, index: int | slice) -> PodAssessment | Sequence[PodAssessment]:
        return self._with_usage()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def _with_usage(self) -> Sequence[PodAssessment]:
        if self._columns is not None:
            usage = {name: columns.usage() for name, columns in self._columns.items()}
            missing = {name: columns.missing() for name, columns in self._columns.items()}
            self._pods = [_add_usage(one, usage, missing) for one in self._pods]
            self._columns = None
        return self._pods


def _add_usage(
    one: PodAssessment, usage: Mapping[str, Mapping[str, int]], missing: Mapping[str, Mapping[str, str]]
) -> PodAssessment:
    uid = one.pod.uid
    lacks = {name: by_pod[uid] for name, by_pod in missing.items() if uid in by_pod}
    used = {name: by_pod[uid] for name, by_pod in usage.items() if uid in by_pod}
    return one._replace(usage=used, missing=lacks or one.missing)
