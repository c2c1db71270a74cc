"""PromQL of originals as a policy can have it, and what is known of its answers."""

import re

import promql_parser as ast

from adapter.commands.migrate.read import Refusal
from adapter.usage.promql import PromqlError, parse_inputs, uses_variables

_LONGEST = 4096
_MANY = {"topk", "bottomk", "limitk", "limit_ratio", "count_values"}
"""Aggregations with more than one series in the result."""
_LABELLED = {"label_replace", "label_join", "absent", "absent_over_time", "info"}
"""Functions whose result may have other labels than their first argument."""


def placeholder(name: str) -> str:
    """PromQL that stands for one that a person has to write: it has no answer, so the count stays."""
    return f"write_here_the_promql_of_{re.sub('[^A-Za-z0-9_]', '_', name)}"


def checked(text: str) -> str:
    """The query, if a policy can have it. Raises Refusal."""
    text = text.strip()
    if len(text) > _LONGEST:
        raise Refusal(f"the query has {len(text)} characters, a policy's at most {_LONGEST}; record it by a rule")
    try:
        parse_inputs(text)
    except PromqlError as error:
        raise Refusal(f"the query is not valid PromQL: {error}") from None
    return text


def one_number(text: str, *, variables: bool = False) -> str:
    """The query as one number for the service. `variables`: it may hold those of a policy. Raises Refusal."""
    text = checked(text)
    if uses_variables(text) and not variables:
        raise Refusal("the query holds $namespace or $workload, which a policy replaces; rename that label")
    tree = ast.parse(text)
    is_number = isinstance(tree, ast.AggregateExpr) and tree.modifier is None and str(tree.op) not in _MANY
    if is_number or _is_vector(tree):
        return text
    end = "\n)" if "#" in text else ")"
    try:
        return checked(f"sum({text}{end}")
    except Refusal:  # of a scalar there is no sum
        return checked(f"vector({text}{end}")


def missing_answers(text: str) -> list[str]:
    """The answers without a number that a query may give: `an empty answer`, `NaN`.

    `(… >= 0) or vector(0)` has neither.
    """
    tree = _bare(ast.parse(text))
    while isinstance(tree, ast.AggregateExpr) and tree.modifier is None:
        tree = _bare(tree.expr)
    has_default, is_guarded = _is_vector(tree), False
    if isinstance(tree, ast.BinaryExpr) and str(tree.op) == "or" and _is_vector(_bare(tree.rhs)):
        left, has_default = _bare(tree.lhs), True
        is_guarded = isinstance(left, ast.BinaryExpr) and str(left.op)[0] in "<>"
    shown = re.sub(r"\"[^\"]*\"|'[^']*'|`[^`]*`|#.*", "", text)
    divides = re.search(r"[/%](?!\s*[1-9])|histogram_quantile|\bscalar\b", shown) is not None
    return ["an empty answer"] * (not has_default) + ["NaN"] * (divides and not is_guarded)


def labels_of(tree: ast.Expr) -> set[str] | None:
    """The labels of a query's result; None where the series decide."""
    if isinstance(tree, ast.ParenExpr | ast.UnaryExpr):
        return labels_of(tree.expr)
    if isinstance(tree, ast.AggregateExpr):
        if tree.modifier is None:
            return set()
        return set(tree.modifier.labels) if tree.modifier.type == ast.AggModifierType.By else None
    if isinstance(tree, ast.BinaryExpr):
        return labels_of(tree.rhs if isinstance(tree.lhs, ast.NumberLiteral) else tree.lhs)
    if isinstance(tree, ast.Call) and tree.func.name not in _LABELLED and tree.args:
        return labels_of(next((part for part in tree.args if not isinstance(part, ast.NumberLiteral)), tree.args[0]))
    return None


def _is_vector(tree: ast.Expr) -> bool:
    return isinstance(tree, ast.Call) and tree.func.name == "vector"


def _bare(tree: ast.Expr) -> ast.Expr:
    while isinstance(tree, ast.ParenExpr):
        tree = tree.expr
    return tree
