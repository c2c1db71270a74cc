"""Gauges whose series come from rows, formatted directly as Prometheus text: no object per sample."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class SeriesRow(Protocol):
    """The source of series; `label_values` are the values of the labels that all series of the row share."""

    @property
    def label_values(self) -> tuple[str, ...]: ...


R = TypeVar("R", bound=SeriesRow)

LabelledValues = Iterable[tuple[str, float | None]]


@dataclass(frozen=True, slots=True)
class Family(Generic[R]):
    """A gauge with the shared labels of its rows and at most one more; `values` returns (label value, value) pairs."""

    shared_labels: tuple[str, ...]
    name: str
    help: str
    label: str
    values: Callable[[R], LabelledValues]

    @property
    def labels(self) -> tuple[str, ...]:
        """All label names."""
        return (*self.shared_labels, self.label) if self.label else self.shared_labels

    @property
    def header(self) -> str:
        """The HELP and TYPE lines."""
        return f"# HELP {self.name} {self.help}\n# TYPE {self.name} gauge\n"


def format_row(families: Sequence[Family[R]], row: R) -> list[str]:
    """The row's text, one piece per family in their order; the caller joins the pieces of all rows by family."""
    names = families[0].shared_labels
    place = ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, row.label_values, strict=True))
    pieces = []
    for family in families:
        own = f",{family.label}=" if family.label else ""
        text = ""
        for label, value in family.values(row):
            if value is not None:
                more = f'{own}"{_escaped(label)}"' if own else ""
                text += f"{family.name}{{{place}{more}}} {_number(value)}\n"
        pieces.append(text)
    return pieces


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def _escaped(value: str) -> str:
    if "\\" not in value and '"' not in value and "\n" not in value:
        return value
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
