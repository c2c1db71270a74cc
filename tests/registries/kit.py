"""What the tests of every registry share: a followed service, its pods, and their states as `load.assess` finds them.

    async with FollowedService(settings, "shop") as service:
        await service.until_listed(4)
        service.pods.states()                   # {"web-0": PodState.SERVING, …}
        with service.pods.nothing_changes():    # events in this block must not look like a pull-out
            ...

Time is the real time plus the test's jumps: no test waits for 45 s of absence or 5 min of silence.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic import TypeAdapter

from adapter.load.memory import Memory
from adapter.load.pods import Pod, PodState
from adapter.load.roster import Roster
from adapter.load.spec import Bounds, Registry
from adapter.registries.cache import InstanceCache
from adapter.registries.follow import Follower, open_source
from adapter.registries.source import ServiceKey, Source
from adapter.settings.base import models_in, type_of
from adapter.settings.registries import HttpAsked
from adapter.settings.registries import Registry as Settings
from adapter.telemetry.metrics import Metrics
from tests.load.kit import assess_and_decide, cpu, pod, policy, usage
from tests.waiting import eventually

LOAD, HIGH, LOW = "600m", "1200m", "400m"
"""The load of every pod, between the watermarks: only the pods' states can change the desired count."""


SETTINGS: TypeAdapter[Settings] = TypeAdapter(Settings)
TYPES = {type_of(section): section for section in models_in(Settings)}
HTTP_TYPES = sorted(name for name, section in TYPES.items() if issubclass(section, HttpAsked))
POLLED: Mapping[str, float] = {"timeout_seconds": 5, "interval_seconds": 0.1}
"""The pace of a type that PACE does not name."""
PACE: Mapping[str, Mapping[str, float]] = {
    "Consul": {"timeout_seconds": 2, "wait_seconds": 2},
    "HTTP": {"timeout_seconds": 2, "interval_seconds": 0.05},
    "Nacos": {"timeout_seconds": 5, "interval_seconds": 0.5},
    "Polaris": {"timeout_seconds": 5, "interval_seconds": 0.2},
    "ZooKeeper": {"timeout_seconds": 3, "session_seconds": 10},  # so long that a busy machine is not an outage
}


class Clock:
    """Epoch seconds, with jumps. `read` is set at each call, which every answer and every confirmation makes."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.read = asyncio.Event()

    def __call__(self) -> float:
        self.read.set()
        return time.time() + self.ahead

    def jump(self, seconds: float) -> None:
        self.ahead += seconds


class Pods:
    """Ready pods `web-0` … at `10.0.0.10` …, port 8080, running for an hour; `registry` are fields of the policy's."""

    def __init__(
        self, cache: InstanceCache, key: ServiceKey, clock: Clock, *, pods: int = 4, **registry: object
    ) -> None:
        self.cache, self.key, self.clock = cache, key, clock
        self.pods: list[Pod] = [pod(f"web-{n}", ip=f"10.0.0.{10 + n}", now=clock()) for n in range(pods)]
        named = Registry(name=key.registry, service=key.service, namespace=key.namespace, group=key.group)
        self.policy = policy(cpu(HIGH, LOW), registry=replace(named, **registry))  # type: ignore[arg-type]
        self.loads: dict[str, str] = {}
        """The load of the pods whose load is not LOAD, by name."""
        self.memory = Memory()
        self.desired: int | None = None

    def states(self) -> Mapping[str, PodState]:
        """The states of the pods by name, by the current list; sets `desired` to the desired count."""
        now = self.clock()
        bounds = Bounds(minimum=1, maximum=100)
        samples = usage({one.name: self.loads.get(one.name, LOAD) for one in self.pods}, at=now - 5)
        listed = self.cache.instances(self.key)
        assessment, decision = assess_and_decide(
            self.policy, self.pods, samples, listed=listed, memory=self.memory, bounds=bounds, now=now
        )
        self.memory = assessment.memory
        self.desired = decision.desired
        return {one.pod.name: one.state for one in assessment.pods}

    def out(self) -> list[str]:
        """The names of the pods that are pulled out."""
        return sorted(name for name, state in self.states().items() if state is PodState.PULLED_OUT)

    @contextlib.contextmanager
    def nothing_changes(self) -> Iterator[None]:
        """Asserts that the block, and ten minutes of assessments after it, pull no pod out and change no count."""
        before = self.out(), self.desired
        yield
        for _ in range(60):
            assert (self.out(), self.desired) == before
            self.clock.jump(10)


