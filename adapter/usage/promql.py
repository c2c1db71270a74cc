"""PromQL: the variables of a query, what an expression reads, and the question that Prometheus is sent for it.

Prometheus dates the result of an instant query by its evaluation, however old the samples that it reads, and divides a
rate by the whole window, however few samples that holds. So one question asks for the values, for the times of their
inputs' newest samples, and for the number of samples in each window: one answer of one replica, of one moment.
"""

import bisect
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import promql_parser as ast

INPUT_PREFIX = "el_"  # short: half of an answer's rows have it
INPUT_LABEL = INPUT_PREFIX + secrets.token_hex(8)
"""The label of those series of `question` that are not values: `time` or `count`, and a number.

A tenant's exporter may write any label, and a query without an aggregation keeps it, so nobody can guess this one.
"""
_JOIN = f"\nor on ({INPUT_LABEL}) "  # no two parts have the same mark; comparing all labels takes a tenth more

TARGET_LABELS = ("job", "instance")  # they name a scrape target

MOST_TOKENS = 2000
"""The parser takes stack for each level of nesting: 16 KiB of brackets end the process."""

_STEPS = 6
_SHOWN = 40
_VARIABLE = re.compile(r"\$(?:\{(namespace|workload)\}|(namespace|workload)\b)", re.ASCII)
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", re.ASCII)
_PLAIN_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_STRING = r""" "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' | `[^`]*` """
_PATTERN = re.compile(rf"[=!]~ \s* (?: {_STRING} )", re.VERBOSE | re.DOTALL)
_TOKEN = re.compile(rf"(?:\s+|\#[^\n]*)+ | {_STRING} | [A-Za-z0-9_:.]+ | [=!]~ | [=!<>]= | .", re.VERBOSE | re.DOTALL)
_CLOSING = {"(": ")", "{": "}", "[": "]"}
_SHIFT = re.compile(r"(?P<base>.*?)(?: @ [^\s\"}]+)?(?: offset [^\s\"}]+)?", re.DOTALL)
"""A selector as the parser writes it; what follows its base is not part of a string."""

_WHOLE_AT_ANY_COUNT = frozenset(
    {
        "avg_over_time", "min_over_time", "max_over_time", "quantile_over_time", "stddev_over_time", "stdvar_over_time",
        "mad_over_time", "first_over_time", "last_over_time", "present_over_time", "absent_over_time", "irate",
        "idelta", "deriv", "predict_linear", "double_exponential_smoothing",
    }
)  # fmt: skip
"""Functions over a range that do not sink where their window holds fewer samples; all others count as if they did."""
_ALWAYS_MATCH = frozenset({"(.*)", ".*"})
_ALTERNATIVES = frozenset({"or", "unless", "absent", "absent_over_time"})
"""Operators and functions whose result may have a value although one of their inputs has none."""


class PromqlError(ValueError):
    """An expression that cannot be sent; the text says where the fault is, or what to change."""


Sources = tuple[frozenset[str], frozenset[str]]


class Selector(NamedTuple):
    """A selector without its range, as PromQL, and how an expression reads it.

    `shift` is its `@` and its `offset`, with those of subqueries around it. `seconds`: its own range, where its value
    sinks if that holds fewer samples, as that of `rate` does. `ranged`: it is read over a range or in a subquery.
    `sources`: for the namespace and the pod of a value, the labels of the selector's series that hold it; empty where
    none does. `renames`: the functions that make the former of the latter, the innermost first, with their arguments.
    """

    base: str
    shift: str = ""
    seconds: float | None = None
    ranged: bool = False
    sources: "Sources" = (frozenset({"namespace"}), frozenset({"pod"}))
    renames: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryInputs:
    """What an expression reads. `selectors` date its values: those without a shift, where there are any.

    `alternatives`: it may have a value although some of them have none. `window`: how far back (seconds) it reads from
    the time of its newest samples: the longest sum of a range, the ranges of the subqueries around it, and the offsets.
    `behind`: the longest `offset` (seconds) if every selector has one, else 0; the times of its samples are that long
    ago although its series live. `windows` are those whose samples can be counted. `uncounted`: they cannot, for it
    has subqueries or windows of different lengths. `shortest`: the length (seconds) of the shortest one, 0 without any.
    """

    selectors: tuple[Selector, ...] = ()
    alternatives: bool = False
    window: float = 0.0
    behind: float = 0.0
    windows: tuple[Selector, ...] = ()
    uncounted: bool = False
    shortest: float = 0.0


# --- variables ---


def uses_variables(text: str) -> bool:
    """Whether the expression contains `$namespace` or `$workload`."""
    return _VARIABLE.search(text) is not None


