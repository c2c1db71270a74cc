"""Label selectors: the full grammar of `k8s.io/apimachinery/pkg/labels`, matched and written in canonical form.

    selector    = [ requirement { "," requirement } ]
    requirement = KEY | "!" KEY | KEY ("=" | "==" | "!=" | ">" | "<") [VALUE] | KEY ("in" | "notin") "(" values ")"

An absent key satisfies `!=` and `notin`; `>` and `<` compare 64-bit integers and nothing else satisfies them.

Tenants write selectors in workloads and requests, so their length and the number of their parts are bounded: parsing
the largest takes 3 ms. Selectors of workloads have a handful of requirements.
"""

import functools
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

_TOKEN = re.compile(r"==|!=|[=!<>(),]|[^=!<>(), \t\r\n]+")  # what is between tokens is white space
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_DNS = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_SPECIAL = frozenset("=!<>(),") | {"==", "!="}
_INT64 = 1 << 63

LONGEST_SELECTOR = 16 * 1024
"""Characters of a selector's text."""
MOST_REQUIREMENTS = 256
MOST_SELECTOR_VALUES = 1024
"""Values of all requirements together."""
_SMALL_LENGTH = 512
_SMALL_COMMAS = 8


class SelectorError(ValueError):
    """The text is not a label selector; the message names the text and the fault."""


class Operator(StrEnum):
    """How a requirement compares; `=`, `==` and a one-valued `in` are all IN."""

    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    ABSENT = "!"
    GREATER = ">"
    LESS = "<"


@dataclass(frozen=True, slots=True, order=True)
class Requirement:
    """One condition on one label; `values` are sorted and without repetition."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet this condition."""
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN:
                return self._lists(value)
            case Operator.NOT_IN:
                return not self._lists(value)
            case Operator.EXISTS:
                return value is not None
            case Operator.ABSENT:
                return value is None
            case Operator.GREATER:
                return (number := _integer(value)) is not None and number > int(self.values[0])
            case Operator.LESS:
                return (number := _integer(value)) is not None and number < int(self.values[0])

    def _lists(self, value: str | None) -> bool:
        if value is None or len(self.values) < 8:
            return value in self.values
        place = bisect_left(self.values, value)
        return place < len(self.values) and self.values[place] == value

    def __str__(self) -> str:
        match self.operator:
            case Operator.EXISTS:
                return self.key
            case Operator.ABSENT:
                return f"!{self.key}"
            case Operator.GREATER | Operator.LESS:
                return f"{self.key}{self.operator}{self.values[0]}"
            case Operator.IN | Operator.NOT_IN if len(self.values) == 1:
                return f"{self.key}{'=' if self.operator is Operator.IN else '!='}{self.values[0]}"
            case _:
                return f"{self.key} {self.operator} ({','.join(self.values)})"


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements, sorted; an empty selector matches everything. `str` gives the canonical text."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet every requirement."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    def value(self, key: str) -> str | None:
        """The one value of this label that it selects; None where it does not name one."""
        named = (
            requirement.values
            for requirement in self.requirements
            if requirement.key == key and requirement.operator is Operator.IN
        )
        return next((values[0] for values in named if len(values) == 1), None)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


def is_small(text: str) -> bool:
    """Whether a text, percent-encoded or not, is small enough to be cached."""
    return len(text) <= _SMALL_LENGTH and text.count(",") + text.count("%2C") + text.count("%2c") <= _SMALL_COMMAS


def parse_selector(text: str) -> LabelSelector:
    """Parses a selector. Raises SelectorError, which names the fault and what was expected.

    Small texts are cached: the same few occur again and again.
    """
    return parse_cached(text) if is_small(text) else _parse(text)


def _parse(text: str) -> LabelSelector:
    reader = _Reader(text)
    requirements: set[Requirement] = set()
    if not reader.done:
        requirements.add(_requirement(reader))
        while not reader.done:
            reader.take_symbol(",")
            requirements.add(_requirement(reader))
            if len(requirements) > MOST_REQUIREMENTS:
                raise reader.refusal(f"it has more than {MOST_REQUIREMENTS} requirements, and no more are read")
    if sum(len(each.values) for each in requirements) > MOST_SELECTOR_VALUES:
        raise reader.refusal(f"it lists more than {MOST_SELECTOR_VALUES} values, and no more are read")
    return LabelSelector(tuple(sorted(requirements)))


parse_cached = functools.lru_cache(maxsize=4096)(_parse)


def canonical(text: str) -> str:
    """The canonical text of a selector; an invalid one comes back unchanged."""
    try:
        return str(parse_selector(text))
    except SelectorError:
        return text


