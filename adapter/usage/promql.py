"""The part of PromQL that this process needs: substitutes variables and finds the vector selectors of an expression.

Prometheus stamps the result of an instant query with the time of its evaluation, however old the samples that it reads.
So a second query asks for the time of each selector's newest sample (`sample_times_query`). The parser reads nothing
else of an expression; it rejects text that is no sequence of PromQL tokens, as Prometheus would.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

INPUT_LABEL = "effective_load_input"
"""The label that holds the selector's number in the result of `sample_times_query`."""

COUNT_LABEL = "effective_load_samples"
"""The label that holds a number of samples in the result of `with_counts` without labels."""

MAX_SELECTORS = 200
"""The query for sample times has a part for each selector, so many make it long."""

_STEPS = 6
_ESCAPED_DOT = "\\\\."
"""A dot in a regular expression in a string of PromQL."""
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
_WHOLE_AT_ANY_COUNT = frozenset(
    {
        "avg_over_time", "min_over_time", "max_over_time", "quantile_over_time", "stddev_over_time", "stdvar_over_time",
        "mad_over_time", "first_over_time", "last_over_time", "present_over_time", "absent_over_time", "irate",
        "idelta", "deriv", "predict_linear", "holt_winters", "double_exponential_smoothing",
    }
)  # fmt: skip
"""Functions over a range that do not sink where their window holds fewer samples; all others count as if they did."""
_ALTERNATIVES = frozenset({"or", "unless", "absent", "absent_over_time"})
"""Operators and functions whose result may have a value although one of their inputs has none."""

UNKNOWN_WINDOW = 900.0
"""Longer than the load of departed pods is remembered (seconds)."""
_DURATION = re.compile(r"([0-9]+)(ms|[smhdwy])", re.ASCII)
_DURATIONS = re.compile(rf"({_DURATION.pattern})+", re.ASCII)
_OFFSET = re.compile(rf"offset\s+({_DURATIONS.pattern})", re.ASCII | re.IGNORECASE)
"""The shift of a selector that is a positive offset and nothing else."""
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0, "y": 31_536_000.0}

_CLOSING = {"(": ")", "{": "}", "[": "]"}


class PromqlError(ValueError):
    """An expression that cannot be sent; the text says what to change."""


class PromqlToken(NamedTuple):
    """A token of an expression: kind (`string`, `number`, `word`, `sign`), text, and position."""

    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class VectorSelector:
    """A selector as written, without its range. `shift` is its `offset` or `@` modifier; empty: it has none."""

    text: str
    ranged: bool = False
    shift: str = ""


class RateWindow(NamedTuple):
    """What `rate` and the like read: a value that sinks where the range (seconds) holds fewer samples."""

    selector: VectorSelector
    seconds: float


@dataclass(frozen=True, slots=True)
class QueryInputs:
    """The selectors of an expression. `alternatives`: it may have a value although some of them have none.

    `window`: how far back (seconds) it reads from the time of its newest samples: the longest range, plus the range of
    every subquery, plus the longest offset (with subqueries all offsets, since they may nest). UNKNOWN_WINDOW if a
    duration is itself an expression. `behind`: the longest `offset` (seconds) if every selector has one, else 0; the
    times of its samples are that long ago although its series live. `windows` are those whose samples can be counted;
    `uncounted`: of others, as those of subqueries, they cannot.
    """

    selectors: tuple[VectorSelector, ...]
    alternatives: bool = False
    window: float = 0.0
    behind: float = 0.0
    windows: tuple[RateWindow, ...] = ()
    uncounted: bool = False


def tokenize(text: str) -> Iterator[PromqlToken]:
    """The tokens of an expression without spaces and comments. Raises PromqlError at any other text."""
    at = 0
    for match in _TOKEN.finditer(text):
        start, end = match.span()
        if start != at:
            break  # the text in between is no token
        kind = match.lastgroup or ""
        if kind != "space":
            yield PromqlToken(kind, match[0], start, end)
        at = end
    if at < len(text):
        if variable := _VARIABLE.match(text, at):
            raise PromqlError(f'{variable[0]} must stand inside quotes, as in {{namespace="$namespace"}}')
        what = "a string without its end" if text[at] in "\"'`" else repr(text[at])
        raise PromqlError(f"{what} at character {at + 1} is no PromQL")


