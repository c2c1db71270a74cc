"""What the parts of a `decide` document are read with: mappings, lists, times and Kubernetes objects, with faults."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from adapter.policy.memory_json import MemoryReader
from adapter.runtime.faults import path_of

T = TypeVar("T")
Path = tuple[str | int, ...]

_STEP = re.compile(r"\.([^.\[]+)|\[([0-9]+)\]")


class DocumentFields(MemoryReader):
    """Reads the parts of one document, and collects every fault."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        super().__init__()
        self.data = data
        self._seen: dict[tuple[str, str], str] = {}

    def decoded(self, decode: Callable[[bytes], T], data: object, at: Path) -> T | None:
        """The data as a decoder of the watches reads it; None, with a fault, where it cannot."""
        try:
            return decode(json.dumps(data, allow_nan=False).encode())
        except (msgspec.MsgspecError, ValueError, TypeError, OverflowError) as error:
            inner, value, advice = _place_in(data, str(error))
            self.fault((*at, *inner), value, advice)
            return None

    def once(self, kind: str, key: str, shown: str, at: Path) -> None:
        """Add a fault for a second occurrence of `key`."""
        first = self._seen.setdefault((kind, key), path_of(at))
        if first != path_of(at):
            self.fault(at, shown, f"is a duplicate of {first}; keep one of them")

    def objects(self, key: str) -> Iterator[tuple[int, Any]]:
        """The objects of a list of the document, with their indices."""
        yield from enumerate(self.sequence(self.data.get(key), (key,)))

    def unknown(self, given: Mapping[str, Any], known: tuple[str, ...], at: Path) -> None:
        """Add a fault for each key that is not known."""
        for key in given.keys() - known:
            self.fault((*at, key), given[key], f"is unknown here; known are {', '.join(known)}")

    def seconds(self, given: Mapping[str, Any], key: str, default: float, most: int, at: Path) -> float:
        """A number of seconds from 0 to `most`; the default where the key is absent."""
        value = given.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            self.fault((*at, key), value, f"must be a number from 0 to {most}")
            return default
        return float(value)

    def optional_time(self, given: Mapping[str, Any], key: str, at: Path) -> float | None:
        """Epoch seconds of a time; None where the key is absent."""
        return None if given.get(key) is None else self.time(given[key], (*at, key))

    def optional_text(self, given: Mapping[str, Any], key: str, at: Path) -> str | None:
        """A text; None where the key is absent or empty."""
        value = given.get(key)
        if value is not None and not isinstance(value, str):
            self.fault((*at, key), value, "must be a text")
            return None
        return value or None


def _place_in(data: object, message: str) -> tuple[Path, object, str]:
    """The path in a decoder's message, the value there, and the message without the path."""
    advice, _, place = message.rstrip("`").partition(" - at `$")
    path = tuple(int(index) if index else key for key, index in _STEP.findall(place))
    for step in path:
        inside = isinstance(data, list) and isinstance(step, int) and step < len(data)
        if not inside and not (isinstance(data, Mapping) and step in data):
            return (), None, message
        data = data[step]  # type: ignore[index]
    return path, None if isinstance(data, Mapping | list) else data, advice
