"""Reads the docstrings under the fields of the settings' sections."""

import ast
import inspect
import textwrap

from pydantic import BaseModel

from adapter.settings.base import Section


def field_docs(model: type[BaseModel]) -> dict[str, str]:
    """The docstrings under a model's fields, inherited ones included, by field; a field without one is missing."""
    documented: dict[str, str] = {}
    for one in reversed(model.__mro__):
        if issubclass(one, Section) and one is not Section:
            documented |= _own_docs(one)
    return {name: documented[name] for name in model.model_fields if name in documented}


def _own_docs(model: type[BaseModel]) -> dict[str, str]:
    body = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    assert isinstance(body, ast.ClassDef)
    pairs = zip(body.body, body.body[1:], strict=False)
    return {
        field.target.id: following.value.value
        for field, following in pairs
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(following, ast.Expr)
        and isinstance(following.value, ast.Constant)
        and isinstance(following.value.value, str)
    }