def uses_variables(text: str) -> bool:
    """Whether the expression contains `$namespace` or `$workload`."""
    return _VARIABLE.search(text) is not None


def substitute(text: str, namespace: str, workload: str) -> str:
    """Replace `$namespace` and `$workload` inside strings by the names.

    In a regular expression (after `=~` and `!~`) it escapes their dots. Raises PromqlError for a name that no
    Kubernetes object can have, and for a variable outside a string.
    """
    if not uses_variables(text):
        return text
    names = {"namespace": namespace, "workload": workload}
    for kind, pattern in (("namespace", _NAMESPACE), ("workload", _WORKLOAD)):
        if not pattern.fullmatch(names[kind]):
            raise PromqlError(f"{names[kind][:80]!r} is no {kind}'s name; it cannot be put into a query")
    parts, at, last = [], 0, ""
    for token in tokenize(text):
        if token.kind == "string":
            dot = "." if last not in {"=~", "!~"} else r"\." if token.text[0] == "`" else r"\\."
            escaped = {kind: name.replace(".", dot) for kind, name in names.items()}
            for match in _VARIABLE.finditer(text, token.start, token.end):
                parts += [text[at : match.start()], escaped[match[1] or match[2]]]
                at = match.end()
        last = token.text
    return "".join([*parts, text[at:]])


def parse_inputs(text: str) -> QueryInputs:
    """The distinct selectors of an expression in order. Raises PromqlError for text that is no PromQL."""
    return _Scanner(text).inputs()


