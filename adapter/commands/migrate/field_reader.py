"""Reads a mapping key by key and collects every fault, instead of stopping at the first."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adapter.policy.documents import MAX_NAME_LENGTH, mapping_at
from adapter.runtime.faults import Fault, closest

_LONGEST_QUANTITY = 32


def listed_objects(document: object) -> Iterator[tuple[str, object]]:
    """The objects of a document, each with its place in it: `items[2]` for those of a List, else empty."""
    items = document.get("items") if isinstance(document, Mapping) else None
    if isinstance(document, Mapping) and isinstance(items, list) and str(document.get("kind")).endswith("List"):
        yield from ((f"items[{index}]", item) for index, item in enumerate(items))
    else:
        yield "", document


@dataclass(frozen=True, slots=True, kw_only=True)
class UnparsedObject:
    """A Kubernetes object as it was written: any of its values may be of a wrong type."""

    data: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """Its kind; empty without one."""
        kind = self.data.get("kind")
        return kind if isinstance(kind, str) else ""

    @property
    def group(self) -> str:
        """Its API group; empty for the core one, and without any."""
        version = self.data.get("apiVersion")
        return version.rpartition("/")[0] if isinstance(version, str) else ""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Its metadata; empty without any."""
        return mapping_at(self.data, "metadata")


class FieldReader:
    """One mapping of a document, with its path. Where a value is wrong, methods add a fault and return the default.

    A null value counts as absent, as it does for the API server. `close` reports the keys that were not read.
    """

    def __init__(self, data: object, path: str, faults: list[Fault]) -> None:
        self.path = path
        self.faults = faults
        self._read: set[str] = set()
        self._data: Mapping[str, Any] = data if isinstance(data, dict | Mapping) else {}  # dict: a fast test first
        if data is not None and self._data is not data:
            self.fault("", data, "write a mapping of keys")

    def fault(self, key: str, value: object, advice: str) -> None:
        """Add a fault at `key` (empty: at the mapping itself)."""
        self.faults.append(Fault(self.at(key), value, advice))

    def at(self, key: str) -> str:
        """The path of `key`."""
        return ".".join(part for part in (self.path, key) if part)

    def has(self, key: str) -> bool:
        """Whether `key` has a value."""
        return self._data.get(key) is not None

    def get(self, key: str) -> Any:
        """The raw value; None where absent."""
        self._read.add(key)
        return self._data.get(key)

    def text(self, key: str, *, required: str = "", longest: int = MAX_NAME_LENGTH) -> str:
        """A text, empty where absent; `required` is the advice for an absent or empty one."""
        value = self.get(key)
        if value is None or value == "":
            if required:
                self.fault(key, None, required)
            elif value == "":
                self.fault(key, value, "is empty; write a value, or remove the key")
            return ""
        if isinstance(value, str) and len(value) <= longest:
            return value
        self.fault(key, value, f"write a text of at most {longest} characters")
        return ""

    def optional_text(self, key: str, *, longest: int = MAX_NAME_LENGTH) -> str:
        """A text; empty where absent or empty."""
        return self.text(key, longest=longest) if self.get(key) not in (None, "") else ""

    def integer(self, key: str, default: int, low: int, high: int) -> int:
        """A whole number from `low` to `high`."""
        value = self.optional_integer(key, low, high)
        return default if value is None else value

    def optional_integer(self, key: str, low: int, high: int) -> int | None:
        """A whole number from `low` to `high`, None where absent."""
        value = self.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and low <= value <= high):
            return value
        self.fault(key, value, f"write an integer, greater than or equal to {low} and less than or equal to {high}")
        return low

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.get(key)
        if isinstance(value, bool):
            return value
        if value is not None:
            self.fault(key, value, "write true or false, a boolean")
        return default

    def section(self, key: str) -> "FieldReader":
        """The mapping at `key`, an empty one where absent."""
        return FieldReader(self.get(key), self.at(key), self.faults)

    def sequence(self, key: str, most: int) -> Sequence[Any]:
        """The list at `key`, empty where absent."""
        value = self.get(key)
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            self.fault(key, value, "write a list")
            return ()
        if len(value) > most:
            self.fault(key, None, f"must have at most {most} items; has {len(value)}")
        return value[:most]

    def sections(self, key: str, most: int) -> Iterator["FieldReader"]:
        """The mappings of the list at `key`."""
        for index, item in enumerate(self.sequence(key, most)):
            yield FieldReader({} if item is None else item, f"{self.at(key)}[{index}]", self.faults)

    def quantity_text(self, key: str) -> str:
        """A quantity or percentage as text, from a text or a whole number; empty where absent or faulty."""
        value = self.get(key)
        if value is None:
            return ""
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, str) and value and len(value) <= _LONGEST_QUANTITY:
            return value
        quoted = f': "{value}"' if isinstance(value, float) else ""
        self.fault(key, value, f"write an integer, or a quantity in quotes{quoted}")
        return ""

    def close(self) -> None:
        """Add a fault for every key that was not read."""
        for key in self._data.keys() - self._read:
            known = ", ".join(sorted(self._read))
            advice = f"unknown field{closest(str(key), self._read)}; known are {known}"
            self.fault(str(key), self._data[key], advice)