def substitute(text: str, namespace: str, workload: str) -> str:
    """Replace `$namespace` and `$workload` by the names, with their dots escaped in regular expressions (after `=~`).

    Raises PromqlError for a name that no Kubernetes object can have, and that could break out of its quotes.
    """
    names = {"namespace": namespace, "workload": workload}
    for kind, name in names.items():
        if uses_variables(text) and not _NAME.fullmatch(name):
            raise PromqlError(f"{name[:80]!r} is not a valid name of a {kind}; it cannot be put into a query")

    def filled(text: str, dot: str) -> str:
        return _VARIABLE.sub(lambda match: names[match[1] or match[2]].replace(".", dot), text)

    text = _PATTERN.sub(lambda match: filled(match[0], r"\." if match[0].endswith("`") else r"\\."), text)
    return filled(text, ".")


# --- parsing ---


def parse_inputs(text: str, labels: Sequence[str] = ("namespace", "pod")) -> QueryInputs:
    """What an expression reads, whose values have these labels for the namespace and the pod.

    Raises PromqlError for text that is not PromQL, with the place of the fault.
    """
    tokens = list(_TOKEN.finditer(text))
    if len(tokens) > MOST_TOKENS:
        raise PromqlError(f"the expression has more than {MOST_TOKENS} tokens; record a part of it by a rule")
    try:
        tree = _parsed(_readable(tokens))
    except ValueError as error:
        raise PromqlError(_refusal(text, tokens, str(error))) from None
    if isinstance(tree, ast.MatrixSelector | ast.SubqueryExpr | ast.StringLiteral):
        raise PromqlError("the expression is a range or a text; write one number a series, as rate(…[1m]) does")
    namespace, pod = labels
    return _inputs(tree, (frozenset({namespace}), frozenset({pod})))


def _parsed(text: str) -> ast.Expr:
    """The syntax tree. Raises ValueError."""
    try:
        return ast.parse(text)
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ != "PanicException":  # a range of 20 digits
            raise
        raise ValueError("the parser fails at it") from None


def _readable(tokens: Iterable[re.Match[str]]) -> str:
    """The text for the parser, which reads no backslash inside backquotes."""
    return "".join(_quoted(token[0][1:-1]) if token[0].startswith("`") else token[0] for token in tokens)


def _refusal(text: str, tokens: Sequence[re.Match[str]], error: str) -> str:
    """Why the parser refuses an expression, and where.

    It says no place, so that is found: the first token with which the beginning of the text fails as the whole does.
    """
    if not text.strip():
        return "the expression is empty"
    if error.startswith(("unclosed", "unexpected end of input inside")) and (left := _open(tokens)):
        start = left[-1].start()
    else:
        place = bisect.bisect_left(range(len(tokens)), True, key=lambda last: _fails_so(tokens[: last + 1], error))
        start = tokens[min(place, len(tokens) - 1)].start()
    near = " ".join(text[start : start + _SHOWN].split())
    return f"not readable at character {start + 1}, {near!r}: {error}; correct it, or record that part by a rule"


def _fails_so(tokens: Sequence[re.Match[str]], error: str) -> bool:
    """Whether these tokens fail with this error, the brackets that they open closed.

    After an operator an operand is still to come: without one a text is as generally invalid as with a wrong one.
    """
    closing = "".join(_CLOSING[token[0]] for token in reversed(_open(tokens)))
    for operand in ("", "x") if error == "invalid promql query" else ("",):
        try:
            _parsed(f"{_readable(tokens)}\n{operand}{closing}")
        except ValueError as other:
            if str(other) == error:
                continue
        return False
    return True


def _open(tokens: Iterable[re.Match[str]]) -> list[re.Match[str]]:
    """The brackets that are never closed."""
    left: list[re.Match[str]] = []
    for token in tokens:
        if token[0] in _CLOSING:
            left.append(token)
        elif left and token[0] == _CLOSING[left[-1][0]]:
            left.pop()
    return left


class _Around(NamedTuple):
    """What stands around a part of an expression: the innermost function, and the subqueries.

    `reach` is the sum of their ranges and offsets, `offset` that of their offsets (seconds), `at` their `@`.
    """

    function: str = ""
    is_subquery: bool = False
    reach: float = 0.0
    offset: float = 0.0
    at: str = ""
    sources: Sources = (frozenset(), frozenset())
    renames: tuple[tuple[str, str], ...] = ()


