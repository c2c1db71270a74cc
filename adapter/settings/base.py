"""The types that sections of the settings share, and how rules that span keys read the raw file."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from adapter.runtime.faults import Fault
from adapter.runtime.outbound import Access

Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]

Mebibytes = Annotated[int, Field(ge=1, le=1024)]


class Section(BaseModel):
    """A mapping in the file: camelCase keys, no unknown ones."""

    # Code may build settings by field name; a file is read by alias alone.
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True, validate_by_name=True)


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The sections that a field of this type may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


def type_of(section: type[BaseModel]) -> str:
    """The `type` that distinguishes a section from others in its place; empty where it has none."""
    field = section.model_fields.get("type")
    return str(get_args(field.annotation)[0]) if field is not None else ""


def default_of(section: type[BaseModel], key: str) -> Any:
    """The default of a field."""
    return section.model_fields[key].default


def raw_section(document: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """The section under these keys in the raw file; empty where it is absent or no mapping."""
    for key in keys:
        inner = document.get(key)
        document = inner if isinstance(inner, dict) else {}
    return document


def raw_items(section: Mapping[str, Any], key: str) -> list[tuple[int, Mapping[str, Any]]]:
    """The mappings in a list of the raw file, each with its index."""
    items = section.get(key)
    return [(i, item) for i, item in enumerate(items) if isinstance(item, dict)] if isinstance(items, list) else []


def access_of(*sections: BaseModel, **more: Any) -> Access:
    """Credentials and TLS of an HTTP client: those fields of an Access that the sections have, and more of them."""
    names = Access.__dataclass_fields__.keys()
    given = {name: getattr(each, name) for each in sections for name in names & type(each).model_fields.keys()}
    return Access(**given, **more)


def rival_faults(path: str, section: Mapping[str, Any], *rivals: tuple[str, str]) -> Iterator[Fault]:
    """The faults of keys of which a section may have only one."""
    for key, other in rivals:
        if section.get(key) and section.get(other):
            yield Fault(path, section.get("name"), f"has both {key} and {other}; keep one")


def unverified_faults(path: str, section: Mapping[str, Any]) -> Iterator[Fault]:
    """The fault of a CA in a section with insecureSkipVerify that skips its verification."""
    if section.get("insecureSkipVerify") is True and section.get("caFile"):
        yield Fault(f"{path}.insecureSkipVerify", True, "makes caFile meaningless; keep one")


def is_number(value: object) -> bool:
    """Whether a raw value is a number, as no boolean is."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def repeated_faults(path: str, items: Iterable[tuple[int, Mapping[str, Any]]]) -> Iterator[Fault]:
    """The faults of names that an earlier item has."""
    seen: set[str] = set()
    for index, item in items:
        name = item.get("name")
        if isinstance(name, str) and name in seen:
            yield Fault(f"{path}[{index}].name", name, "is taken by an earlier entry; names are unique")
        seen.add(str(name))


def age_faults(path: str, section: Mapping[str, Any], kind: type[BaseModel]) -> Iterator[Fault]:
    """The fault of a `maxAgeSeconds` that is not more than `intervalSeconds`."""
    age = section.get("maxAgeSeconds", default_of(kind, "max_age_seconds"))
    interval = section.get("intervalSeconds", default_of(kind, "interval_seconds"))
    if is_number(age) and is_number(interval) and age <= interval:
        yield Fault(
            f"{path}.maxAgeSeconds", age, f"must be more than intervalSeconds ({interval}), or samples expire unseen"
        )
