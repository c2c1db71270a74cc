"""A service whose pods register somewhere, judged as the adapter judges it: what its registry says, then `load.assess`.

    service = Service(source, key, clock, pods=4)
    await service.heard()                       # the source has told of a change, or of an error
    service.look()                              # {"web-0": PodState.SERVING, …}
    with service.nobody_turns_out():            # what happens in here may not be taken for a pull-out
        ...

Time is the real one plus what the test jumps ahead: nobody waits for 45 s of absence or 5 min of silence.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from adapter.load.memory import Memory
from adapter.load.pods import Pod, PodState
from adapter.load.spec import Bounds, Registry
from adapter.registries.roster import RosterSource, ServiceKey
from adapter.registries.roster_cache import RosterCache
from adapter.telemetry.metrics import Metrics
from tests.load.world import cpu, pod, policy, see, usage

LOAD, HIGH, LOW = "600m", "1200m", "400m"
"""Every pod's load, and watermarks that have no quarrel with it: only who counts can change the answer."""


class Clock:
    """Epoch seconds, with jumps."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead

    def jump(self, seconds: float) -> None:
        self.ahead += seconds


class Ears:
    """An `on_change` that can be awaited. Make the book with it: `Book(name, ears, clock, Metrics())`."""

    def __init__(self) -> None:
        self.heard: list[tuple[ServiceKey, float]] = []
        self._event = asyncio.Event()

    def __call__(self, key: ServiceKey) -> None:
        self.heard.append((key, time.monotonic()))
        self._event.set()

    async def until(self, told: Callable[[], bool], seconds: float = 30.0) -> None:
        """Wait until that is so, looking at it after each change that is told."""
        async with asyncio.timeout(seconds):
            while not told():
                self._event.clear()
                await self._event.wait()


def book(registry: str, clock: Clock | None = None, ears: Ears | None = None) -> RosterCache:
    """A book with metrics of its own."""
    return RosterCache(registry, ears or Ears(), clock or Clock(), Metrics())


class Service:
    """So many Ready pods `web-0` … at `10.0.0.10` …, port 8080, running for an hour; `registry` are fields of the
    policy's registry.
    """

    def __init__(
        self, source: RosterSource, key: ServiceKey, clock: Clock, *, pods: int = 4, **registry: object
    ) -> None:
        self.source, self.key, self.clock = source, key, clock
        self.pods: list[Pod] = [pod(f"web-{n}", ip=f"10.0.0.{10 + n}", now=clock()) for n in range(pods)]
        named = Registry(name=key.registry, service=key.service, namespace=key.namespace, group=key.group)
        self.policy = policy(cpu(HIGH, LOW), registry=replace(named, **registry))  # type: ignore[arg-type]
        self.memory = Memory()
        self.asked: int | None = None

    def look(self) -> Mapping[str, PodState]:
        """The states of the pods by name, by what the registry says now; `asked` is then the count to ask for."""
        now = self.clock()
        bounds = Bounds(minimum=1, maximum=100)
        samples = usage({one.name: LOAD for one in self.pods}, at=now - 5)
        assessment, decision = see(
            self.policy, self.pods, samples, listed=self.source.roster(self.key), memory=self.memory, bounds=bounds,
            now=now,
        )  # fmt: skip
        self.memory = assessment.memory
        self.asked = decision.desired
        return {reading.pod.name: reading.state for reading in assessment.pods}

    def out(self) -> list[str]:
        """The names of the pods that are out now."""
        return sorted(name for name, state in self.look().items() if state is PodState.PULLED_OUT)

    @contextlib.contextmanager
    def nobody_turns_out(self) -> Iterator[None]:
        """What happens in here, and ten minutes of looking at it afterwards, turns no pod out and changes no count."""
        before = self.out(), self.asked
        yield
        for _ in range(60):
            assert (self.out(), self.asked) == before
            self.clock.jump(10)
