"""The types that sections of the settings share, and how their validators report what is wrong.

The docstring under a field is its documentation: `docs/configuration.md` is made from them. Times are seconds.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Self, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from adapter.runtime.faults import Fault
from adapter.runtime.http import Access

Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Mebibytes = Annotated[int, Field(ge=1, le=1024)]

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
_RESERVED = {"host", "content-length", "transfer-encoding", "connection", "content-type", "accept", "accept-encoding"}


class RefusedError(ValueError):
    """What validators raise: `faults`, with paths within the value or section that they validate."""

    def __init__(self, *faults: Fault) -> None:
        self.faults = faults
        super().__init__("; ".join(map(str, faults)))


def refuse(find: Callable[[Any], Iterator[Fault]]) -> AfterValidator:
    """A validator that refuses values in which `find` finds faults."""

    def validate(value: Any) -> Any:
        if faults := tuple(find(value)):
            raise RefusedError(*faults)
        return value

    return AfterValidator(validate)


class Section(BaseModel):
    """A mapping in the file: camelCase keys, no unknown ones."""

    # Code may build settings by field name; a file is read by alias alone.
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True, validate_by_name=True)

    def _faults(self) -> Iterator[Fault]:
        """The faults that no single key shows, with paths within this section."""
        yield from ()

    @model_validator(mode="after")
    def _refuse_faults(self) -> Self:
        if faults := tuple(self._faults()):
            raise RefusedError(*faults)
        return self


def url_faults(url: str) -> Iterator[Fault]:
    """What is wrong with the base address of an HTTP server."""
    shown = None if "@" in url else url.partition("?")[0]  # the user and the query may hold a secret
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        parts, is_usable = urlsplit(""), None
    if not is_usable:
        yield Fault("", shown, "write http:// or https://, a host, and the port unless it is the default")
    elif parts.username is not None:
        yield Fault("", None, "contains a user; write it as a key of its own, with the password in a file")
    elif parts.query or parts.fragment:
        yield Fault("", shown, "ends in a query or fragment; write the address that the API's paths follow")


Url = Annotated[str, refuse(url_faults)]
"""The base address of an HTTP server."""


def access_of(*sections: BaseModel, **more: Any) -> Access:
    """Credentials and TLS of an HTTP client: the fields that the sections have, and `more`, which wins."""
    names = Access.__dataclass_fields__.keys()
    given = {name: getattr(each, name) for each in sections for name in names & type(each).model_fields.keys()}
    return Access(**given | more)


class Credentials(Section):
    """A section with credentials of several kinds, of which at most one is set."""

    credential_fields: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """The fields of each kind."""
    credential_header: ClassVar[str] = ""
    """The header that holds the content of `token_file`."""

    @property
    def access(self) -> Access:
        """Credentials and TLS of an HTTP client."""
        tokens = {self.credential_header: getattr(self, "token_file", "")}
        files = {header: file for header, file in tokens.items() if header and file}
        files |= getattr(self, "header_files", {})
        tls, bundle = getattr(self, "tls", self), getattr(self, "ca_bundle", "")
        return access_of(tls, self, ca=bundle, header_files=files)

    @property
    def has_credentials(self) -> bool:
        """Whether any kind of credentials is set."""
        return any(getattr(self, kind[0]) for kind in self.credential_fields)

    def _faults(self) -> Iterator[Fault]:
        used = [kind for kind in self.credential_fields if any(getattr(self, field) for field in kind)]
        for kind in used:
            given = next(to_camel(field) for field in kind if getattr(self, field))
            for field in kind:
                if not getattr(self, field):
                    yield Fault(to_camel(field), None, f"is missing beside {given}; write both or neither")
        if len(used) > 1:
            yield Fault("", None, f"has both {' and '.join(to_camel(kind[0]) for kind in used)}; keep one")
        yield from super()._faults()


class Login(Credentials):
    """A user and a password."""

    credential_fields: ClassVar[tuple[tuple[str, ...], ...]] = (("username", "password_file"),)

    username: str = ""
    """User to log in as; empty: no login."""
    password_file: str = ""
    """File with the user's password; read again when it changes."""


class HttpCredentials(Login):
    """Credentials and further headers of HTTP requests."""

    credential_fields = (("bearer_token_file",), ("username", "password_file"))

    bearer_token_file: str = ""
    """File with a bearer token in place of user and password; read again when it changes."""
    headers: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """Further request headers, such as `X-Scope-OrgID`."""
    header_files: Mapping[str, str] = Field(default_factory=dict)
    """Further headers whose values are secrets: the file of each header's value, read again when it changes."""

    def _faults(self) -> Iterator[Fault]:
        yield from super()._faults()
        yield from header_faults(self.headers, self.header_files, authorized=self.has_credentials)


def header_faults(headers: Mapping[str, str], files: Mapping[str, str], *, authorized: bool) -> Iterator[Fault]:
    """What is wrong with `headers` and `headerFiles`. `authorized`: other keys set the header Authorization."""
    seen: set[str] = {"authorization"} if authorized else set()
    given = [("headers", "one line of printable characters", item) for item in headers.items()]
    given += [("headerFiles", "the path of a file", item) for item in files.items()]
    for key, wanted, (name, value) in given:
        path = f"{key}[{name}]"
        if not _HEADER_NAME.fullmatch(name):
            yield Fault(path, None, "is an invalid header name; write letters, digits and any of !#$%&'*+-.^_`|~")
        elif name.lower() in _RESERVED:
            yield Fault(path, None, "is set by the adapter itself; remove it")
        elif name.lower() in seen:
            yield Fault(path, None, "is set by another key as well; keep one of them")
        elif not (value and value.isprintable()):
            yield Fault(path, None, f"has no usable value; write {wanted}")
        seen.add(name.lower())


def _repeated_names(entries: tuple[Any, ...]) -> Iterator[Fault]:
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        if entry.name in seen:
            yield Fault(f"[{index}].name", entry.name, "is the name of an earlier entry; names are unique")
        seen.add(entry.name)


UNIQUE_NAMES = refuse(_repeated_names)
"""Refuses a list whose entries repeat a name."""


class ClientTls(Section):
    """TLS with a server."""

    ca_file: str = ""
    """PEM file with the CAs that may sign the server's certificate; empty: those of the system."""
    cert_file: str = ""
    """PEM file with a client certificate for servers that require one."""
    key_file: str = ""
    """PEM file with the client certificate's private key; empty: it is in `certFile`."""
    insecure_skip_verify: bool = False
    """Whether to accept any certificate."""

    def _faults(self) -> Iterator[Fault]:
        if self.key_file and not self.cert_file:
            yield Fault("certFile", None, "is missing beside keyFile; write both, or certFile alone")
        if self.insecure_skip_verify and self.ca_file:
            yield Fault("insecureSkipVerify", True, "makes caFile meaningless; keep one")


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The sections that a field of this type may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


def type_of(section: type[BaseModel]) -> str:
    """The `type` that distinguishes a section from others in its place; empty if it has none."""
    field = section.model_fields.get("type")
    return str(get_args(field.annotation)[0]) if field is not None else ""
