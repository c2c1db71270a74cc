"""Gauges whose series come from rows, written as Prometheus text straight away: no object per sample."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class Row(Protocol):
    """What series are made of: `place` holds the values of the labels that all series of the row share."""

    @property
    def place(self) -> tuple[str, ...]: ...


R = TypeVar("R", bound=Row)

Values = Iterable[tuple[str, float | None]]


@dataclass(frozen=True, slots=True)
class Family(Generic[R]):
    """A gauge with the labels of the row's place and at most one of its own; `values` gives (own label, value)."""

    place: tuple[str, ...]
    name: str
    help: str
    label: str
    values: Callable[[R], Values]

    @property
    def labels(self) -> tuple[str, ...]:
        """All label names."""
        return (*self.place, self.label) if self.label else self.place

    @property
    def header(self) -> str:
        """The HELP and TYPE lines."""
        return f"# HELP {self.name} {self.help}\n# TYPE {self.name} gauge\n"


def format_row(families: Sequence[Family[R]], row: R) -> list[str]:
    """The row's text, one piece a family in their order; pieces of all rows are joined family by family."""
    names = families[0].place
    place = ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, row.place, strict=True))
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
