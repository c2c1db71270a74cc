"""Credentials of requests to Nacos: a token from a login, or a signature with an access key."""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from adapter.registries.client import refusal, send
from adapter.registries.nacos.wire import LoginResponse, NacosService, decode_body
from adapter.runtime.decoding import Decoder
from adapter.runtime.outbound import Client, Reply, secret
from adapter.runtime.source_errors import NotAllowed, NotAuthenticated, SourceUnreachable, WrongRegistryAnswer
from adapter.settings.registries import NacosRegistry

YOUNG_TOKEN_SECONDS = 30.0
"""A refused token older than this is renewed; a younger one was refused for lack of rights."""

NO_SUCH_CALL = frozenset({404, 405, 410, 501})
"""Statuses with which servers of other versions answer a call that they do not have."""

_LOGINS = ("/v3/auth/user/login", "/v1/auth/login", "/v1/auth/users/login")
_PASSWORD_500 = b"No message available"
_RENEW_SHARE = 0.9
_TOKEN = Decoder(LoginResponse).decode

T = TypeVar("T")


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


class CredentialProvider:
    """Provides credentials for each request. All servers share one token; `clock` returns epoch seconds."""

    def __init__(self, settings: NacosRegistry, client: Client, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._client = client
        self._clock = clock
        self._token = ""
        self._logged_in_at = 0.0
        self._renew_at = 0.0
        self._login_lock = asyncio.Lock()

    async def authenticated(
        self, server: str, service: NacosService, request: Callable[[RequestCredentials], Awaitable[T]]
    ) -> T:
        """Sends a request with credentials; if they are refused and a new login may help, logs in and retries once."""
        credentials = await self._current_credentials(server, service)
        try:
            return await request(credentials)
        except (NotAuthenticated, NotAllowed):
            if not self._discard(credentials):
                raise
        return await request(await self._current_credentials(server, service))

    async def _current_credentials(self, server: str, service: NacosService) -> RequestCredentials:
        if self._settings.access_key_file:
            return RequestCredentials(signature=await self._signature(service))
        if not self._settings.username:
            return RequestCredentials()
        async with self._login_lock:
            if not self._token or self._clock() >= self._renew_at:
                await self._login(server)
            return RequestCredentials(self._token)

    def _discard(self, credentials: RequestCredentials) -> bool:
        """Discards a refused token; returns whether the next request will have another one."""
        if not credentials.token:
            return False
        if credentials.token != self._token:
            return True
        if self._clock() - self._logged_in_at < YOUNG_TOKEN_SECONDS:
            return False
        self._token = ""
        return True

    # --- login ---

    async def _login(self, server: str) -> None:
        self._token = ""
        form = {"username": self._settings.username, "password": await self._secret(self._settings.password_file)}
        reply = await self._post_login(server, form)
        token = decode_body(_TOKEN, reply.body, f"login at {server}")
        if not token.access_token:
            raise WrongRegistryAnswer(
                f"login at {server}: no token in the answer; leave `username` empty for this server"
            )
        self._token, self._logged_in_at = token.access_token, self._clock()
        # Before the token expires, but at most once a second, so that not every request logs in.
        self._renew_at = self._logged_in_at + max(token.token_ttl * _RENEW_SHARE, 1.0)

    async def _post_login(self, server: str, form: Mapping[str, str]) -> Reply:
        for path in _LOGINS:
            reply = await send(self._client, "POST", server + path, data=form)
            if reply.status == 200:
                return reply
            if reply.status not in NO_SUCH_CALL:
                raise _login_refused(server, reply)
        raise WrongRegistryAnswer(
            f"{server} has no login: end the address with Nacos' context path (/nacos), or leave `username` empty"
        )

    # --- signature ---

    async def _signature(self, service: NacosService) -> dict[str, str]:
        access_key = await self._secret(self._settings.access_key_file)
        key = await self._secret(self._settings.secret_key_file)
        return signature(access_key, key, service.grouped_name, self._clock())

    async def _secret(self, file: str) -> str:
        try:
            return await asyncio.to_thread(secret, file) if file else ""
        except (OSError, UnicodeDecodeError) as error:
            raise SourceUnreachable(f"credentials: cannot read {file}: {error}") from error


def signature(access_key: str, secret_key: str, grouped_name: str, at: float) -> dict[str, str]:
    """The three fields that authenticate a request about a service to a managed Nacos; `at` is in epoch seconds."""
    data = f"{int(at * 1000)}@@{grouped_name}"
    digest = hmac.new(secret_key.encode(), data.encode(), hashlib.sha1).digest()  # the protocol's own choice
    return {"ak": access_key, "data": data, "signature": base64.b64encode(digest).decode()}


def _login_refused(server: str, reply: Reply) -> Exception:
    error = refusal(reply)
    # Nacos 3.1 answers a wrong password with this 500, and an unknown user with 403.
    if reply.status in {400, 401, 403} or (reply.status == 500 and _PASSWORD_500 in reply.body):
        advice = "look at `username` and `passwordFile`"
        return NotAuthenticated(f"login at {server}: {error}; {advice}")
    return error.at(f"login at {server}")