def from_label_selector(
    match_labels: Mapping[str, str] | None, match_expressions: Iterable[tuple[str, str, Collection[str]]] = ()
) -> LabelSelector:
    """A metav1.LabelSelector: labels, and (key, In | NotIn | Exists | DoesNotExist, values). Raises SelectorError."""
    match_expressions = tuple(match_expressions)
    listed = sum(len(values) for _, _, values in match_expressions)
    if len(match_labels or ()) + len(match_expressions) > MOST_REQUIREMENTS or listed > MOST_SELECTOR_VALUES:
        most = f"{MOST_REQUIREMENTS} requirements and {MOST_SELECTOR_VALUES} values"
        raise SelectorError(f"the selector has more than {most}, and no more are read")
    requirements = {Requirement(key, Operator.IN, (value,)) for key, value in (match_labels or {}).items()}
    for key, operator, values in match_expressions:
        if operator not in _EXPRESSIONS:
            raise SelectorError(f"{operator!r} is no operator of matchExpressions; {', '.join(_EXPRESSIONS)} are")
        requirements.add(Requirement(key, _EXPRESSIONS[operator], tuple(sorted(set(values)))))
    return LabelSelector(tuple(sorted(requirements)))


_EXPRESSIONS = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.ABSENT,
}
_OPERATORS = {
    "=": Operator.IN,
    "==": Operator.IN,
    "!=": Operator.NOT_IN,
    ">": Operator.GREATER,
    "<": Operator.LESS,
    "in": Operator.IN,
    "notin": Operator.NOT_IN,
}


class _Reader:
    """The tokens of a selector; an empty token marks the end."""

    def __init__(self, text: str) -> None:
        self._text = text
        if len(text) > LONGEST_SELECTOR:
            raise self.refusal(f"it has {len(text)} characters, at most {LONGEST_SELECTOR} are read")
        commas = text.count(",")
        if commas > MOST_REQUIREMENTS + MOST_SELECTOR_VALUES:  # counted before the text is split
            most = f"{MOST_REQUIREMENTS} requirements and {MOST_SELECTOR_VALUES} values"
            raise self.refusal(f"it has {commas} commas, more than {most} have")
        self._tokens = _TOKEN.findall(text)
        self._next = 0

    @property
    def done(self) -> bool:
        return self._next == len(self._tokens)

    def peek(self) -> str:
        return "" if self.done else self._tokens[self._next]

    def take(self) -> str:
        token = self.peek()
        self._next += 1
        return token

    def take_symbol(self, symbol: str) -> None:
        if self.peek() != symbol:
            raise self.fault(repr(symbol))
        self.take()

    def fault(self, expected: str) -> SelectorError:
        token = repr(self.peek()[:80]) if self.peek() else "the end"
        return SelectorError(f"selector {self._text[:120]!r}: found {token} where {expected} belongs")

    def refusal(self, what: str) -> SelectorError:
        return SelectorError(f"selector {self._text[:120]!r}: {what}")


def _requirement(reader: _Reader) -> Requirement:
    if reader.peek() == "!":
        reader.take()
        return Requirement(_key(reader), Operator.ABSENT)
    key = _key(reader)
    symbol = reader.peek()
    if symbol in {"", ","}:
        return Requirement(key, Operator.EXISTS)
    operator = _OPERATORS.get(symbol)
    if operator is None:
        raise reader.fault("one of =, ==, !=, in, notin, >, <")
    reader.take()
    if symbol in {"in", "notin"}:
        reader.take_symbol("(")
        values = {_value(reader, _LIST_ENDS, "a label value or ')'")}
        while reader.peek() == ",":
            reader.take()
            values.add(_value(reader, _LIST_ENDS, "a label value or ')'"))
        reader.take_symbol(")")
        return Requirement(key, operator, tuple(sorted(values)))
    value = _value(reader, _REQUIREMENT_ENDS, "a label value")
    if operator in {Operator.GREATER, Operator.LESS} and _integer(value) is None:
        raise reader.refusal(f"{value!r} is no integer, which > and < compare with")
    return Requirement(key, operator, (value,))


def _key(reader: _Reader) -> str:
    if reader.peek() in _SPECIAL or reader.done:
        raise reader.fault("a label key")
    key = reader.take()
    prefix, slash, name = key.rpartition("/")
    if len(name) > 63 or _NAME.fullmatch(name) is None:
        raise reader.refusal(f"{key[:80]!r} is no label key (letters, digits, '-', '_', '.'; at most 63)")
    if slash and (len(prefix) > 253 or _DNS.fullmatch(prefix) is None):
        raise reader.refusal(f"{prefix[:80]!r} is no DNS name, which the part of a label key before '/' has to be")
    return key


_REQUIREMENT_ENDS, _LIST_ENDS = {"", ","}, {",", ")"}


def _value(reader: _Reader, ends: Collection[str], expected: str) -> str:
    """A label value. One of `ends` in its place stands for the empty one: `a=`, `a in (b,,c)`."""
    value = reader.peek()
    if value in ends:
        return ""
    if value in _SPECIAL or reader.done:
        raise reader.fault(expected)
    reader.take()
    if len(value) > 63 or _NAME.fullmatch(value) is None:
        raise reader.refusal(f"{value[:80]!r} is no label value (letters, digits, '-', '_', '.'; at most 63)")
    return value


def _integer(value: str | None) -> int | None:
    if value is None or len(value) > 63 or _INTEGER.fullmatch(value) is None:
        return None
    number = int(value)
    return number if -_INT64 <= number < _INT64 else None
