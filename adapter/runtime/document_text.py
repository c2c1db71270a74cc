"""Parses the text of a document (JSON, else YAML) within bounds, so that hostile texts fail fast.

YAML is built from its events, without recursion; an alias counts with its whole expanded value. A repeated key is a
fault, in JSON too, where both formats would let the last one win. Keys are texts, as in JSON.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from adapter.runtime.faults import Fault, path_of

LARGEST_BYTES = 16 * 2**20
MOST_VALUES = 500_000
MOST_YAML_VALUES = 200_000
"""YAML takes several times as long as JSON. Keys count too."""
DEEPEST = 64
LONGEST_TEXT = 2**18
"""As long as all annotations of an object together may be."""
LONGEST_NUMBER = 64
"""Digits and signs; the largest quantity has 19."""

Path = tuple[str | int, ...]

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_KNOWN_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "merge")}
_CONTAINER_TAGS = {None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}
_STRING, _INT, _FLOAT, _BOOL, _NULL, _MERGE = (
    f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "merge")
)
# Times stay the text that the API writes.
_RESOLVERS = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag in _KNOWN_TAGS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_BOOLS = yaml.SafeLoader.bool_values
_SIMPLE = yaml.constructor.SafeConstructor()


class TextError(Exception):
    """A text is not a usable document; `faults` say why.

    Paths of faults in one of many documents begin with its number (`[0].spec`), with which `document` is set.
    """

    def __init__(self, *faults: Fault, document: int | None = None) -> None:
        self.faults, self.document = faults, document
        super().__init__("; ".join(map(str, faults)))


def read_document(text: str) -> Any:
    """The data of a JSON or YAML text. Raises TextError with every fault, or with the one that ended parsing."""
    if len(text) > LARGEST_BYTES:
        raise TextError(too_large_fault())
    text = text.removeprefix("\ufeff")
    data = _json(text) if text.lstrip()[:1] in {"{", "["} else _NOT_JSON
    if isinstance(data, _NotJson):
        data = _yaml(text, data.reason)
    if faults := list(_faults(data)):
        raise TextError(*faults)
    return data


def read_documents(text: str) -> list[Any]:
    """The data of every document of a JSON or YAML text (`---` between them), without empty ones. Raises TextError."""
    if len(text) > LARGEST_BYTES:
        raise TextError(too_large_fault())
    text = text.removeprefix("\ufeff")
    data = _json(text) if text.lstrip()[:1] in {"{", "["} else _NOT_JSON
    found = _yaml(text, data.reason, many=True) if isinstance(data, _NotJson) else [data]
    documents = [one for one in found if one is not None]
    for number, one in enumerate(documents):
        if faults := list(_faults(one, (number,))):
            raise TextError(*faults, document=number)
    return documents


def too_large_fault() -> Fault:
    """The fault of a document of more than LARGEST_BYTES."""
    most = LARGEST_BYTES // 2**20
    return Fault("", None, f"the document is larger than {most} MiB; leave out what has no bearing (managedFields)")


class _Number(NamedTuple):
    """A number with too many digits."""

    text: str


class _Members(dict[str, Any]):
    """A mapping with its repeated keys."""

    repeated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _NotJson:
    reason: str = ""


_NOT_JSON = _NotJson()


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_members, parse_int=_integer)
    except RecursionError:
        raise TextError(_too_deep()) from None
    except ValueError as error:
        return _NotJson(str(error))


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    return members if len(members) == len(pairs) else _with_repeated(members, [key for key, _ in pairs])


def _with_repeated(known: dict[str, Any], keys: list[str]) -> dict[str, Any]:
    members = _Members(known)
    once: set[str] = set()
    members.repeated = tuple(dict.fromkeys(key for key in keys if key in once or once.add(key)))  # type: ignore[func-returns-value]
    return members


def _integer(text: str) -> Any:
    return int(text) if len(text) <= LONGEST_NUMBER else _Number(text)


def _too_deep() -> Fault:
    return Fault("", None, f"is nested more than {DEEPEST} levels deep; no object of Kubernetes is")


def _too_many(most: int) -> Fault:
    advice = "give the document as JSON (kubectl get -o json), or leave out what has no bearing"
    if most == MOST_VALUES:
        advice = "leave out what has no bearing (managedFields)"
    return Fault("", None, f"holds more than {most} values, aliases counted as often as they are used; {advice}")


def _faults(data: Any, at: Path = ()) -> Iterator[Fault]:
    """The faults of all values. Raises TextError for too many values or too deep nesting."""
    left: list[tuple[Path, Any]] = [(at, data)]
    known = 1
    while left:
        path, value = left.pop()
        if isinstance(value, dict):
            yield from _key_faults(path, value)
            left += [((*path, key), one) for key, one in value.items() if _may_be_wrong(one)]
            known += len(value)
        elif isinstance(value, list):
            left += [((*path, index), one) for index, one in enumerate(value) if _may_be_wrong(one)]
            known += len(value)
        elif isinstance(value, _Number):
            yield Fault(
                path_of(path), f"{value.text[:20]}…", f"is a number of {len(value.text)} digits; no number here has"
            )
        elif isinstance(value, str):
            yield from _text_faults(path, value)
        if known > MOST_VALUES:
            raise TextError(_too_many(MOST_VALUES))
        if len(path) > DEEPEST:
            raise TextError(_too_deep())


def _may_be_wrong(value: object) -> bool:
    if isinstance(value, str):
        return len(value) > LONGEST_TEXT or not value.isascii()
    return isinstance(value, dict | list | _Number)


def _text_faults(path: Path, value: str) -> Iterator[Fault]:
    if len(value) > LONGEST_TEXT:
        advice = f"has {len(value)} characters; at most {LONGEST_TEXT} are read"
        yield Fault(path_of(path), f"{value[:20]}…", advice)
    elif not _is_text(value):
        yield Fault(path_of(path), value, "holds half a character (a lone surrogate); write the text as UTF-8")


def _key_faults(path: Path, members: dict[str, Any]) -> Iterator[Fault]:
    for key in members.repeated if isinstance(members, _Members) else ():
        yield Fault(path_of((*path, key)), members[key], "is a key that stands here more than once; keep one of them")
    for key in members:
        if not _is_text(key):
            yield Fault(path_of(path), key, "holds half a character (a lone surrogate); write the key as UTF-8")


def _is_text(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def values_at(value: Any, place: Sequence[str], at: Path) -> Iterator[tuple[Path, object]]:
    """The values at a place, with their paths; lists are searched item by item."""
    if isinstance(value, list):
        for index, one in enumerate(value):
            yield from values_at(one, place, (*at, index))
    elif not place:
        yield at, value
    elif isinstance(value, Mapping) and place[0] in value:
        yield from values_at(value[place[0]], place[1:], (*at, place[0]))


# --- YAML ---


class _Sized(NamedTuple):
    """A value with its number of values and characters after expanding every alias."""

    value: Any
    values: int
    characters: int


@dataclass(slots=True)
class _Open:
    """An open mapping or list. `key` is the mapping's next key where that is known."""

    anchor: str | None
    items: list[Any] | None = None
    members: list[tuple[str, Any]] = field(default_factory=list)
    merged: dict[str, Any] = field(default_factory=dict)
    key: str | None = None
    is_merge: bool = False
    values: int = 1
    characters: int = 0


