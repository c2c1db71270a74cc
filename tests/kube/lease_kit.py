"""Candidates for a lease in a time of their own: a loop that never waits, a server that delays and loses answers."""

import asyncio
import functools
import random
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import msgspec

from adapter.kube.errors import Conflict, Forbidden, NotFound, Unreachable
from adapter.kube.leader_election import DURATION_SECONDS, LeaderElector
from adapter.kube.session import Session
from adapter.runtime.http import Reply

T = TypeVar("T")
NAME, NAMESPACE = "companion", "system"
COLLECTION = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


class _Selector(selectors.SelectSelector):
    """Lets the time that would be waited pass at once."""

    passed = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.passed += timeout or 0.0
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.selector = _Selector()
        super().__init__(self.selector)

    def time(self) -> float:
        return self.selector.passed


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run it in a loop whose time passes as fast as nothing happens. What still runs at its end is cancelled."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(work)


def in_own_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test in such a loop."""

    @functools.wraps(test)
    def in_loop(*args: Any, **named: Any) -> None:
        run(test(*args, **named))

    return in_loop


def moment() -> float:
    """The true time, seconds."""
    return asyncio.get_running_loop().time()


def empty() -> dict[str, Any]:
    """The lease as the manifests bring it."""
    metadata = {"name": NAME, "namespace": NAMESPACE, "uid": "u0", "resourceVersion": "0"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}


@dataclass
class Server:
    """Holds the lease. What `trouble` gives for a request is how long it takes there and back, and whether it fails.

    A negative way there is a request that never arrives, a negative way back an answer that never does.
    """

    trouble: Callable[[str], tuple[float, float]] = lambda _: (0.01, 0.01)
    lease: dict[str, Any] | None = field(default_factory=empty)
    version: int = 0
    forbids: set[str] = field(default_factory=set)
    writes: list[tuple[float, str | None]] = field(default_factory=list)

    async def ask(self, method: str, path: str, body: bytes | None, who: str) -> bytes:
        there, back = self.trouble(who)
        await self._way(there)
        answer = self._answered(method, path, msgspec.json.decode(body) if body else None)
        await self._way(back)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _way(self, seconds: float) -> None:
        await asyncio.sleep(abs(seconds))
        if seconds < 0:
            raise Unreachable("the connection broke")

    def _answered(self, method: str, path: str, sent: Any) -> bytes | Exception:
        assert path == (COLLECTION if method == "POST" else f"{COLLECTION}/{NAME}")
        if method in self.forbids:
            return Forbidden(403, "Forbidden", f"may not {method}")
        if method == "GET":
            return NotFound(404, "NotFound", "no lease") if self.lease is None else msgspec.json.encode(self.lease)
        if method == "POST" and self.lease is not None:
            return Conflict(409, "AlreadyExists", "there is one")
        if method == "PUT" and (self.lease is None or _version(sent) != _version(self.lease)):
            return Conflict(409, "Conflict", "it was changed, or is gone")
        self.version += 1
        uid = self.lease["metadata"]["uid"] if self.lease else f"u{self.version}"
        sent["metadata"] |= {"uid": uid, "resourceVersion": str(self.version)}
        self.lease = sent
        self.writes.append((moment(), sent["spec"].get("holderIdentity")))
        return msgspec.json.encode(sent)

    @property
    def holder(self) -> str | None:
        return self.lease["spec"].get("holderIdentity") if self.lease else None


def _version(lease: dict[str, Any]) -> tuple[str, str]:
    """What a write is compared by; other metadata is replaced by what was sent."""
    return lease["metadata"]["uid"], lease["metadata"]["resourceVersion"]


class _Session:
    """As much of a session as a lease needs; this process's clock runs at a `rate` of its own."""

    def __init__(self, server: Server, who: str, rate: float) -> None:
        loop = asyncio.get_running_loop()
        self.monotonic = lambda: 1000.0 + loop.time() * rate
        self._server, self._who = server, who

    def now(self) -> float:
        return 1.7e9 + self.monotonic()

    async def get(self, path: str, *, timeout: float = 10.0) -> bytes:  # noqa: ASYNC109  as the real one
        async with asyncio.timeout(timeout):
            return await self._server.ask("GET", path, None, self._who)

    async def request(self, method: str, path: str, *, body: bytes, timeout: float = 10.0) -> Reply:  # noqa: ASYNC109
        async with asyncio.timeout(timeout):
            return Reply(200, {}, await self._server.ask(method, path, body, self._who))


@dataclass
class Candidate:
    """A process that runs for the lease, and acts while it leads: when each act began and ended is in `acts`."""

    name: str
    server: Server
    rate: float = 1.0
    acting: Callable[[], float] = lambda: 0.2
    acts: list[tuple[float, float]] = field(default_factory=list)
    spells: int = 0
    work: Callable[[], Awaitable[None]] | None = None
    duration: int = DURATION_SECONDS

    async def start(self, seconds: float = 0.0) -> None:
        """Begin, and let so many seconds pass."""
        session = cast("Session", _Session(self.server, self.name, self.rate))
        self.lease = LeaderElector(session, NAMESPACE, NAME, self.name, self.duration)
        self.task = asyncio.create_task(self.lease.lead(self.work or self._act))
        await asyncio.sleep(seconds)

    async def _act(self) -> None:
        self.spells += 1
        while True:
            if self.lease.leads:
                seconds = self.acting()
                self.acts.append((moment(), moment() + seconds))
                # An act that began cannot be called back, only waited for: its request is on its way.
                act = asyncio.ensure_future(asyncio.sleep(seconds))
                try:
                    await asyncio.shield(act)
                finally:
                    await act
            await asyncio.sleep(0.1)

    async def stop(self) -> None:
        """End in order."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def kill(self) -> None:
        """End without another word: what it would still say never arrives."""
        spoken, self.server.trouble = (
            self.server.trouble,
            lambda who: (-0.001, 0.0) if who == self.name else spoken(who),
        )
        await self.stop()


async def leader(seconds: float, *, acting: float = 0.2, **server: Any) -> tuple[Candidate, Server]:
    """The only candidate, so many seconds after it began, and its server."""
    holder = Server(**server)
    one = Candidate("one", holder, acting=lambda: acting)
    await one.start(seconds)
    return one, holder


async def one_and_another(server: Server, acting: float = 0.2) -> tuple[Candidate, Candidate]:
    """A leader whose acts take so many seconds, and one who waits since this moment."""
    first, second = Candidate("first", server, acting=lambda: acting), Candidate("second", server)
    await first.start(1)
    await second.start()
    return first, second


def overlaps(candidates: list[Candidate]) -> list[str]:
    """Where two candidates acted at once."""
    acts = sorted((begun, ended, one.name) for one in candidates for begun, ended in one.acts)
    last: dict[str, float] = {}
    found = []
    for begun, ended, name in acts:
        found += [
            f"{name} at {begun:.2f} while {other} until {until:.2f}"
            for other, until in last.items()
            if other != name and begun < until
        ]
        last[name] = max(ended, last.get(name, 0.0))
    return found


def unlucky(seed: int, *, lost: float, slow: float) -> Callable[[str], tuple[float, float]]:
    """Ways that take up to 4 s, or never end: `lost` and `slow` are how often (0 to 1)."""
    luck = random.Random(seed)

    def way() -> float:
        seconds = luck.uniform(0, 4) if luck.random() < slow else luck.uniform(0, 0.05)
        return -seconds - 0.001 if luck.random() < lost else seconds

    return lambda _: (way(), way())