class FollowedService:
    """One service that is followed while the block runs, and four pods (`web-0` … at 10.0.0.10 …) that register there.

    `source`: instead of that of the settings. No pause after failures is longer than a second.
    """

    def __init__(
        self, settings: Settings, service: str, namespace: str = "", group: str = "", *, source: Source | None = None
    ) -> None:
        self.settings = settings
        self.key = ServiceKey(settings.name, service, namespace, group)
        self.clock, self.metrics = Clock(), Metrics()
        self.changes: list[float] = []
        """When the list or its error changed (`time.monotonic`)."""
        self.cache = InstanceCache(settings, self._on_change, self.clock, self.metrics)
        self.source = source or open_source(settings)
        self._follower = Follower(self.source, self.cache, longest_pause=1.0)
        self.pods = Pods(self.cache, self.key, self.clock)

    async def __aenter__(self) -> Self:
        self.follow([self.key])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._follower.close()

    def follow(self, keys: Iterable[ServiceKey]) -> None:
        """Follows exactly these services from now on."""
        self._follower.follow(keys)

    def confirm(self) -> None:
        """Records the last list of each service as confirmed now, but for those about which the registry errs."""
        for key in self.cache.keys:
            listed = self.cache.instances(key)
            if listed is not None and listed.valid and listed.error is None:
                self.cache.put(key, listed)

    def _on_change(self, _: ServiceKey) -> None:
        self.changes.append(time.monotonic())
        self.clock.read.set()

    @property
    def listing(self) -> Roster:
        """The service's instance list; there must be one."""
        listed = self.cache.instances(self.key)
        assert listed is not None
        return listed

    @property
    def error(self) -> str:
        """The error of the latest request about the service; empty if it succeeded."""
        return self.error_of(self.key)

    def error_of(self, key: ServiceKey) -> str:
        """The same of another service of this source."""
        trouble = self.cache.troubles.get(key)
        listed = self.cache.instances(key)
        return trouble.sentence if trouble is not None else (listed and listed.error) or ""

    @property
    def listed(self) -> int:
        """The number of instances in the last valid answer; -1 without one."""
        return self.listed_of(self.key)

    def listed_of(self, key: ServiceKey) -> int:
        """The same of another service of this source."""
        listed = self.cache.instances(key)
        return len(listed.instances) if listed is not None and listed.valid else -1

    def everyone_serves(self) -> bool:
        """Whether all pods do."""
        return set(self.pods.states().values()) == {PodState.SERVING}

    async def until(self, condition: Callable[[], object], seconds: float = 90) -> None:
        """Waits until the condition holds, and checks it after each answer, confirmation and change."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self.clock.read.clear()
                    await self.clock.read.wait()
        except TimeoutError:
            raise AssertionError(f"not within {seconds:g} s; last: {self.cache.instances(self.key)}") from None

    async def until_listed(self, count: int, key: ServiceKey | None = None) -> None:
        """Waits for a valid answer with this number of instances, and no error since; `key`: about another service."""
        key = key or self.key
        await self.until(lambda: self.listed_of(key) == count and not self.error_of(key))

    async def until_out(self, *names: str) -> None:
        """Waits until exactly these pods are pulled out."""
        await self.until(lambda: self.cache.instances(self.key) is not None and self.pods.out() == list(names))

    async def until_error(self, part: str) -> None:
        """Waits until the error contains this text."""
        await self.until(lambda: part in self.error)

    async def until_failed_again(self) -> None:
        """Waits for two more failures, between which nothing may confirm the last valid answer."""
        at, name = self.listing.at, "effective_load_registry_errors_total"

        def failures() -> float:
            families = self.metrics.registry.collect()
            return sum(each.value for family in families for each in family.samples if each.name == name)

        before = failures()
        await eventually(lambda: failures() >= before + 2)  # an error with the words of the last one is no change
        assert self.error
        assert self.listing.at == at

    async def until_confirmed(self) -> None:
        """Waits for one more valid answer or confirmation."""
        last = self.listing.at
        await self.until(lambda: self.listing.at > last)

    def aged(self, seconds: int) -> set[str]:
        """Lets this time pass, with a confirmation every 10 s; returns the pods that were pulled out meanwhile."""
        out: set[str] = set()
        for _ in range(seconds // 10):
            self.clock.jump(10)
            self.confirm()
            out.update(self.pods.out())
        return out


def follow(
    kind: str,
    servers: str | Sequence[str],
    service: str = "shop",
    *,
    place: Mapping[str, str] | None = None,
    **more: Any,
) -> FollowedService:
    """Follows a service of a registry of this type, whose name is that in lower case, while the block runs.

    `place`: namespace and group. `more` are settings of the registry.
    """
    addresses = (servers,) if isinstance(servers, str) else tuple(servers)
    where = {"url": servers} if kind == "HTTP" else {"servers": addresses}
    settings = SETTINGS.validate_python({"name": kind.lower(), "type": kind, **where, **PACE.get(kind, POLLED), **more})
    return FollowedService(settings, service, **(place or {}))


@contextlib.asynccontextmanager
async def served(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """The address of a server that answers each request so while the block runs."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(application) as server:
        yield f"http://127.0.0.1:{server.port}"


class PlayedSource:
    """A source that a test plays: `say` what the registry gives about a service, an answer or an error.

    `followed` are the services whose iterators are open, `asked` all of the calls.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings
        self.asked: list[ServiceKey] = []
        self.followed: set[ServiceKey] = set()
        self.closed = asyncio.Event()
        self._said: dict[ServiceKey, asyncio.Queue[Roster | Exception]] = {}

    def say(self, key: ServiceKey, said: Roster | Exception) -> None:
        self._said.setdefault(key, asyncio.Queue()).put_nowait(said)

    async def instances(self, key: ServiceKey) -> AsyncGenerator[Roster, None]:
        self.asked.append(key)
        self.followed.add(key)
        try:
            while True:
                said = await self._said.setdefault(key, asyncio.Queue()).get()
                if isinstance(said, Exception):
                    raise said
                yield said
        finally:
            self.followed.discard(key)

    async def close(self) -> None:
        self.closed.set()