def _yaml(text: str, json_reason: str, *, many: bool = False) -> Any:
    try:
        documents = _Builder(many=many).build(text)
        return documents if many else next(iter(documents), None)
    except (yaml.YAMLError, ValueError) as error:
        reason = f"is no JSON ({json_reason}) and no YAML: " if json_reason else "is no YAML: "
        raise TextError(Fault("", None, f"{reason}{' '.join(str(error).split())}")) from error


class _Builder:
    """Builds data from YAML events."""

    def __init__(self, *, many: bool) -> None:
        self._many = many
        self._open: list[_Open] = []
        self._anchors: dict[str, _Sized] = {}
        self._roots: list[Any] = []
        self._values = 0

    def build(self, text: str) -> list[Any]:
        """The data of each document of the text; of the only one unless there may be `many`."""
        for event in yaml.parse(text, Loader=_Loader):
            match event:
                case yaml.ScalarEvent():
                    self._scalar(event)
                case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                    self._begin(event)
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    self._end()
                case yaml.AliasEvent():
                    self._alias(event)
                case yaml.DocumentStartEvent():
                    if self._roots and not self._many:
                        raise self._fault(event, "begins a second document (---); give one at a time")
                    self._anchors.clear()
                case _:
                    pass
        return self._roots

    def _begin(self, event: Any) -> None:
        if event.tag not in _CONTAINER_TAGS:
            raise self._fault(event, f"has the tag {event.tag[:80]}, which is not read here; leave it away")
        if len(self._open) >= DEEPEST:
            raise TextError(_too_deep())
        self._key_must_be_known(event)
        self._anchors.pop(event.anchor, None)
        is_list = isinstance(event, yaml.SequenceStartEvent)
        self._open.append(_Open(event.anchor, items=[] if is_list else None))

    def _end(self) -> None:
        one = self._open.pop()
        value: Any = one.items
        if value is None:
            value = _members(one.members)
            for key, inherited in one.merged.items():
                value.setdefault(key, inherited)
        self._put(_Sized(value, one.values, one.characters), one.anchor)

    def _scalar(self, event: Any) -> None:
        parent = self._open[-1] if self._open else None
        tag = _tag(event)
        if parent is not None and parent.items is None and parent.key is None:
            self._count(1)
            parent.key, parent.is_merge = event.value, tag == _MERGE
            parent.characters += len(event.value)
            if event.anchor:
                self._anchors[event.anchor] = _Sized(event.value, 1, len(event.value))
            return
        value = self._value(event, tag)
        self._put(_Sized(value, 1, len(event.value)), event.anchor)

    def _value(self, event: Any, tag: str) -> Any:
        text = event.value
        if tag in {_STRING, _MERGE}:
            return text
        if tag == _NULL:
            return None
        if tag == _BOOL and text.lower() in _BOOLS:
            return _BOOLS[text.lower()]
        if tag in {_INT, _FLOAT}:
            return self._number(event, tag)
        raise self._fault(event, f"has the tag {tag[:80]}, which does not fit or is not read here; leave it away")

    def _number(self, event: Any, tag: str) -> Any:
        if len(event.value) > LONGEST_NUMBER:
            return _Number(event.value)
        node = yaml.ScalarNode(tag, event.value)
        try:
            return _SIMPLE.construct_yaml_int(node) if tag == _INT else _SIMPLE.construct_yaml_float(node)
        except (ValueError, IndexError):
            raise self._fault(event, f"{event.value!r} is no number") from None

    def _alias(self, event: Any) -> None:
        known = self._anchors.get(event.anchor)
        if known is None:
            name = event.anchor[:80]
            raise self._fault(event, f"*{name} names no value that is complete before it (&{name})")
        parent = self._open[-1] if self._open else None
        if parent is not None and parent.items is None and parent.key is None:
            if not isinstance(known.value, str):
                raise self._fault(event, "is a key that is no text; write the key out")
            parent.key, parent.is_merge = known.value, False
            return
        self._put(known, None, fresh=False)

    def _put(self, sized: _Sized, anchor: str | None, *, fresh: bool = True) -> None:
        """Adds a complete value to the open container, or sets it as the root."""
        self._count(1 if fresh else sized.values)
        if anchor is not None:
            self._anchors[anchor] = sized
        if not self._open:
            self._roots.append(sized.value)
            return
        parent = self._open[-1]
        parent.values += sized.values
        parent.characters += sized.characters
        if parent.values > MOST_VALUES or parent.characters > LARGEST_BYTES:
            raise TextError(_too_many(MOST_YAML_VALUES))
        if parent.items is not None:
            parent.items.append(sized.value)
        elif parent.is_merge:
            _merge(parent, sized.value)
            parent.key, parent.is_merge = None, False
        else:
            assert parent.key is not None
            parent.members.append((parent.key, sized.value))
            parent.key = None

    def _key_must_be_known(self, event: Any) -> None:
        parent = self._open[-1] if self._open else None
        if parent is not None and parent.items is None and parent.key is None:
            raise self._fault(event, "a key must be a text, not a mapping or list")

    def _count(self, values: int) -> None:
        self._values += values
        if self._values > MOST_YAML_VALUES:
            raise TextError(_too_many(MOST_YAML_VALUES))

    def _fault(self, event: Any, advice: str) -> TextError:
        path = [step for one in self._open if (step := _step(one)) is not None]
        mark = event.start_mark
        return TextError(Fault(path_of(path), None, f"{advice} (line {mark.line + 1}, column {mark.column + 1})"))


def _step(one: _Open) -> str | int | None:
    return len(one.items) if one.items is not None else one.key


def _tag(event: Any) -> str:
    """The tag of a scalar: its explicit one, or that of a plain scalar's form."""
    if event.tag is not None and event.tag != "!":
        return str(event.tag)
    if event.style or not event.implicit[0]:
        return _STRING
    text = event.value
    for tag, regexp in _RESOLVERS.get(text[:1], ()):
        if regexp.match(text):
            return str(tag)
    return _STRING


def _merge(into: _Open, value: Any) -> None:
    """`<<`: merges the keys of one mapping, or of several, of which the first wins."""
    mappings = value if isinstance(value, list) else [value]
    if not all(isinstance(one, dict) for one in mappings):
        raise TextError(Fault("", None, "<< takes a mapping, or a list of mappings; write the keys out"))
    for one in mappings:
        for key, inherited in one.items():
            into.merged.setdefault(key, inherited)
