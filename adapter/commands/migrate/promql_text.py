"""PromQL of an original as a policy may have it: one number for the service, or a series a pod."""

import re
from collections.abc import Mapping

from adapter.runtime.faults import Fault
from adapter.usage.promql import PromqlError, parse_inputs, tokenize, uses_variables

LONGEST = 4096
_AGGREGATORS = frozenset({"sum", "avg", "min", "max", "count", "scalar", "vector", "stddev", "stdvar"})
_SERIES = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*", re.ASCII)
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def fault_of(path: str, text: str) -> Fault | None:
    """Why a policy cannot have this query, None where it can."""
    if not text.strip():
        return Fault(path, text, "is required: the query")
    if len(text) > LONGEST:
        return Fault(
            path, None, f"has {len(text)} characters; a policy's PromQL has at most {LONGEST}. Record it by a rule"
        )
    if uses_variables(text):
        return Fault(path, text, "holds $namespace or $workload, which a policy's PromQL replaces; write another label")
    return syntax_fault(path, text)


def syntax_fault(path: str, text: str) -> Fault | None:
    """Why a text cannot be PromQL, None where it may be."""
    try:
        parse_inputs(text)
    except PromqlError as error:
        return Fault(path, text, str(error))
    return None


def one_number(text: str) -> str:
    """The query with every label of its result taken away, so that it is one number for the service."""
    text = text.strip()
    return text if _has_no_labels(text) else f"sum({text}\n)" if "#" in text else f"sum({text})"


def _has_no_labels(text: str) -> bool:
    """Whether the whole text is one aggregation without grouping."""
    try:
        tokens = [token.text for token in tokenize(text)]
    except PromqlError:
        return False
    if len(tokens) < 3 or tokens[0].lower() not in _AGGREGATORS or tokens[1] != "(" or tokens[-1] != ")":
        return False
    depth = 0
    for number, text_of in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(text_of, 0)
        if depth == 0 and 0 < number < len(tokens) - 1:
            return False
    return True


def matcher(label: str, sign: str, value: str) -> str:
    """A label matcher with its value quoted."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{label}{sign}"{escaped}"'


def is_series(text: str) -> bool:
    """Whether a text is the name of a series."""
    return _SERIES.fullmatch(text) is not None


def is_label(text: str) -> bool:
    """Whether a text is the name of a label."""
    return _LABEL.fullmatch(text) is not None


def renamed(text: str, labels: Mapping[str, str]) -> str:
    """The query with labels of its result copied to other names: `{new: old}`, where they differ."""
    for new, old in labels.items():
        if new != old:
            text = f'label_replace({text}, "{new}", "$1", "{old}", "(.*)")'
    return text