def _inputs(tree: ast.Expr, sources: Sources) -> QueryInputs:
    # Without recursion: a tree may be as deep as its text is long.
    nodes, left = [], [(tree, _Around(sources=sources))]
    while left:
        nodes.append(left.pop())
        left += reversed(_parts(*nodes[-1]))
    names = {node.func.name for node, _ in nodes if isinstance(node, ast.Call)}
    names |= {str(node.op) for node, _ in nodes if isinstance(node, ast.BinaryExpr)}
    reads = [_read(node, around) for node, around in nodes if isinstance(node, ast.VectorSelector | ast.MatrixSelector)]
    selectors = [selector for selector, _, _ in reads]
    offsets = [offset for _, _, offset in reads]
    windows = tuple(dict.fromkeys(selector for selector in selectors if selector.seconds is not None))
    lengths = {selector.seconds for selector in windows if selector.seconds}
    uncounted = len(lengths) > 1 or any(isinstance(node, ast.SubqueryExpr) for node, _ in nodes)
    dating = [each for each in selectors if not each.shift] or selectors
    return QueryInputs(
        selectors=tuple(dict.fromkeys(each._replace(seconds=None) for each in dating)),
        alternatives=not names.isdisjoint(_ALTERNATIVES),
        window=max((reach for _, reach, _ in reads), default=0.0),
        behind=max(offsets, default=0.0) if all(offsets) else 0.0,
        windows=() if uncounted else windows,
        uncounted=uncounted,
        shortest=min(lengths, default=0.0),
    )


def _parts(node: ast.Expr, around: _Around) -> list[tuple[ast.Expr, _Around]]:
    """The parts of a node, in order."""
    match node:
        case ast.SubqueryExpr():
            own, offset, at = _shift(node, around)
            reach = around.reach + (node.range.total_seconds() if node.range else 0.0) + max(0.0, own)
            return [(node.expr, around._replace(is_subquery=True, reach=reach, offset=offset, at=at))]
        case ast.Call():
            inner = _renamed(node, around)._replace(function=node.func.name)
            return [(argument, inner) for argument in node.args]
        case ast.AggregateExpr():
            inner = around._replace(sources=_grouped(node, around.sources))
            return [(part, inner) for part in (node.param, node.expr) if isinstance(part, ast.Expr)]
        case ast.BinaryExpr():
            return _matched(node, around)
        case ast.ParenExpr() | ast.UnaryExpr():
            return [(node.expr, around)]
        case _:
            return []


def _renamed(node: ast.Call, around: _Around) -> _Around:
    """What stands around the arguments of a function that may write labels."""
    if node.func.name == "scalar":
        return around._replace(sources=(frozenset(), frozenset()))
    if node.func.name not in {"label_replace", "label_join"}:
        return around
    texts = [argument.val for argument in node.args if isinstance(argument, ast.StringLiteral)]
    written, is_join = texts[0], node.func.name == "label_join"
    read = frozenset(texts[2:] if is_join else texts[2:3]) - {""}
    # A regular expression that does not match leaves the label as it is.
    kept = frozenset() if is_join or texts[3] in _ALWAYS_MATCH else frozenset({written})
    if not any(written in each for each in around.sources):
        return around
    namespace, pod = ((each - {written}) | read | kept if written in each else each for each in around.sources)
    call = (node.func.name, ", ".join(map(_quoted, texts)))
    return around._replace(sources=(namespace, pod), renames=(call, *around.renames))


def _grouped(node: ast.AggregateExpr, sources: Sources) -> Sources:
    """The sources that an aggregation leaves.

    Where it keeps other labels, these may join its groups to pods, so each pod's own samples still date its values.
    """
    modifier = node.modifier
    labels = frozenset(modifier.labels) if modifier is not None else frozenset()
    is_without = modifier is not None and modifier.type == ast.AggModifierType.Without
    # topk and the like return series of their argument, with all labels.
    keeps_series = str(node.op) in {"topk", "bottomk", "limitk", "limit_ratio"}
    if is_without or keeps_series or not labels <= sources[0] | sources[1]:
        return sources
    return sources[0] & labels, sources[1] & labels


def _matched(node: ast.BinaryExpr, around: _Around) -> list[tuple[ast.Expr, _Around]]:
    """Both sides of an operator. A side that is joined by namespace or pod alone goes into all values of these.

    By other labels, or where labels are copied, nobody sees which series went into which value: such a side dates only
    the values of its own namespace and pod.
    """
    modifier, left, right = node.modifier, around, around
    matching = modifier.matching if modifier is not None and str(node.op) != "or" else None
    if modifier is not None and matching is not None and matching.type == ast.LabelModifierType.Include:
        on, known, cards = frozenset(matching.labels), frozenset().union(*around.sources), ast.VectorMatchCardinality
        if on <= known and not known & frozenset(modifier.group_labels or ()):
            namespace, pod = (each & on for each in around.sources)
            joined = around._replace(sources=(namespace, pod))
            left = joined if modifier.card in (cards.OneToOne, cards.OneToMany) else around
            right = around if modifier.card == cards.OneToMany else joined
    return [(node.lhs, left), (node.rhs, right)]