class _Scanner:
    """Walks along the tokens of an expression once, and collects its selectors and durations."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(tokenize(text))
        self._at = 0
        self._selectors: list[VectorSelector] = []
        self._windows: list[RateWindow] = []
        self._uncounted = False
        self._functions: list[str] = []
        """The word before each open parenthesis."""
        self._alternatives = False
        self._subquery = False
        self._longest_range = 0.0
        self._subqueries = 0.0
        self._offsets = [0.0]

    def inputs(self) -> QueryInputs:
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            if token.kind == "word":
                self._word(token)
            elif token.text == "{":
                self._selector(token)
            elif token.text == "[":
                self._range()
            elif token.text == "@":
                self._offset()
            else:
                if token.text == "(":
                    before = self._tokens[self._at - 1] if self._at else token
                    self._functions.append(before.text.lower() if before.kind == "word" else "")
                elif token.text == ")" and self._functions:
                    self._functions.pop()
                self._at += 1
        selectors = [s for s in self._selectors if not s.shift] or self._selectors
        # A subquery reads its instant selectors over a range; which selectors are inside of one is not tracked.
        selectors = [VectorSelector(s.text, s.ranged or self._subquery, s.shift) for s in selectors]
        # 0 if a selector has no offset, a negative one, or reads at a fixed time (`@`).
        behinds = [_OFFSET.fullmatch(selector.shift) for selector in selectors]
        behind = max((_duration(each[1]) for each in behinds if each), default=0.0) if all(behinds) else 0.0
        offset = sum(self._offsets) if self._subquery else max(self._offsets)
        return QueryInputs(
            tuple(dict.fromkeys(selectors)),
            self._alternatives,
            self._longest_range + self._subqueries + offset,
            behind,
            () if self._uncounted else tuple(dict.fromkeys(self._windows)),
            self._uncounted,
        )

    def _word(self, token: PromqlToken) -> None:
        word, following = token.text.lower(), self._peek(1)
        if word in _ALTERNATIVES and (following == "(" or word in _OTHER_WORDS):
            self._alternatives = True
        if word in _GROUPINGS:
            self._at += 1
            if following == "(":
                self._skip_group()
        elif word == "offset":
            self._offset()
        elif (
            word in _OTHER_WORDS
            or following == "("
            or (word in _AGGREGATORS and following.lower() in {"by", "without"})
        ):
            self._at += 1
        else:
            self._selector(token)

    def _selector(self, first: PromqlToken) -> None:
        if first.kind == "word":
            self._at += 1
        if self._peek() == "{":
            self._skip_group()
        text = self._text[first.start : self._tokens[self._at - 1].end]
        ranged = self._peek() == "["
        seconds = self._range() if ranged else 0.0
        start = self._at
        while self._peek().lower() in {"offset", "@"}:
            self._offset()
        shift = "" if start == self._at else self._text[self._tokens[start].start : self._tokens[self._at - 1].end]
        selector = VectorSelector(text, ranged, shift)
        self._selectors.append(selector)
        function = next(filter(None, reversed(self._functions)), "")
        if ranged and function not in _WHOLE_AT_ANY_COUNT:
            self._windows.append(RateWindow(selector, seconds))
            self._uncounted |= not seconds
        if len(self._selectors) > MAX_SELECTORS:
            raise PromqlError(f"the expression has more than {MAX_SELECTORS} selectors; record a part of it by a rule")

    def _range(self) -> float:
        """Skip `[5m]`, or the `[5m:1m]` of a subquery, and note its duration; 0 where it is not known."""
        start = self._tokens[self._at].end
        self._skip_group()
        text, colon, _ = self._text[start : self._tokens[self._at - 1].start].partition(":")
        seconds = _duration(text)
        if colon:
            self._subquery = self._uncounted = True
            self._subqueries += seconds
        else:
            self._longest_range = max(self._longest_range, seconds)
        return 0.0 if colon or seconds == UNKNOWN_WINDOW else seconds

    def _offset(self) -> None:
        """Skip `offset 5m` and note its duration; skip `@ …`, which names a time."""
        is_offset = self._peek().lower() == "offset"
        self._at += 1
        start = self._at
        # The operand: `5m`, `-5m`, `1700000000.5`, `start()`, `(1m + 30s)`.
        while self._peek() in {"+", "-"}:
            self._at += 1
        if self._at >= len(self._tokens):
            raise PromqlError("the expression ends where a time is wanted, after offset or @")
        is_group = self._peek() == "("
        if not is_group:
            is_group = self._tokens[self._at].kind == "word" and self._peek(1) == "("
            self._at += 1
        if is_group:
            self._skip_group()
        if is_offset:
            text = self._text[self._tokens[start].start : self._tokens[self._at - 1].end]
            # A negative offset reads ahead of the present, and no further back.
            self._offsets.append(0.0 if text.startswith("-") else _duration(text))

    def _skip_group(self) -> None:
        open_brackets: list[str] = []
        for index in range(self._at, len(self._tokens)):
            text = self._tokens[index].text
            if text in _CLOSING:
                open_brackets.append(_CLOSING[text])
            elif open_brackets and text == open_brackets[-1]:
                open_brackets.pop()
            if not open_brackets:
                self._at = index + 1
                return
        raise PromqlError(f"{self._tokens[self._at].text!r} is never closed")

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at].text if at < len(self._tokens) else ""


def _duration(text: str) -> float:
    """Seconds of `5m`, `1h30m` or plain seconds; UNKNOWN_WINDOW for an expression."""
    text = "".join(text.split()).removeprefix("+")
    try:
        if _DURATIONS.fullmatch(text):
            seconds = sum(float(number) * _SECONDS[unit] for number, unit in _DURATION.findall(text))
        else:
            seconds = float(text)
    except ValueError:
        return UNKNOWN_WINDOW
    return seconds if math.isfinite(seconds) else UNKNOWN_WINDOW


def sample_times_query(selectors: Sequence[VectorSelector], labels: Iterable[str], max_age: float | None) -> str:
    """A query for the time (seconds) of each selector's newest sample, by these labels.

    Where there are several selectors, INPUT_LABEL holds the number of each. Send the query with the time of the first
    query's evaluation and the same `lookback_delta`: an instant selector then finds no sample older than `max_age`
    seconds. A selector with a range also reads samples of a series that has ended, or that missed a scrape, so a
    subquery with steps of a sixth of `max_age` finds its last sample. None: of live series only, without a subquery,
    which costs a third.
    """
    return _newest(enumerate(_times(each, max_age) for each in selectors), labels, len(selectors))


def ended_times_query(
    selectors: Sequence[VectorSelector], labels: Sequence[str], max_age: float, pods: Mapping[int, Iterable[str]]
) -> str:
    """As `sample_times_query`, of these pods only, by the number of the selector that reads them.

    The last of the labels is that of the pods.
    """
    parts = (
        (number, _times(_of_pods(selectors[number], labels[-1], names), max_age)) for number, names in pods.items()
    )
    return _newest(parts, labels, len(selectors))


def with_counts(text: str, windows: Sequence[RateWindow], labels: Sequence[str] = ()) -> str:
    """The expression, and the number of samples that each window holds by these labels.

    It is that of the target with the fewest. Of one target it is the most: its series are scraped together, so one that
    began after the others, as the first error's, shows no gap. Without labels: how many series have how many samples
    (COUNT_LABEL), which costs little.

    Both at once: two questions might be answered by two replicas, one of which lacks samples. INPUT_LABEL holds the
    number of each window, and tells these series from those of the expression.
    """
    by, target = ", ".join(map(_label, labels)), ", ".join(map(_label, [*labels, "job", "instance"]))
    parts = [f"({text}\n)"]
    for number, window in enumerate(windows):
        counts = f"count_over_time({_over(window.selector, window.seconds)})"
        if labels:
            parts.append(_numbered(f"min by ({by}) (max by ({target}) ({counts}))", number))
        else:
            parts.append(_numbered(f'count_values("{COUNT_LABEL}", {counts})', number))
    return "\nor ".join(parts)


def scrapes_query(window: RateWindow, seconds: float, pod_label: str, pods: Sequence[str]) -> str:
    """A query for the samples of the last so many seconds themselves; of these pods only, if there are any."""
    return _over(_of_pods(window.selector, pod_label, pods) if pods else window.selector, seconds)


def _over(selector: VectorSelector, seconds: float) -> str:
    return " ".join(filter(None, (f"{selector.text}[{round(seconds * 1000)}ms]", selector.shift)))


def _newest(times: Iterable[tuple[int, str]], labels: Iterable[str], count: int) -> str:
    by = ", ".join(map(_label, labels))
    parts = ((number, f"max by ({by}) ({each})") for number, each in times)
    return "\nor ".join(_numbered(part, number) if count > 1 else part for number, part in parts)


def _numbered(text: str, number: int) -> str:
    return f'label_replace({text}, "{INPUT_LABEL}", "{number}", "", "")'


def reads_ended(selector: VectorSelector) -> bool:
    """Whether a selector reads samples of series that have ended."""
    return selector.ranged and not selector.shift


def recorded(selectors: Iterable[VectorSelector]) -> list[str]:
    """The recording rules that these selectors read at one time, by the colons in their names."""
    names = [selector.text.partition("{")[0].strip() for selector in selectors if not selector.ranged]
    return [name for name in names if ":" in name]


def _times(selector: VectorSelector, max_age: float | None) -> str:
    now = f"timestamp({' '.join(filter(None, (selector.text, selector.shift)))})"
    if max_age is None or not reads_ended(selector):
        return now
    window = max(_STEPS, round(max_age * 1000))
    return f"{now} or max_over_time({now}[{window}ms:{window // _STEPS}ms])"


def is_pod_name(text: str) -> bool:
    """Whether a label's value can be the name of a pod; `ended_times_query` takes no others."""
    return _WORKLOAD.fullmatch(text) is not None


def _of_pods(selector: VectorSelector, pod_label: str, names: Iterable[str]) -> VectorSelector:
    """The selector with one more matcher: its label of the pod has one of these values."""
    matcher = f'{_label(pod_label)}=~"{"|".join(sorted(names)).replace(".", _ESCAPED_DOT)}"'
    brace = next((token.end for token in tokenize(selector.text) if token.text == "{"), None)
    if brace is None:
        return replace(selector, text=f"{selector.text}{{{matcher}}}")
    name, rest = selector.text[:brace], selector.text[brace:]
    others = any(tokenize(rest.rstrip().removesuffix("}")))
    return replace(selector, text=f"{name}{matcher}{', ' if others else ''}{rest}")


def _label(name: str) -> str:
    """A label name in a grouping; Prometheus 3 requires quotes around other characters than letters, digits and _."""
    if _PLAIN_LABEL.fullmatch(name):
        return name
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
