"""Label selectors: the full grammar of `k8s.io/apimachinery/pkg/labels`, matched and written in canonical form.

    selector    = [ requirement { "," requirement } ]
    requirement = KEY | "!" KEY | KEY ("=" | "==" | "!=" | ">" | "<") [VALUE] | KEY ("in" | "notin") "(" values ")"

An absent key satisfies `!=` and `notin`; `>` and `<` compare 64-bit integers and nothing else satisfies them.
"""

import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

LONGEST_SELECTOR = 16 * 1024
"""Characters of a selector's text: users write it in requests, and parsing the longest takes some milliseconds."""

_REQUIREMENT = re.compile(
    r"[ ]* (?: ! [ ]* (?P<absent>TEXT+)"
    r"       | (?P<key>TEXT+) (?: [ ]* (?P<compares>==|!=|[=<>]) [ ]* (?P<value>TEXT*)"
    r"                          | [ ]+ (?P<lists>in|notin) [ ]* \( (?P<values>[^()=!<>]*) \) )?"
    r"     ) [ ]* (?P<end>,|$)".replace("[ ]", r"[ \t\r\n]").replace("TEXT", r"[^=!<>(), \t\r\n]"),
    re.VERBOSE,
)
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]", re.ASCII)
_DNS = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_INT64 = 1 << 63
_CACHED_LENGTH = 512


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


_OPERATORS = {"=": Operator.IN, "==": Operator.IN, "!=": Operator.NOT_IN, ">": Operator.GREATER, "<": Operator.LESS}
_EXPRESSIONS = {"In": Operator.IN, "NotIn": Operator.NOT_IN, "Exists": Operator.EXISTS, "DoesNotExist": Operator.ABSENT}


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
                return value in self.values
            case Operator.NOT_IN:
                return value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.ABSENT:
                return value is None
            case _:
                number, bound = _integer(value), int(self.values[0])
                return number is not None and (number > bound if self.operator is Operator.GREATER else number < bound)

    def __str__(self) -> str:
        match self.operator:
            case Operator.EXISTS:
                return self.key
            case Operator.ABSENT:
                return f"!{self.key}"
            case Operator.IN | Operator.NOT_IN if len(self.values) != 1:
                return f"{self.key} {self.operator} ({','.join(self.values)})"
        sign = {Operator.IN: "=", Operator.NOT_IN: "!="}.get(self.operator, self.operator)
        return f"{self.key}{sign}{self.values[0]}"


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements, sorted; an empty selector matches everything. `str` gives the canonical text."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet every requirement."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    def value(self, key: str) -> str | None:
        """The one value of this label that it selects; None where it does not name one."""
        named = (each.values for each in self.requirements if each.key == key and each.operator is Operator.IN)
        return next((values[0] for values in named if len(values) == 1), None)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


def parse_selector(text: str) -> LabelSelector:
    """Parses a selector. Raises SelectorError. Short texts are cached: the same few occur again and again."""
    return _parse_cached(text) if len(text) <= _CACHED_LENGTH else _parse(text)


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
    requirements = {Requirement(key, Operator.IN, (value,)) for key, value in (match_labels or {}).items()}
    for key, operator, values in match_expressions:
        if operator not in _EXPRESSIONS:
            raise SelectorError(f"{operator!r} is not an operator of matchExpressions; {', '.join(_EXPRESSIONS)} are")
        requirements.add(Requirement(key, _EXPRESSIONS[operator], tuple(sorted(set(values)))))
    return LabelSelector(tuple(sorted(requirements)))


def _parse(text: str) -> LabelSelector:
    def refusal(fault: str) -> SelectorError:
        return SelectorError(f"selector {text[:120]!r}: {fault}")

    if len(text) > LONGEST_SELECTOR:
        raise refusal(f"it has {len(text)} characters, at most {LONGEST_SELECTOR} are read")
    requirements: set[Requirement] = set()
    at, more = 0, bool(text.strip(" \t\r\n"))
    while more:
        found = _REQUIREMENT.match(text, at)
        if found is None:
            rest = text[at:].strip()[:80]
            begins = f"{rest!r} begins with no" if rest else "it ends without a"
            raise refusal(f"{begins} requirement: KEY, !KEY, KEY=VALUE, KEY!=VALUE, KEY in (VALUE, …), KEY>NUMBER")
        requirements.add(_requirement(found, refusal))
        at, more = found.end(), found["end"] == ","
    return LabelSelector(tuple(sorted(requirements)))


_parse_cached = functools.lru_cache(maxsize=4096)(_parse)


def _requirement(found: re.Match[str], refusal: Callable[[str], SelectorError]) -> Requirement:
    key = found["absent"] or found["key"]
    prefix, slash, name = key.rpartition("/")
    if _NAME.fullmatch(name) is None:
        raise refusal(f"{key[:80]!r} is not a label key (letters, digits, '-', '_', '.'; at most 63)")
    if slash and (len(prefix) > 253 or _DNS.fullmatch(prefix) is None):
        raise refusal(f"{prefix[:80]!r} is not a DNS name, which the part of a label key before '/' has to be")
    if found["absent"]:
        return Requirement(key, Operator.ABSENT)
    if found["compares"]:
        operator, values = _OPERATORS[found["compares"]], {found["value"]}
    elif found["lists"]:
        operator, values = Operator(found["lists"]), {value.strip(" \t\r\n") for value in found["values"].split(",")}
    else:
        return Requirement(key, Operator.EXISTS)
    for value in values:
        if value and _NAME.fullmatch(value) is None:
            raise refusal(f"{value[:80]!r} is not a label value (letters, digits, '-', '_', '.'; at most 63)")
        if operator in {Operator.GREATER, Operator.LESS} and _integer(value) is None:
            raise refusal(f"{value!r} is not an integer, which > and < compare with")
    return Requirement(key, operator, tuple(sorted(values)))


def _integer(value: str | None) -> int | None:
    if value is None or _INTEGER.fullmatch(value) is None:
        return None
    number = int(value)
    return number if -_INT64 <= number < _INT64 else None
