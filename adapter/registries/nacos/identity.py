"""How this process proves to Nacos who it is: a token from a login, or requests signed with an access key."""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from adapter.registries.client import refusal, send
from adapter.registries.nacos.wire import Place, Token, reading
from adapter.runtime.decoding import Decoder
from adapter.runtime.outbound import Client, Reply, secret
from adapter.runtime.source_errors import NotAllowed, NotAuthenticated, SourceUnreachable, WrongRegistryAnswer
from adapter.settings.registries import NacosRegistry

LOGIN_AGAIN_SECONDS = 30.0
"""How old a refused token must be before another is asked for: a young one is refused for lack of rights."""

MOVED = frozenset({404, 405, 410, 501})
"""Statuses by which servers of another version say that they have no such call."""

_LOGINS = ("/v3/auth/user/login", "/v1/auth/login", "/v1/auth/users/login")
_PASSWORD_500 = b"No message available"
_RENEW_AT = 0.9
_TOKEN = Decoder(Token).decode

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Proof:
    """What goes with a request: a token, or the fields of a signature, or nothing."""

    token: str = field(default="", repr=False)
    signature: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """As HTTP headers. Both, for some versions know only one of them."""
        return {"accessToken": self.token, "Authorization": f"Bearer {self.token}"} if self.token else {}

    @property
    def fields(self) -> dict[str, str]:
        """As fields of a gRPC message."""
        return {"accessToken": self.token} if self.token else dict(self.signature)


class Identity:
    """Proves each request. One token is shared by all servers; `clock` gives seconds."""

    def __init__(self, settings: NacosRegistry, client: Client, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._client = client
        self._clock = clock
        self._token = ""
        self._since = 0.0
        self._until = 0.0
        self._turn = asyncio.Lock()

    async def proven(self, server: str, place: Place, ask: Callable[[Proof], Awaitable[T]]) -> T:
        """Ask with a proof; where that is refused and a new login may help, log in again and ask once more."""
        proof = await self._proof(server, place)
        try:
            return await ask(proof)
        except (NotAuthenticated, NotAllowed):
            if not self._drop(proof):
                raise
        return await ask(await self._proof(server, place))

    async def _proof(self, server: str, place: Place) -> Proof:
        if self._settings.access_key_file:
            return Proof(signature=await self._signature(place))
        if not self._settings.username:
            return Proof()
        async with self._turn:
            if not self._token or self._clock() >= self._until:
                await self._login(server)
            return Proof(self._token)

    def _drop(self, proof: Proof) -> bool:
        """Whether the next proof will be another one."""
        if not proof.token:
            return False
        if proof.token != self._token:
            return True
        if self._clock() - self._since < LOGIN_AGAIN_SECONDS:
            return False
        self._token = ""
        return True

    # --- login ---

    async def _login(self, server: str) -> None:
        self._token = ""
        form = {"username": self._settings.username, "password": await self._secret(self._settings.password_file)}
        reply = await self._ask_login(server, form)
        token = reading(_TOKEN, reply.body, f"login at {server}")
        if not token.access_token:
            raise WrongRegistryAnswer(f"login at {server}: no token in the answer; name no `username` for this server")
        self._token, self._since = token.access_token, self._clock()
        # In time, and never so soon that each request would log in.
        self._until = self._since + max(token.token_ttl * _RENEW_AT, 1.0)

    async def _ask_login(self, server: str, form: Mapping[str, str]) -> Reply:
        for path in _LOGINS:
            reply = await send(self._client, "POST", server + path, data=form)
            if reply.status == 200:
                return reply
            if reply.status not in MOVED:
                raise _login_refused(server, reply)
        raise WrongRegistryAnswer(
            f"{server} has no login: end the address with Nacos' context path (/nacos), or name no `username`"
        )

    # --- signature ---

    async def _signature(self, place: Place) -> dict[str, str]:
        access_key = await self._secret(self._settings.access_key_file)
        key = await self._secret(self._settings.secret_key_file)
        return signature(access_key, key, place.grouped, self._clock())

    async def _secret(self, file: str) -> str:
        try:
            return await asyncio.to_thread(secret, file) if file else ""
        except (OSError, UnicodeDecodeError) as error:
            raise SourceUnreachable(f"credentials: cannot read {file}: {error}") from error


def signature(access_key: str, secret_key: str, grouped_service: str, at: float) -> dict[str, str]:
    """The three fields by which a managed Nacos knows who asks about a service at this time (epoch seconds)."""
    data = f"{int(at * 1000)}@@{grouped_service}"
    digest = hmac.new(secret_key.encode(), data.encode(), hashlib.sha1).digest()  # the protocol's own choice
    return {"ak": access_key, "data": data, "signature": base64.b64encode(digest).decode()}


def _login_refused(server: str, reply: Reply) -> Exception:
    error = refusal(reply)
    # Nacos 3.1 answers a wrong password so, and an unknown user with 403.
    if reply.status in {400, 401, 403} or (reply.status == 500 and _PASSWORD_500 in reply.body):
        advice = "look at `username` and `passwordFile`"
        return NotAuthenticated(f"login at {server}: {error}; {advice}")
    return error.at(f"login at {server}")
