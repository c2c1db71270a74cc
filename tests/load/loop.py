"""A closed loop in model time: demand, pods, a registry, scrapes, the product's own law, and the HPA's behavior.

Demand is shared by the pods that serve. Each pod has a counter of its work, which is scraped; the adapter reads its
rate over a window as Prometheus computes it. Every random choice comes from one seed.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Self

from adapter.load.memory import Memory
from adapter.load.pods import Owner, Pod, PodCondition
from adapter.load.roster import Instance, Roster
from adapter.load.samples import Point, QuerySamples, Samples
from adapter.load.spec import Bounds, Policy, PulledOut, Registry
from tests.load.kit import assess_and_decide, queue

HIGH, LOW = 1200, 600
IDLE = 15.0
SYNC = 15
EPOCH = 1_767_268_800
MILLI = 10**6


@dataclass(frozen=True)
class World:
    """What happens in a loop: seconds between events (0: never), and how the HPA may shrink."""

    churn: int = 0
    rollout: int = 0
    faults: bool = False
    hot: bool = False
    stabilization: int = 0
    percent: int = 0
    window: int = 60
    scrape: int = 15
    pulls: int = 0
    """Seconds between pull-outs of a third of the pods."""
    skewed: bool = False
    """Each pod's rate is that of its own last scrape, as with metrics.k8s.io."""
    follows: bool = False
    """The scraper follows the registry: a pod that is pulled out has no samples."""
    marked: bool = False
    """Pulled-out pods have a lower deletion cost, so they are deleted first."""


@dataclass(eq=False)
class Replica:
    """A pod of the model: when it turns Ready and registers, and when it is pulled out or sick."""

    uid: str
    born: int
    ready: int
    registered: int
    weight: float = 1.0
    phase: int = 0
    out: tuple[int, int, bool] = (-1, -1, False)
    """From, until, and whether it is absent from the list then (else disabled in it)."""
    sick: tuple[int, int] = (-1, -1)
    work: float = 0.0
    scrapes: list[tuple[int, float]] = field(default_factory=list)

    def is_ready(self, t: int) -> bool:
        return t >= self.ready and not self.sick[0] <= t < self.sick[1]

    def is_out(self, t: int) -> bool:
        return self.out[0] <= t < self.out[1]

    def serves(self, t: int) -> bool:
        return t >= self.registered and self.is_ready(t) and not self.is_out(t)

    def rate(self, t: int, window: int) -> tuple[float, int] | None:
        """The rate over the window as Prometheus extrapolates it, and the samples in it; None below two."""
        first = bisect_right(self.scrapes, (t - window, math.inf))
        count = len(self.scrapes) - first
        if count < 2:
            return None
        (begin, before), (end, after) = self.scrapes[first], self.scrapes[-1]
        span = end - begin
        distance = span / (count - 1)
        lead, tail = begin - (t - window), t - end
        lead = distance / 2 if lead >= 1.1 * distance else lead
        tail = distance / 2 if tail >= 1.1 * distance else tail
        return (after - before) * (span + lead + tail) / span / window, count

    def object(self, t: int, *, marked: bool = False) -> Pod:
        """The pod as the API server has it."""
        started = self.ready if self.sick[1] < 0 or t < self.sick[0] else max(self.sick)
        since = min(t, self.sick[0]) if self.sick[0] <= t < self.sick[1] else started
        condition = PodCondition(self.is_ready(t), float(EPOCH + since)) if t >= self.ready else None
        return Pod(
            namespace="shop",
            name=self.uid,
            uid=self.uid,
            created_at=EPOCH + self.born,
            started_at=EPOCH + self.born + 2,
            ready=condition or PodCondition(False, float(EPOCH + self.born)),
            containers_ready=self.is_ready(t),
            deletion_cost=-100 if marked and self.is_out(t - 3) else 0,
            ips=(f"10.{int(self.uid) // 250}.1.{int(self.uid) % 250}",),
            owner=Owner("ReplicaSet", "web-abc"),
            template_hash="abc",
        )


