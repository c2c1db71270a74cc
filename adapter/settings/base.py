"""What every section of the settings is made of."""

from collections.abc import Iterator
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]

Mebibytes = Annotated[int, Field(ge=1, le=1024)]


class Section(BaseModel):
    """A mapping in the file: camelCase keys, no others than those that are known."""

    # By name for code that builds settings; a file is read by alias alone.
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True, validate_by_name=True)


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The sections that a field of this type may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for one in get_args(annotation):
        yield from models_in(one)


def type_of(section: type[BaseModel]) -> str:
    """The `type` by which a section is told apart from others in its place; empty where it has none."""
    field = section.model_fields.get("type")
    return str(get_args(field.annotation)[0]) if field is not None else ""
