"""Credentials of requests to Nacos: a token from a login, the signature of an access key, or neither."""

import asyncio
import base64
import copy
import hashlib
import hmac
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import msgspec

from adapter.registries.servers import Servers, read_secret, refusal
from adapter.registries.source import decoded
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

Credentials = Mapping[str, str]
"""The fields of one request: `accessToken`, or those of a signature, or none."""


def http_credentials(credentials: Credentials) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Parameters and headers of an HTTP request: a token is sent in two headers, since some versions read only one."""
    token = credentials.get("accessToken", "")
    return ({}, {"accessToken": token, "Authorization": f"Bearer {token}"}) if token else (credentials, {})


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

    async def authenticated(self, server: str, grouped_name: str, request: Callable[[Credentials], Awaitable[T]]) -> T:
        """Sends a request about a service; if its token is refused, because it ended, sends it again with another."""
        if self._settings.access_key_file:
            access_key = await read_secret(self._settings.access_key_file)
            key = await read_secret(self._settings.secret_key_file)
            return await request(signature(access_key, key, grouped_name, time.time()))
        if not self._settings.username:
            return await request({})
        token = self._token or await self._renewed(server, "")
        try:
            return await request({"accessToken": token})
        except (NotAuthenticated, NotAllowed):
            if (newer := await self._renewed(server, token)) == token:
                raise
        return await request({"accessToken": newer})

    async def _renewed(self, server: str, refused: str) -> str:
        """A newer token than the refused one, or that one if it is young. Raises SourceError."""
        async with self._lock:
            if refused == self._token and (not refused or self._clock() - self._logged_in_at >= YOUNG_TOKEN_SECONDS):
                error, until = self._failed.get(server, (None, 0.0))
                now = asyncio.get_running_loop().time()
                if error is not None and now < until:
                    raise copy.copy(error)  # each with a traceback of its own
                try:
                    self._token = await self._log_in(server)
                except SourceError as failure:
                    self._failed[server] = copy.copy(failure), now + LOGIN_PAUSE_SECONDS
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
                "it has no login: end the address with Nacos' context path (/nacos), or leave `username` empty"
            )
        # Nacos 3.1 answers a wrong password with this 500, and an unknown user with 403.
        if reply.status in {400, 401, 403} or (reply.status == 500 and _PASSWORD_500 in reply.body):
            raise NotAuthenticated(f"login: {refusal(reply)}; check `username` and `passwordFile`")
        if reply.status != 200:
            raise refusal(reply).with_context("login")
        token = decoded(_TOKEN, reply.body, "login: not what Nacos answers there").access_token
        if not token:
            raise WrongRegistryAnswer("login: no token in the answer; leave `username` empty for this server")
        return token


def signature(access_key: str, secret_key: str, grouped_name: str, at: float) -> dict[str, str]:
    """The three fields that authenticate a request about a service to a managed Nacos; `at` is in epoch seconds."""
    data = f"{int(at * 1000)}@@{grouped_name}"
    digest = hmac.new(secret_key.encode(), data.encode(), hashlib.sha1).digest()  # the protocol's own choice
    return {"ak": access_key, "data": data, "signature": base64.b64encode(digest).decode()}