def _read(node: ast.VectorSelector | ast.MatrixSelector, around: _Around) -> tuple[Selector, float, float]:
    """A selector; how far back it reads (seconds); its offset, 0 where it has none or reads ahead or a fixed time."""
    vector = node.vector_selector if isinstance(node, ast.MatrixSelector) else node
    seconds = node.range.total_seconds() if isinstance(node, ast.MatrixSelector) else None
    own, offset, at = _shift(vector, around)
    written = _SHIFT.fullmatch(vector.prettify())
    assert written is not None
    selector = Selector(
        base=written["base"],
        shift=f" @ {at}" * bool(at) + f" offset {round(offset * 1000)}ms" * bool(offset),
        seconds=None if around.function in _WHOLE_AT_ANY_COUNT else seconds,
        ranged=seconds is not None or around.is_subquery,
        sources=around.sources,
        renames=around.renames,
    )
    return selector, around.reach + (seconds or 0.0) + max(0.0, own), 0.0 if at else max(0.0, offset)


def _shift(node: ast.VectorSelector | ast.SubqueryExpr, around: _Around) -> tuple[float, float, str]:
    """Its own offset (seconds); the whole offset and the `@` at which it is read: an own one replaces those around."""
    own = node.offset.total_seconds() if node.offset is not None else 0.0
    return (own, around.offset + own, around.at) if node.at is None else (own, own, str(node.at).removeprefix("@ "))


# --- questions ---


def question(text: str, inputs: QueryInputs, labels: Sequence[str]) -> str:
    """The expression, the times of its inputs, and the number of samples in its windows.

    All by these labels, and the times by scrape target as well. Send it with the largest age of a sample as
    `lookback_delta`: an instant selector then finds no older one. The times are those of live series, which costs a
    third of asking for ended ones too. The count is that of the target with the fewest; of one target it is the most:
    its series are scraped together, so one that began after the others, such as the first error's, shows no gap.
    """
    parts, by_target = [f"({text}\n)" if inputs.selectors else text], [*labels, *TARGET_LABELS]
    for number, selector in enumerate(inputs.selectors):
        times = f"timestamp({selector.base}{selector.shift})"
        parts.append(_part(selector, by_target, "max", times, f"time{number}"))
    for number, window in enumerate(inputs.windows):
        counts = f"count_over_time({window.base}[{round((window.seconds or 0) * 1000)}ms]{window.shift})"
        most = f"max by ({_by(_read_labels(window, by_target))}) ({counts})"
        parts.append(_part(window, labels, "min", most, f"count{number}"))
    return _JOIN.join(parts)


def ended_question(inputs: QueryInputs, labels: Sequence[str], max_age: float, numbers: Iterable[int]) -> str:
    """The times of the last samples of series that may have ended, of the selectors of these numbers.

    Send it with the time of the question before. Subqueries with steps of a sixth of `max_age` seconds find the last
    sample of a series that has ended.
    """
    window, parts = max(_STEPS, round(max_age * 1000)), []
    for number in numbers:
        selector = inputs.selectors[number]
        times = f"max_over_time(timestamp({selector.base})[{window}ms:{window // _STEPS}ms])"
        parts.append(_part(selector, labels, "max", times, f"time{number}"))
    return _JOIN.join(parts)


def _part(selector: Selector, labels: Sequence[str], aggregation: str, text: str, mark: str) -> str:
    """An aggregation by these labels of a value, after the same changes of labels, with this mark."""
    text = f"{aggregation} by ({_by(_read_labels(selector, labels))}) ({text})"
    for function, arguments in selector.renames:
        text = f"{function}({text}, {arguments})"
    if selector.renames:
        text = f"{aggregation} by ({_by(labels)}) ({text})"
    return f'label_replace({text}, "{INPUT_LABEL}", "{mark}", "", "")'


def _read_labels(selector: Selector, labels: Sequence[str]) -> Sequence[str]:
    """The labels of its series that become these: the first two are those of the namespace and the pod."""
    return [*sorted(selector.sources[0] | selector.sources[1]), *labels[2:]] if selector.renames else labels


def _by(labels: Iterable[str]) -> str:
    """Labels of a grouping; Prometheus 3 wants quotes around names of other characters than letters, digits and _."""
    names = dict.fromkeys(labels)
    return ", ".join(name if _PLAIN_LABEL.fullmatch(name) else _quoted(name) for name in names)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
