"""PromQL as far as it must be understood here: putting names into it, and finding the series it reads.

An instant query stamps its answer with the moment of evaluation, whatever the age of what went in. So the selectors of
an expression are found, and their newest samples are asked for beside it (`dating`). Nothing else is parsed; what the
tokens do not fit is refused, since Prometheus would refuse it as well.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

INPUT_LABEL = "effective_load_input"
"""The label of a dating query's answer that holds the selector's number."""

MOST_SELECTORS = 200
"""Each is dated, so that many would make a long query of a short one."""

_STEPS = 6
_VARIABLE = re.compile(r"\$(?:\{(namespace|workload)\}|(namespace|workload)\b)", re.ASCII)
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_WORKLOAD = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", re.ASCII)
_PLAIN_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

_TOKEN = re.compile(
    r"""
      (?P<space>   \s+ | \#[^\n]* )
    | (?P<string>  "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' | `[^`]*` )
    | (?P<number>  0[xX][0-9a-fA-F]+ | (?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[a-z0-9_]* )
    | (?P<word>    [A-Za-z_:][A-Za-z0-9_:]* )
    | (?P<sign>    =~ | !~ | [=!<>]= | [-+*/%^=<>(){}\[\],@] )
    """,
    re.VERBOSE,
)

_GROUPINGS = frozenset(
    {"by", "without", "on", "ignoring", "group_left", "group_right", "fill", "fill_left", "fill_right"}
)
_AGGREGATORS = frozenset(
    {
        "sum", "avg", "min", "max", "count", "group", "stddev", "stdvar", "topk", "bottomk", "count_values", "quantile",
        "limitk", "limit_ratio",
    }
)  # fmt: skip
_OTHER_WORDS = frozenset({"and", "or", "unless", "bool", "atan2", "offset", "inf", "nan", "anchored", "smoothed"})
_ALTERNATIVES = frozenset({"or", "unless", "absent", "absent_over_time"})
"""What lets an expression have a value though one of its inputs has none."""

UNKNOWN_WINDOW = 900.0
"""Longer than any load of departed pods is remembered for (seconds)."""
_DURATION = re.compile(r"([0-9]+)(ms|[smhdwy])", re.ASCII)
_DURATIONS = re.compile(rf"({_DURATION.pattern})+", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0, "y": 31_536_000.0}

_CLOSING = {"(": ")", "{": "}", "[": "]"}


class PromqlError(ValueError):
    """An expression that cannot be sent; the text says what to change."""


class Token(NamedTuple):
    """A piece of an expression: its kind (`string`, `number`, `word`, `sign`), its text, and where it stands."""

    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Selector:
    """A selector as it was written, without its range. `shift` is its `offset` or `@`; empty: it reads the present."""

    text: str
    ranged: bool = False
    shift: str = ""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What an expression reads. `alternatives`: it may have a value though some of them have none.

    `window`: how far back (seconds) it reads from the time of its newest samples: its longest range, that of each
    subquery around it, and its longest offset (with subqueries all offsets, for one may hold another). UNKNOWN_WINDOW
    where a duration is an expression of its own.
    """

    selectors: tuple[Selector, ...]
    alternatives: bool = False
    window: float = 0.0


def tokens(text: str) -> Iterator[Token]:
    """The tokens of an expression, spaces and comments left out. Raises PromqlError at what is none."""
    at = 0
    for match in _TOKEN.finditer(text):
        start, end = match.span()
        if start != at:
            break  # what lies between is no token
        kind = match.lastgroup or ""
        if kind != "space":
            yield Token(kind, match[0], start, end)
        at = end
    if at < len(text):
        raise PromqlError(_no_token(text, at))


def _no_token(text: str, at: int) -> str:
    if variable := _VARIABLE.match(text, at):
        return f'{variable[0]} must stand inside quotes, as in {{namespace="$namespace"}}'
    what = "a string without its end" if text[at] in "\"'`" else repr(text[at])
    return f"{what} at character {at + 1} is no PromQL"


def uses_variables(text: str) -> bool:
    """Whether the expression has `$namespace` or `$workload` in it."""
    return _VARIABLE.search(text) is not None


def substitute(text: str, namespace: str, workload: str) -> str:
    """Put the names in place of `$namespace` and `$workload`, inside of strings only.

    In a regular expression (after `=~` and `!~`) their dots are escaped. Raises PromqlError for a name that no
    Kubernetes object can have, and for a variable outside of a string.
    """
    if not uses_variables(text):
        return text
    names = {
        "namespace": _checked("namespace", namespace, _NAMESPACE),
        "workload": _checked("workload", workload, _WORKLOAD),
    }
    done, at, before = [], 0, ""
    for token in tokens(text):
        if token.kind == "string":
            dot = "." if before not in {"=~", "!~"} else r"\." if token.text[0] == "`" else r"\\."
            done += [text[at : token.start], _filled(token.text, names, dot)]
            at = token.end
        before = token.text
    return "".join([*done, text[at:]])


def _filled(string: str, names: dict[str, str], dot: str) -> str:
    return _VARIABLE.sub(lambda match: names[match[1] or match[2]].replace(".", dot), string)


def _checked(what: str, name: str, pattern: re.Pattern[str]) -> str:
    if not pattern.fullmatch(name):
        raise PromqlError(f"{name[:80]!r} is no {what}'s name; it cannot be put into a query")
    return name


def inputs(text: str) -> Inputs:
    """The selectors of an expression, each once, in order. Raises PromqlError for what cannot be read."""
    return _Scan(text).inputs()


class _Scan:
    """One walk along the tokens."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(tokens(text))
        self._at = 0
        self._found: list[Selector] = []
        self._alternatives = False
        self._subquery = False
        self._longest_range = 0.0
        self._subqueries = 0.0
        self._offsets = [0.0]

    def inputs(self) -> Inputs:
        while self._at < len(self._tokens):
            self._step(self._tokens[self._at])
        chosen = [s for s in self._found if not s.shift] or self._found
        # Inside a subquery an instant selector is read over a range as well; which ones are is not worth knowing.
        chosen = [Selector(s.text, s.ranged or self._subquery, s.shift) for s in chosen]
        offset = sum(self._offsets) if self._subquery else max(self._offsets)
        window = self._longest_range + self._subqueries + offset
        return Inputs(tuple(dict.fromkeys(chosen)), self._alternatives, window)

    def _step(self, token: Token) -> None:
        if token.kind == "word":
            self._word(token)
        elif token.text == "{":
            self._selector(token)
        elif token.text == "[":
            self._range()
        elif token.text == "@":
            self._offset()
        else:
            self._at += 1

    def _word(self, token: Token) -> None:
        word, following = token.text.lower(), self._peek(1)
        if word in _ALTERNATIVES and (following == "(" or word in _OTHER_WORDS):
            self._alternatives = True
        if word in _GROUPINGS:
            self._at += 1
            if following == "(":
                self._skip_group()
        elif word == "offset":
            self._offset()
        elif word in _OTHER_WORDS or following == "(" or self._is_aggregator(word, following):
            self._at += 1
        else:
            self._selector(token)

    def _is_aggregator(self, word: str, following: str) -> bool:
        return word in _AGGREGATORS and following.lower() in {"by", "without"}

    def _selector(self, first: Token) -> None:
        if first.kind == "word":
            self._at += 1
        if self._peek() == "{":
            self._skip_group()
        text = self._text[first.start : self._tokens[self._at - 1].end]
        ranged = self._peek() == "["
        if ranged:
            self._range()
        self._found.append(Selector(text, ranged, self._shift()))
        if len(self._found) > MOST_SELECTORS:
            raise PromqlError(f"the expression has more than {MOST_SELECTORS} selectors; record a part of it by a rule")

    def _range(self) -> None:
        """Past `[5m]`, or past the `[5m:1m]` of a subquery."""
        start = self._tokens[self._at].end
        self._skip_group()
        text, colon, _ = self._text[start : self._tokens[self._at - 1].start].partition(":")
        if colon:
            self._subquery = True
            self._subqueries += _duration(text)
        else:
            self._longest_range = max(self._longest_range, _duration(text))

    def _shift(self) -> str:
        start = self._at
        while self._peek().lower() in {"offset", "@"}:
            self._offset()
        if start == self._at:
            return ""
        return self._text[self._tokens[start].start : self._tokens[self._at - 1].end]

    def _offset(self) -> None:
        """Past `offset 5m`, or past `@ …`, which names a time and no distance."""
        is_offset = self._peek().lower() == "offset"
        self._at += 1
        start = self._at
        self._skip_moment()
        if is_offset:
            text = self._text[self._tokens[start].start : self._tokens[self._at - 1].end]
            # What lies ahead of the present reaches back no further.
            self._offsets.append(0.0 if text.startswith("-") else _duration(text))

    def _skip_moment(self) -> None:
        """Past what follows `offset` or `@`: `5m`, `-5m`, `1700000000.5`, `start()`, `(1m + 30s)`."""
        while self._peek() in {"+", "-"}:
            self._at += 1
        if self._at >= len(self._tokens):
            raise PromqlError("the expression ends where a time is wanted, after offset or @")
        if self._peek() != "(":
            self._at += 1
            if self._peek() != "(" or self._tokens[self._at - 1].kind != "word":
                return
        self._skip_group()

    def _skip_group(self) -> None:
        """Past a bracket and all that it holds."""
        waiting: list[str] = []
        for index in range(self._at, len(self._tokens)):
            text = self._tokens[index].text
            if text in _CLOSING:
                waiting.append(_CLOSING[text])
            elif waiting and text == waiting[-1]:
                waiting.pop()
            if not waiting:
                self._at = index + 1
                return
        raise PromqlError(f"{self._tokens[self._at].text!r} is never closed")

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at].text if at < len(self._tokens) else ""


def _duration(text: str) -> float:
    """Seconds of `5m`, `1h30m` or plain seconds; UNKNOWN_WINDOW for what has to be computed."""
    text = "".join(text.split()).removeprefix("+")
    try:
        if _DURATIONS.fullmatch(text):
            seconds = sum(float(number) * _SECONDS[unit] for number, unit in _DURATION.findall(text))
        else:
            seconds = float(text)
    except ValueError:
        return UNKNOWN_WINDOW
    return seconds if math.isfinite(seconds) else UNKNOWN_WINDOW


def dating(selectors: Sequence[Selector], labels: Iterable[str], max_age: float) -> str:
    """The query for the newest sample's time (seconds) of each selector, by these labels, numbered by INPUT_LABEL.

    Send it with the `time` of the answer that is dated and `lookback_delta` as there: an instant selector then finds
    nothing older than `max_age` seconds. A selector with a range still reads samples of a series that has ended, or
    that missed a scrape, so the last ones are looked for in steps of a sixth of `max_age`.
    """
    by = ", ".join(_label(label) for label in labels)
    parts = [
        f'label_replace(max by ({by}) ({_times(selector, max_age)}), "{INPUT_LABEL}", "{number}", "", "")'
        for number, selector in enumerate(selectors)
    ]
    return "\nor ".join(parts)


def _times(selector: Selector, max_age: float) -> str:
    now = f"timestamp({' '.join(filter(None, (selector.text, selector.shift)))})"
    if not selector.ranged or selector.shift:
        return now
    window = max(_STEPS, round(max_age * 1000))
    return f"{now} or max_over_time({now}[{window}ms:{window // _STEPS}ms])"


def _label(name: str) -> str:
    """A label's name in a grouping; what is more than letters, digits and _ is quoted, as Prometheus 3 wants it."""
    if _PLAIN_LABEL.fullmatch(name):
        return name
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