class Loop:
    """One service in a loop of `end` seconds."""

    def __init__(self, world: World, seed: int, end: int = 3600) -> None:
        self.world, self.end = world, end
        self.random, self.starts = random.Random(seed), random.Random(seed + 1)
        self.demand = list(self._demand())
        self.replicas: list[Replica] = []
        self.made = 0
        self.memory = Memory(started_at=EPOCH - 3000.0)
        self.listed: dict[str, bool] = {}
        self.listed_at = 0
        self.gap_until = self.outage_until = -1
        self.wiped_at = -9999
        self.below: list[str] = []  # counts asked for below the truth
        self.counts: list[tuple[int, float]] = []  # the pods that exist and the demand, at each sync
        self.rule = Policy(
            namespace="shop",
            name="web",
            hpa="web",
            metrics=(replace(queue(f"{HIGH}m", f"{LOW}m"), name="rps"),),
            registry=Registry(name="nacos", service="web"),
            pulled_out=PulledOut(replace_after=60.0),
        )

    def _demand(self) -> Iterator[float]:
        drift, base = 0.0, 16_000.0
        spikes = []
        for _ in range(4):
            begin = self.random.randrange(300, self.end - 300)
            spikes.append((begin, begin + self.random.randrange(120, 500), self.random.choice([1.5, 1.8, 0.5, 0.4])))
        for t in range(self.end):
            drift += -drift / 120 + self.random.gauss(0, 0.008)
            factor = math.prod(by for begin, until, by in spikes if begin <= t < until)
            yield base * (1 + 0.5 * math.sin(2 * math.pi * t / self.end)) * math.exp(drift) * factor

    def _new(self, t: int, *, is_old: bool = False) -> None:
        self.made += 1
        ready = t if is_old else t + self.starts.choice([20, 30, 45, 60])
        registered = ready + (0 if is_old else self.starts.randint(2, 12))
        phase = self.starts.randrange(self.world.scrape)
        self.replicas.append(Replica(str(self.made), t, ready, registered, phase=phase))

    def run(self) -> Self:
        """Runs the loop, and returns it."""
        world = self.world
        count = int(self.demand[0] / 850)
        for _ in range(count):
            self._new(-3000, is_old=True)
        recommended: list[tuple[int, int]] = []
        falls: list[tuple[int, int]] = []
        for t in range(self.end):
            self._disturb(t)
            while len(self.replicas) < count:
                self._new(t)
            if len(self.replicas) > count:  # the ReplicaSet takes pods that are not Ready first, then the youngest
                marked = world.marked
                self.replicas.sort(key=lambda one: (one.is_ready(t), not (marked and one.is_out(t - 3)), -one.born))
                del self.replicas[: len(self.replicas) - count]
            self._work(t)
            if t % SYNC or t < 120:
                continue
            wanted = max(2, min(400, self._asked(t, count)))
            recommended = [each for each in recommended if each[0] > t - world.stabilization] + [(t, wanted)]
            if wanted < count:
                wanted = min(count, max(each for _, each in recommended))
                if self.world.percent:
                    falls = [each for each in falls if each[0] > t - 60]
                    begin = count + sum(by for _, by in falls)
                    wanted = max(wanted, min(count, int(begin * (1 - self.world.percent / 100))))
            if wanted < count:
                falls.append((t, count - wanted))
            count = wanted
            self.counts.append((len(self.replicas), self.demand[t]))
        return self

    def _disturb(self, t: int) -> None:
        """What happens at this second."""
        world, up = self.world, [one for one in self.replicas if one.serves(t)]
        if world.churn and t % world.churn == 0 and t > 300 and up:
            self.replicas.remove(self.random.choice(up))
        if world.rollout and t >= world.rollout and t % 20 == 0 and t % world.rollout < 400 and len(up) > 1:
            self.replicas.remove(min(up, key=lambda one: one.born))
        if world.hot and t % 600 == 300 and up:
            self.replicas = [one for one in self.replicas if one.weight == 1.0]  # the hot pod dies
            for one in [one for one in self.replicas if one.serves(t)][:1]:
                one.weight = 6.0
        if world.pulls and t % world.pulls == 0 and t > 300 and len(up) > 3:
            for one in self.random.sample(up, len(up) // 3):
                one.out = (t, t + world.pulls // 2, False)
        if not world.faults or t < 300:
            return
        if self.random.random() < 1 / 250 and up:
            pulled = self.random.sample(up, max(1, len(up) * self.random.choice([0, 0, 0, 3]) // 10))
            until, is_absent = t + self.random.randint(120, 900), self.random.random() < 0.5
            for one in pulled:
                one.out = (t, until, is_absent)
        if self.random.random() < 1 / 900:
            self.gap_until = t + self.random.randint(20, 150)
        if self.random.random() < 1 / 1200:
            self.outage_until = t + self.random.choice([60, 300, 1200])
        if self.random.random() < 1 / 1200:
            self.wiped_at = t
        if self.random.random() < 1 / 700:
            self.memory = Memory(started_at=float(EPOCH + t))  # the adapter is restarted
        if self.random.random() < 1 / 500 and up:
            self.random.choice(up).sick = (t, t + self.random.randint(20, 400))

    def _work(self, t: int) -> None:
        """One second of work, scrapes, and lists of the registry each five seconds."""
        up = [one for one in self.replicas if one.serves(t)]
        weights = sum(one.weight for one in up)
        for one in self.replicas:
            one.work += IDLE
        for one in up:
            one.work += self.demand[t] * one.weight / weights
        for one in self.replicas:
            is_scraped = t >= self.gap_until and (t + one.phase) % self.world.scrape == 0 and t >= one.born + 5
            if is_scraped and not (self.world.faults and self.starts.random() < 0.02):
                one.scrapes.append((t, one.work))
                del one.scrapes[: -(self.world.window // self.world.scrape + 4)]
        if t % 5 == 0 and t >= self.outage_until:
            self.listed_at = t
            self.listed = {
                one.uid: not one.is_out(t)
                for index, one in enumerate(self.replicas)
                if t >= one.registered
                and not (one.is_out(t) and one.out[2])
                and not self.wiped_at <= t < self.wiped_at + (40 if index % 2 else 240)
            }

    def _asked(self, t: int, current: int) -> int:
        """The count that the adapter asks for; noted where it is below the truth."""
        window, points = self.world.window, {}
        for one in self.replicas:
            at = one.scrapes[-1][0] if self.world.skewed and one.scrapes else t
            rate = None if self.world.follows and one.is_out(t - 5) else one.rate(at, window)
            if rate is not None:
                points[one.uid] = Point(EPOCH + at, int(rate[0] * MILLI), rate[1])
        pods = [one.object(t, marked=self.world.marked) for one in self.replicas]
        addresses = {pod.uid: pod.ips[0] for pod in pods}
        instances = tuple(
            Instance(ip=addresses[uid], port=80, enabled=is_on)
            for uid, is_on in self.listed.items()
            if uid in addresses
        )
        assessment, decision = assess_and_decide(
            self.rule,
            pods,
            Samples(queries={"rps": QuerySamples(pods=points, window=window, fetched_at=EPOCH + t)}),
            current=current,
            status=len(pods),
            listed=Roster(at=EPOCH + self.listed_at, instances=instances),
            memory=self.memory,
            bounds=Bounds(minimum=2, maximum=400),
            now=float(EPOCH + t),
        )
        self.memory = assessment.memory
        if decision.desired is None:
            return current
        is_kept = not self.world.marked
        known_out = sum(
            is_kept and one.is_ready(t) and one.is_out(t) and one.out[0] <= self.listed_at for one in self.replicas
        )
        least = min(self.demand[max(0, t - 180) : t + 1]) * 0.97
        needed = min(current, int(least / LOW) + known_out)
        if decision.desired < min(current, needed):
            self.below.append(f"at {t} s: asks for {decision.desired} of {current}, {needed} are needed")
        return decision.desired
