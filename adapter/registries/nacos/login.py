"""Credentials of requests to Nacos: a token from a login, the signature of an access key, or neither."""

import asyncio
import base64
import copy
import hashlib
import hmac
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from adapter.registries.servers import Servers, read_secret, refusal
from adapter.runtime.decoding import Decoder
from adapter.runtime.source_errors import NotAllowed, NotAuthenticated, SourceError, WrongRegistryAnswer
from adapter.settings.registries import NacosRegistry

T = TypeVar("T")

YOUNG_TOKEN_SECONDS = 30.0
"""A refused token older than this is renewed; a younger one was refused for lack of rights."""
LOGIN_PAUSE_SECONDS = 5.0
"""Time after a failed login until the next one: 500 services with a wrong password do not lock the user out."""
NO_SUCH_CALL = frozenset({404, 405, 410, 501})
"""Statuses with which servers of other versions answer a call that they do not have."""

_LOGINS = ("/v3/auth/user/login", "/v1/auth/login", "/v1/auth/users/login")
_PASSWORD_500 = b"No message available"


@dataclass(frozen=True, slots=True)
class RequestCredentials:
    """The credentials of one request: a token, the fields of a signature, or neither."""

    token: str = field(default="", repr=False)
    signature: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def http_headers(self) -> dict[str, str]:
        """The token as HTTP headers: two, because some versions read only one of them."""
        return {"accessToken": self.token, "Authorization": f"Bearer {self.token}"} if self.token else {}

    @property
    def grpc_headers(self) -> dict[str, str]:
        """Token or signature as headers of a gRPC message."""
        return {"accessToken": self.token} if self.token else dict(self.signature)


class _LoginResponse(msgspec.Struct, rename="camel"):
    access_token: str


_TOKEN = Decoder(_LoginResponse)


class Login:
    """The credentials of one registry's user. All servers share one token. `clock` returns seconds that only grow."""

    def __init__(self, settings: NacosRegistry, servers: Servers, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._servers = servers
        self._clock = clock
        self._token = ""
        self._logged_in_at = 0.0
        self._lock = asyncio.Lock()
        self._failed: dict[str, tuple[SourceError, float]] = {}
        """The last failed login by server, and until when none is tried (the loop's time)."""

    async def authenticated(
        self, server: str, grouped_name: str, request: Callable[[RequestCredentials], Awaitable[T]]
    ) -> T:
        """Sends a request about a service; if its token is refused, because it ended, sends it again with another."""
        if self._settings.access_key_file:
            access_key = await read_secret(self._settings.access_key_file)
            key = await read_secret(self._settings.secret_key_file)
            return await request(RequestCredentials(signature=signature(access_key, key, grouped_name, time.time())))
        if not self._settings.username:
            return await request(RequestCredentials())
        token = self._token or await self._renewed(server, "")
        try:
            return await request(RequestCredentials(token))
        except (NotAuthenticated, NotAllowed):
            if (newer := await self._renewed(server, token)) == token:
                raise
        return await request(RequestCredentials(newer))

    async def _renewed(self, server: str, refused: str) -> str:
        """A newer token than the refused one, or that one if it is young. Raises SourceError."""
        async with self._lock:
            if refused == self._token and (not refused or self._clock() - self._logged_in_at >= YOUNG_TOKEN_SECONDS):
                error, until = self._failed.get(server, (None, 0.0))
                if error is not None and asyncio.get_running_loop().time() < until:
                    raise copy.copy(error)  # each with a traceback of its own
                try:
                    self._token = await self._log_in(server)
                except SourceError as failure:
                    until = asyncio.get_running_loop().time() + LOGIN_PAUSE_SECONDS
                    self._failed[server] = copy.copy(failure), until
                    raise
                self._logged_in_at = self._clock()
            return self._token

    async def _log_in(self, server: str) -> str:
        """A new token."""
        form = {"username": self._settings.username, "password": await read_secret(self._settings.password_file)}
        for path in _LOGINS:
            reply = await self._servers.send("POST", server, path, data=form)
            if reply.status not in NO_SUCH_CALL:
                break
        else:
            raise WrongRegistryAnswer(
                f"{server} has no login: end the address with Nacos' context path (/nacos), or leave `username` empty"
            )
        place = f"login at {server}"
        if reply.status != 200:
            error = refusal(reply).with_context(place)
            # Nacos 3.1 answers a wrong password with this 500, and an unknown user with 403.
            if reply.status in {400, 401, 403} or (reply.status == 500 and _PASSWORD_500 in reply.body):
                raise NotAuthenticated(f"{error}; check `username` and `passwordFile`")
            raise error
        try:
            token = _TOKEN.decode(reply.body).access_token
        except msgspec.MsgspecError as error:
            raise WrongRegistryAnswer(f"{place}: not what Nacos answers there: {error}") from error
        if not token:
            raise WrongRegistryAnswer(f"{place}: no token in the answer; leave `username` empty for this server")
        return token


def signature(access_key: str, secret_key: str, grouped_name: str, at: float) -> dict[str, str]:
    """The three fields that authenticate a request about a service to a managed Nacos; `at` is in epoch seconds."""
    data = f"{int(at * 1000)}@@{grouped_name}"
    digest = hmac.new(secret_key.encode(), data.encode(), hashlib.sha1).digest()  # the protocol's own choice
    return {"ak": access_key, "data": data, "signature": base64.b64encode(digest).decode()}
