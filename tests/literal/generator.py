"""Random services as sequences of documents, biased toward the edges of the rules.

A service is drawn once (its policy, its pods), then lives through up to six documents: pods come and go, turn unready,
are pulled out; samples age, freeze, repeat, fall to zero; rosters are valid, old, empty, partial. All of it comes from
one `random.Random`, so that a seed is a whole case.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
STEPS = (1, 5, 15, 15, 30, 30, 44, 45, 46, 60, 60, 61, 90, 91, 120, 240, 299, 300, 301, 600, 901)
AGES = (0, 1, 5, 10, 15, 30, 29, 31, 44, 45, 46, 59, 60, 61, 89, 90, 91, 179, 180, 181, 299, 300, 301, 600, 3600, 7200)
POLICY = {"apiVersion": "effective-load.io/v1alpha1", "kind": "WatermarkPolicy", "name": "web"}
EXPLICIT: tuple[dict[str, Any], ...] = (
    {"enabled": False}, {"weight": 0}, {"status": "OUT_OF_SERVICE"}, {"status": "DOWN"}, {"isolated": True},
    {"healthy": False}, {"healthy": False}, {"status": "maintenance"}, {"status": "critical"},
)  # fmt: skip


def text(seconds: float) -> str:
    """An RFC 3339 time, by its seconds since noon."""
    return (NOON + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def number(nano: int) -> str:
    """A canonical quantity of so many nano-units."""
    for size, suffix in ((10**9, ""), (10**6, "m"), (10**3, "u")):
        if nano % size == 0:
            return f"{nano // size}{suffix}"
    return f"{nano}n"


@dataclass
class SimPod:
    index: int
    created: float
    started: float | None
    ready: bool | None
    changed: float
    restarted: float | None = None
    """The last start of its container, where that had run before."""
    phase: str = "Running"
    deleting: bool = False
    crash: bool = False
    gate: bool | None = None
    """Its readiness gate; None: it has none."""
    containers_ready: bool = True
    annotated: bool = False
    endpoint: bool | None = None
    cost: int = 0
    replica_set: str = "web-5d4f8"
    record: list[dict[str, Any]] | None = None
    """As registered: one mapping of marks for each record; None: not registered."""
    sidecar_runs: bool = True
    limit: str | None = "1"
    samples: dict[str, tuple[float, int] | None] = field(default_factory=dict)
    """By metric: its time and value in nano-units."""

    @property
    def name(self) -> str:
        return f"web-{self.index}"

    @property
    def ip(self) -> str:
        return f"10.0.0.{self.index + 1}"


@dataclass
class Service:
    rng: Random
    now: float = 0.0
    spec: dict[str, Any] = field(default_factory=dict)
    hpa: dict[str, Any] = field(default_factory=dict)
    pods: list[SimPod] = field(default_factory=list)
    made: int = 0
    current: int = 0
    rollout: dict[str, Any] | None = None
    roster: dict[str, Any] | None = None
    two_containers: bool = False
    pod_level: bool = False
    windows: dict[str, int] = field(default_factory=dict)
    full: dict[str, int | None] = field(default_factory=dict)
    """By query with a window: how many samples a full one holds; None: not known. Absent: nobody counts them."""
    totals: dict[str, tuple[float, int] | None] = field(default_factory=dict)
    level: dict[str, int] = field(default_factory=dict)
    slices: bool = False
    last_scale: float | None = None


def sequence(seed: int) -> list[dict[str, Any]]:
    """The documents of one service, in their order; without memories."""
    service = born(Random(seed))
    documents = []
    for step in range(service.rng.choice((1, 1, 2, 3, 4, 5, 6))):
        if step:
            pass_time(service)
        documents.append(document(service))
    return documents


# --- birth ---


def maybe(rng: Random, chance: float) -> bool:
    return rng.random() < chance


def born(rng: Random) -> Service:
    service = Service(rng)
    service.spec = policy_spec(service)
    service.hpa = {
        "minReplicas": rng.choice((0, 0, 1, 1, 1, 2, 5)),
        "maxReplicas": rng.choice((5, 10, 20, 1000, 1000, 1000)),
    }
    if maybe(rng, 0.2):
        asks = {"describedObject": POLICY, "metric": {"name": "desired_replicas"}}
        service.hpa["metrics"] = [
            {"type": "Object", "object": asks | {"target": {"type": "AverageValue", "averageValue": "1"}}}
        ]
        tolerances = rng.choice(
            (("0.1", "0.1"), ("0.1", "0"), ("0", "0.1"), ("0.05", "0.2"), ("0.3", "0.4"), (None, None))
        )
        service.hpa["behavior"] = {
            way: {"tolerance": one} for way, one in zip(("scaleUp", "scaleDown"), tolerances, strict=True) if one
        }
    if maybe(rng, 0.3):
        service.last_scale = rng.choice((-0, -1, -59, -60, -61, -120, -299, -300, -301, 5, 60, 100))
    # An HPA's tolerance swallows small steps of many pods only.
    count = rng.choice((6, 10, 12, 12) if "behavior" in service.hpa else (0, 1, 1, 2, 3, 4, 5, 6, 8, 10, 12))
    calm = maybe(rng, 0.4)
    for _ in range(count):
        add_pod(service, old=calm or maybe(rng, 0.7))
    service.current = max(0, count + rng.choice((0, 0, 0, 0, 0, 1, -1, 2, 5)))
    if maybe(rng, 0.04):
        service.current = 0
    if maybe(rng, 0.15):
        service.rollout = rollout(service)
    service.slices = "registry" not in service.spec and maybe(rng, 0.3)
    for metric in service.spec["metrics"]:
        service.level[metric["name"]] = level(service, metric)
        measure(service, metric)
    for pod in service.pods:
        disturb(service, pod, chance=0.08 if calm else 0.2)
    if "registry" in service.spec:
        ask_registry(service, first=True)
    return service


def policy_spec(service: Service) -> dict[str, Any]:
    rng = service.rng
    spec: dict[str, Any] = strategy(rng)
    if maybe(rng, 0.5):
        spec["registry"] = registry(rng)
    if spec.get("strategy") != "Step" and maybe(rng, 0.2):
        spec["average"] = "Total"
    if spec.get("strategy") != "Step" and maybe(rng, 0.4):
        spec["tolerance"] = rng.choice(("0%", "1%", "5%", "10%", "0.25"))
    if maybe(rng, 0.6):
        spec["pulledOut"] = pulled_out(rng)
    if maybe(rng, 0.2):
        spec["minServingPercent"] = rng.choice((0, 20, 50, 60, 80, 100))
    if maybe(rng, 0.25):
        spec["tolerateZero"] = maybe(rng, 0.5)
    if maybe(rng, 0.2):
        spec["saturationFactor"] = rng.choice(("1", "1", "1.1", "1.25", "2"))
    if maybe(rng, 0.15):
        multiples = [one for one in (2, 3, 4) if spec.get("strategy") != "Step" or one <= spec.get("stepDown", 2)]
        spec["multipleOf"] = rng.choice(multiples or [1])
    if maybe(rng, 0.25):
        spec["velocity"] = drawn(rng, {"scaleUpPercent": (0, 1, 20, 50, 100), "scaleDownPercent": (0, 1, 20, 50, 100)})
    if maybe(rng, 0.25):
        waits = (0, 30, 60, 300)
        spec["cooldown"] = drawn(rng, {"scaleUpSeconds": waits, "scaleDownSeconds": waits})
    if maybe(rng, 0.15):
        spec["schedules"] = [schedule(rng, index) for index in range(rng.choice((1, 1, 2)))]
    if maybe(rng, 0.25):
        spec["fallback"] = {"afterSeconds": rng.choice((0, 60, 300)), "replicas": rng.choice((1, 3, 7, 8, 12))}
    if maybe(rng, 0.06):
        spec["mode"] = rng.choice(("Active", "Observe", "Paused"))
    service.two_containers = maybe(rng, 0.25)
    service.pod_level = maybe(rng, 0.2)
    spec["metrics"] = [metric(service, index, spec) for index in range(rng.choice((1, 1, 1, 1, 2, 3)))]
    if "strategy" not in spec and maybe(rng, 0.2):
        towards = rng.choice(("High", "Low"))
        if any(("highWatermark" if towards == "High" else "lowWatermark") in one for one in spec["metrics"]):
            spec["convergeTowards"] = towards
    waits = (0, 15, 30, 30, 60, 300)
    if maybe(rng, 0.2):
        spec["delay"] = drawn(rng, {"scaleUpSeconds": waits, "scaleDownSeconds": waits})
    for one in spec["metrics"]:
        if maybe(rng, 0.1):
            one["delay"] = drawn(rng, {"scaleUpSeconds": waits, "scaleDownSeconds": waits})
    for index in range(rng.choice((0, 0, 0, 0, 1, 1, 2))):
        # One that answers by pod is in error.
        name = f"{rng.choice(('total', 'total', 'total', 'query'))}-floor{index}"
        one = {"name": name, "query": {"name": name}, "floor": True}
        one_pod = {"highWatermark": rng.choice(("1200m", "100", "100m", "0.8"))}
        if "strategy" in spec:
            one_pod = {"target": target(rng, spec, of=False)}
        spec["metrics"].append(one | one_pod)
        service.windows[name] = rng.choice((0, 15))
        if service.windows[name] and maybe(rng, 0.5):
            service.full[name] = rng.choice((2, 4, 8, None))
    return spec


def strategy(rng: Random) -> dict[str, Any]:
    """Mostly watermarks; else one of the strategies with a target, with some of its fields."""
    choice = rng.random()
    if choice < 0.7:
        return {}
    if choice < 0.82:
        return {"strategy": "Ratio"}
    points = maybe(rng, 0.5)
    found: dict[str, Any] = {"strategy": "Step"}
    if not points or maybe(rng, 0.3):
        found["toleranceIn"] = "Points" if points else "Ratio"
    fields: dict[str, tuple[Any, ...]] = {
        "stepTolerance": (0, 5, 10, 15, 20, 30), "trigger": ("AnyPod", "Average"), "stepUp": (0, 1, 2, 3),
        "stepDown": (1, 2, 3), "minPods": (0, 1, 2, 3, 5),
    }  # fmt: skip
    return found | {name: rng.choice(values) for name, values in fields.items() if maybe(rng, 0.35)}


def target(rng: Random, spec: dict[str, Any], *, of: bool) -> str:
    """A target that the strategy takes: in points it is more than the tolerance."""
    if of:
        return rng.choice(("60%", "80%", "0.5"))
    if spec["strategy"] == "Step" and spec.get("toleranceIn", "Points") == "Points":
        return rng.choice(("60", "40", "100"))
    return rng.choice(("1200m", "400m", "100", "0.8"))


def drawn(rng: Random, choices: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    return {name: rng.choice(values) for name, values in choices.items() if maybe(rng, 0.75)}


def registry(rng: Random) -> dict[str, Any]:
    found: dict[str, Any] = {"name": "prod-nacos", "service": "com.shop.web"}
    if maybe(rng, 0.06):
        return {"name": "kubernetes"}
    if maybe(rng, 0.3):
        found["graceSeconds"] = rng.choice((0, 60, 180, 300, 600))
    if maybe(rng, 0.3):
        found["absentSeconds"] = rng.choice((0, 30, 45, 60))
    if maybe(rng, 0.15):
        found["unhealthyIsOut"] = False
    if maybe(rng, 0.15):
        found["anyOut"] = True
    if maybe(rng, 0.1):
        found["port"] = rng.choice((8080, 8081))
    return found


def pulled_out(rng: Random) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if maybe(rng, 0.7):
        found["replaceAfterSeconds"] = rng.choice((0, 0, 30, 60, 120))
    if maybe(rng, 0.15):
        found["replace"] = False
    if maybe(rng, 0.3):
        found["maxPercent"] = rng.choice((0, 30, 50, 80, 100))
    if maybe(rng, 0.25):
        found["deleteFirst"] = True
    return found


def schedule(rng: Random, index: int) -> dict[str, Any]:
    zone, hour = rng.choice((("UTC", 12), ("Asia/Shanghai", 20), (None, 12), ("America/New_York", 7)))
    minute = rng.choice((0, 0, 2, 5, 30))
    if maybe(rng, 0.3):
        hour, minute = hour - 1, rng.choice((0, 30, 59))
    found: dict[str, Any] = {
        "name": f"window-{index}",
        "cron": f"{minute} {hour} * * {rng.choice(('*', '4', '1-5', '0,4', '6'))}",
        "durationSeconds": rng.choice((60, 300, 1800, 3600)),
    }
    if zone is not None:
        found["timeZone"] = zone
    low = rng.choice((0, 1, 3, 8, 12))
    if maybe(rng, 0.7):
        found["minReplicas"] = low
    if "minReplicas" not in found or maybe(rng, 0.3):
        found["maxReplicas"] = max(1, low) + rng.choice((0, 2))
    return found


def metric(service: Service, index: int, spec: dict[str, Any]) -> dict[str, Any]:
    rng = service.rng
    kind = rng.choice(("cpu", "cpu", "cpu", "memory", "query", "query", "total", "total"))
    of = spec.get("average") != "Total" and kind != "total" and maybe(rng, 0.25)
    if spec.get("strategy") == "Step" and spec.get("toleranceIn", "Points") == "Points" and kind in {"cpu", "memory"}:
        of = True
    name = f"{kind}{index}"
    found: dict[str, Any] = {"name": name}
    if kind in {"cpu", "memory"}:
        found["resource"] = {"name": kind}
        if of:
            found["resource"]["of"] = rng.choice(("Limit", "Request"))
        if maybe(rng, 0.2):
            found["resource"]["containers"] = ["app"]
    else:
        found["query"] = {"name": name}
        if of:
            found["query"] |= {"of": "Limit", "resource": rng.choice(("cpu", "memory"))}
        service.windows[name] = rng.choice((0, 0, 15, 60, 60, 900))
        if service.windows[name] and maybe(rng, 0.5):
            service.full[name] = rng.choice((1, 2, 4, 4, 8, 8, None))
    high, low = rng.choice((("1200m", "400m"), ("1200m", "800m"), ("100", "40"), ("100m", "20m"), ("0.8", "0.5")))
    if of:
        high, low = rng.choice((("80%", "50%"), ("0.9", "30%")))
    if "strategy" in spec:
        found["target"] = target(rng, spec, of=of)
        return found
    choice = rng.random()
    if choice < 0.92:
        found["highWatermark"] = high
    if choice < 0.82 or choice >= 0.92:
        found["lowWatermark"] = low
    return found


# --- pods ---


def add_pod(service: Service, *, old: bool) -> SimPod:
    rng, now = service.rng, service.now
    age = rng.choice((3600, 7200, 901, 600)) if old else rng.choice(AGES)
    created = now - age
    started = created + min(age, rng.choice((0, 1, 1, 2)))
    pod = SimPod(service.made, created, started, True, min(now, started + rng.choice((1, 5, 20, 30, 31))))
    service.made += 1
    if not old and maybe(rng, 0.5):
        unready_from_birth(service, pod)
    if maybe(rng, 0.15):
        pod.limit = rng.choice((None, "2", "500m"))
    if "registry" in service.spec:
        pod.record = [{}] if maybe(rng, 0.9 if old else 0.4) else None
    elif maybe(rng, 0.1):
        pod.gate = True
    service.pods.append(pod)
    return pod


def unready_from_birth(service: Service, pod: SimPod) -> None:
    rng = service.rng
    pod.ready, pod.containers_ready = False, False
    pod.changed = rng.choice((pod.created, pod.created, (pod.started or pod.created) + 10, pod.created + 30))
    pod.changed = min(pod.changed, service.now)
    match rng.choice(("running", "running", "pending", "bare", "crash")):
        case "pending":
            pod.phase = "Pending"
        case "bare":
            pod.ready, pod.started = None, rng.choice((None, pod.started))
        case "crash":
            pod.crash = True


def disturb(service: Service, pod: SimPod, chance: float) -> None:
    """What may happen to a pod between two documents."""
    rng, now = service.rng, service.now
    if not maybe(rng, chance):
        return
    event = rng.choice((
        "unready", "unready", "ready", "gate", "annotate", "annotate", "delete", "finish", "crash", "endpoint",
        "record", "record", "record", "deregister", "deregister", "deregister", "cost", "container", "restart",
    ))  # fmt: skip
    match event:
        case "unready" if pod.ready:
            pod.ready, pod.containers_ready = False, False
            pod.changed = max(pod.changed, now - rng.choice((0, 5, 30, 60, 299, 300, 301)))
        case "ready" if not pod.ready and pod.started is not None:
            become_ready(service, pod)
        case "gate" if pod.containers_ready and not pod.crash:
            pod.gate = pod.gate is None or not pod.gate
            pod.phase, pod.started = "Running", pod.started or pod.created
            pod.ready, pod.changed = pod.gate, now - rng.choice((0, 0, 5))
        case "restart" if pod.started is not None and pod.started + 340 <= now:
            pod.restarted = now - rng.choice((0, 10, 60, 300))
        case "annotate":
            pod.annotated = not pod.annotated
        case "delete":
            pod.deleting = True
        case "finish":
            pod.phase = rng.choice(("Failed", "Succeeded"))
        case "crash":
            pod.crash = not pod.crash
            if pod.crash:
                pod.ready, pod.containers_ready, pod.changed = False, False, now - rng.choice((0, 10))
        case "endpoint":
            pod.endpoint = rng.choice((None, True, False))
        case "record":
            pod.record = rng.choice(([{}], [{}], [dict(rng.choice(EXPLICIT))], [dict(rng.choice(EXPLICIT)), {}]))
        case "deregister":
            pod.record = None
        case "cost":
            pod.cost = rng.choice((-100, -1, 0, 5))
        case "container":
            pod.sidecar_runs = not pod.sidecar_runs


def become_ready(service: Service, pod: SimPod) -> None:
    pod.ready, pod.containers_ready, pod.crash, pod.phase = True, True, False, "Running"
    pod.changed = max(pod.created, service.now - service.rng.choice((0, 1, 5, 10)))


# --- time ---


def pass_time(service: Service) -> None:
    rng = service.rng
    service.now += rng.choice(STEPS)
    calm = maybe(rng, 0.4)
    together = maybe(rng, 0.12)
    for pod in list(service.pods):
        if pod.deleting or pod.phase in {"Failed", "Succeeded"}:
            if maybe(rng, 0.6):
                service.pods.remove(pod)
            continue
        if pod.phase == "Pending" and maybe(rng, 0.5):
            pod.phase = "Running"
        if not pod.ready and maybe(rng, 0.4):
            pod.started = pod.started or max(pod.created, service.now - 10)
            become_ready(service, pod)
        disturb(service, pod, chance=0.04 if calm else 0.15)
    if together and service.pods:
        happen_together(service)
    if maybe(rng, 0.3):
        leave_and_come(service)
    if maybe(rng, 0.25):
        service.current = max(0, service.current + rng.choice((1, 1, -1, 2, -2, 5)))
    if maybe(rng, 0.1):
        service.current = len(service.pods)
    if maybe(rng, 0.15):
        service.rollout = rollout(service)
    if maybe(rng, 0.15):
        service.last_scale = service.now + rng.choice((-61, -60, -59, -30, 0, 10, 3600))
    for one in service.spec["metrics"]:
        if maybe(rng, 0.25):
            service.level[one["name"]] = level(service, one)
        measure(service, one)
    if "registry" in service.spec:
        ask_registry(service, first=False)


def happen_together(service: Service) -> None:
    """Several pods at once: deregistered, explicitly out, unready, deleted."""
    rng = service.rng
    some = rng.sample(service.pods, rng.randint(1, len(service.pods)))
    event = rng.choice(("deregister", "out", "unready", "delete", "remove", "annotate"))
    for pod in some:
        match event:
            case "deregister":
                pod.record = None
            case "out":
                pod.record = [{"enabled": False}]
            case "unready" if pod.ready:
                pod.ready, pod.containers_ready, pod.changed = False, False, service.now
            case "delete":
                pod.deleting = True
            case "remove":
                service.pods.remove(pod)
            case "annotate":
                pod.annotated = True


def leave_and_come(service: Service) -> None:
    """The count follows a decision: some pods leave, or new ones come."""
    rng = service.rng
    if maybe(rng, 0.5) and len(service.pods) > 1:
        for pod in rng.sample(service.pods, rng.randint(1, max(1, len(service.pods) // 2))):
            service.pods.remove(pod)
    else:
        for _ in range(rng.choice((1, 1, 2, 3))):
            if len(service.pods) < 14:
                add_pod(service, old=False)
    service.current = len(service.pods)


def rollout(service: Service) -> dict[str, Any] | None:
    rng = service.rng
    reason = rng.choice((None, "NewReplicaSetAvailable", "ReplicaSetUpdated", "ReplicaSetUpdated"))
    if reason is None:
        return None
    updated = text(service.now - rng.choice((0, 30, 599, 600, 601, 3600)))
    return {"type": "Progressing", "status": "True", "reason": reason, "lastUpdateTime": updated}


# --- samples ---


def nano_of(written: str) -> int:
    if written.endswith("%"):
        return int(written[:-1]) * 10**7
    if written.endswith("m"):
        return int(written[:-1]) * 10**6
    whole, _, rest = written.partition(".")
    return int(whole) * 10**9 + int(rest.ljust(9, "0") or "0") if rest else int(whole) * 10**9


def level(service: Service, metric: dict[str, Any]) -> int:
    """A load for each pod, at, near, or far from a watermark (nano-units)."""
    rng = service.rng
    percent = {"0%": 0, "1%": 1, "5%": 5, "10%": 10, "0.25": 25}[service.spec.get("tolerance", "1%")]
    edges = []
    if "target" in metric:
        edges = target_edges(service, metric)
    if "highWatermark" in metric:
        high = nano_of(metric["highWatermark"])
        edges += [high, high * (100 + percent) // 100, high * 3 // 2, high * 5, high * 97 // 100]
    if "lowWatermark" in metric:
        low = nano_of(metric["lowWatermark"])
        edges += [low, low * (100 - percent) // 100, low // 2, low // 10, low * 3 // 4, low * 103 // 100]
    found = rng.choice(edges)
    found += rng.choice((0, 0, 0, 1, -1, 1000, -1000, 10**6, -(10**6)))
    if maybe(rng, 0.04):
        found = 0
    if metric.get("resource", {}).get("name") == "cpu" and maybe(rng, 0.15):
        # At and near the limit of most pods, as a share of it or in units.
        found = 10**9 * rng.choice((96, 97, 98, 100)) // 100
    return max(0, found)


def target_edges(service: Service, metric: dict[str, Any]) -> list[int]:
    """Loads at, near and far from the limits around a target."""
    aim, spec = nano_of(metric["target"]), service.spec
    if spec["strategy"] == "Ratio":
        percent = {"0%": 0, "1%": 1, "5%": 5, "10%": 10, "0.25": 25}[spec.get("tolerance", "10%")]
        width = aim * percent // 100
    elif spec.get("toleranceIn", "Points") == "Ratio":
        width = aim * spec.get("stepTolerance", 15) // 100
    else:
        width = spec.get("stepTolerance", 15) * (10**7 if metric_of(metric) else 10**9)
    return [aim, aim + width, aim - width, aim * 3 // 2, aim * 5, aim // 2, aim // 10, aim * 3 // 4, aim * 103 // 100]


def metric_of(metric: dict[str, Any]) -> bool:
    return "of" in metric.get("resource", {}) or "of" in metric.get("query", {})


def measure(service: Service, metric: dict[str, Any]) -> None:
    """New samples for most pods; some keep their old one, some lose it, some are odd."""
    rng, now, name = service.rng, service.now, metric["name"]
    fate = rng.choice(("new",) * 8 + ("frozen", "frozen", "gone", "ahead", "zeros", "zeros", "jagged"))
    at = now - rng.choice((0, 1, 5, 10, 10, 15, 30, 60, 89, 90, 91))
    if fate == "ahead":
        at = now + rng.choice((5, 10, 11, 30, 200))
    if name.startswith("total"):
        measure_total(service, metric, fate, at)
        return
    odd = rng.choice((0.0, 0.05, 0.3))
    for pod in service.pods:
        if fate == "frozen" and name in pod.samples:
            continue
        if fate == "gone":
            pod.samples[name] = None
            continue
        load = service.level[name] if fate != "jagged" else level(service, metric)
        if name.startswith("memory") and "of" not in metric.get("resource", {}):
            load = max(load, 0)
        if fate == "zeros" and maybe(rng, 0.7):
            load = 0
        pod.samples[name] = (at, load)
        if maybe(rng, odd):
            strange = rng.choice(("none", "old", "zero", "huge", "level", "ahead", "before"))
            pod.samples[name] = {
                "none": None,
                "old": (now - rng.choice((89, 90, 91, 200, 300, 301)), load),
                "zero": (at, 0),
                "huge": (at, load * 10),
                "level": (at, level(service, metric)),
                "ahead": (now + rng.choice((9, 10, 11, 60)), load),
                "before": (pod.changed + rng.choice((-1, 0, 1, 14, 15, 16)), load),
            }[strange]


def measure_total(service: Service, metric: dict[str, Any], fate: str, at: float) -> None:
    rng, name = service.rng, metric["name"]
    if fate == "frozen" and name in service.totals:
        return
    per_pod = service.level[name]
    whole = service.spec.get("average") == "Total"
    load = per_pod if whole else per_pod * max(1, sum(pod.ready is True for pod in service.pods))
    if fate == "zeros":
        load = 0
    service.totals[name] = None if fate == "gone" and maybe(rng, 0.5) else (at, load)


# --- the registry ---


def ask_registry(service: Service, *, first: bool) -> None:
    rng, now = service.rng, service.now
    fate = rng.choice(("new",) * 9 + ("silent", "silent", "invalid", "empty", "partial", "restart"))
    if first and maybe(rng, 0.06):
        service.roster = None
        return
    if fate == "silent" and not first:
        return
    age = rng.choice((0, 0, 1, 2, 2, 10, 30))
    if first and maybe(rng, 0.2):
        age = rng.choice((60, 299, 300, 301, 1799, 1800, 1801, 3600))
    instances = []
    for pod in service.pods:
        if fate == "partial" and maybe(rng, 0.5):
            continue
        for index, marks in enumerate(pod.record or []):
            instances.append({"ip": pod.ip, "port": 8080 + index} | marks)
            if maybe(rng, 0.04):
                instances[-1] |= rng.choice(({"podName": pod.name}, {"podUid": f"uid-{pod.name}"}))
                instances[-1] |= rng.choice(({}, {}, {"ip": "10.8.8.8"}))
            if maybe(rng, 0.05):
                instances[-1]["registeredAt"] = text((pod.started or 0) + rng.choice((-3600, 0, 1)))
            if pod.restarted is not None and maybe(rng, 0.7):
                instances[-1]["registeredAt"] = text(
                    rng.choice(((pod.started or 0) + 1, pod.restarted, pod.restarted + 1))
                )
    if maybe(rng, 0.2):
        instances.append({"ip": "10.9.9.9", "port": 8080})
    service.roster = {"at": text(now - age), "instances": [] if fate == "empty" else instances}
    if fate == "invalid":
        service.roster["valid"] = False
    if maybe(rng, 0.1):
        service.roster["protected"] = True
    if maybe(rng, 0.5 if fate == "empty" else 0.1):
        service.roster["alive"] = True
    if maybe(rng, 0.4) or fate == "restart":
        service.roster["registryTotal"] = rng.choice((100, 100, 100, 71, 70, 69, 50))
    if fate == "restart":
        service.roster["reconnectedAt"] = text(now + rng.choice((0, -1, -30, -60, -89, -90, -91, 10)))


# --- the document ---


def document(service: Service) -> dict[str, Any]:
    rng = service.rng
    if service.current == 0:
        # A count of 0 with minReplicas above 0 is not the page's.
        service.hpa["minReplicas"] = 0
    hpa: dict[str, Any] = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            **service.hpa,
        },
    }
    if service.last_scale is not None:
        hpa["status"] = {"lastScaleTime": text(service.last_scale)}
    status_replicas = max(0, service.current + rng.choice((0, 0, 0, 0, 0, 1, -1, 3)))
    found: dict[str, Any] = {
        "now": text(service.now),
        "policy": {
            "apiVersion": "effective-load.io/v1alpha1",
            "kind": "WatermarkPolicy",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": service.spec,
        },
        "hpa": hpa,
        "scale": {
            "spec": {"replicas": service.current},
            "status": {"replicas": status_replicas, "selector": "app=web"},
        },
        "pods": [pod_object(service, pod) for pod in service.pods],
    }
    if service.rollout is not None:
        found["target"] = {
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
            "status": {"conditions": [service.rollout]},
        }  # fmt: skip
    if service.slices:
        found["endpointSlices"] = [endpoint_slice(service)]
        if maybe(rng, 0.15):
            found["assessed"] = {"endpointSlicesSilent": True}
    usage = [one for pod in service.pods if (one := pod_metrics(service, pod)) is not None]
    if usage:
        found["usage"] = usage
    samples = query_samples(service)
    if samples:
        found["samples"] = samples
    if service.roster is not None and service.spec.get("registry", {}).get("name") == "prod-nacos":
        found["roster"] = service.roster
    return found


def pod_object(service: Service, pod: SimPod) -> dict[str, Any]:
    meta: dict[str, Any] = {
        "name": pod.name,
        "uid": f"uid-{pod.name}",
        "namespace": "shop",
        "creationTimestamp": text(pod.created),
        "labels": {"app": "web", "pod-template-hash": "5d4f8"},
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": pod.replica_set, "uid": "rs-1", "controller": True}
        ],
    }
    annotations = {}
    if pod.annotated:
        annotations["effective-load.io/pulled-out"] = "true"
    if pod.cost:
        annotations["controller.kubernetes.io/pod-deletion-cost"] = str(pod.cost)
    if annotations:
        meta["annotations"] = annotations
    if pod.deleting:
        meta["deletionTimestamp"] = text(service.now + 30)
    names = ["app", "sidecar"] if service.two_containers else ["app"]
    containers: list[dict[str, Any]] = []
    for name in names:
        container: dict[str, Any] = {"name": name}
        if pod.limit is not None and not service.pod_level:
            amounts = {"cpu": pod.limit, "memory": pod.limit}
            container["resources"] = {"limits": amounts, "requests": amounts}
        containers.append(container)
    spec: dict[str, Any] = {"containers": containers}
    if service.pod_level and pod.limit is not None:
        amounts = {"cpu": pod.limit, "memory": pod.limit}
        spec["resources"] = {"limits": amounts, "requests": amounts}
    status: dict[str, Any] = {"phase": pod.phase, "podIP": pod.ip}
    if pod.started is not None:
        status["startTime"] = text(pod.started)
    conditions = []
    if pod.ready is not None:
        conditions.append(condition("Ready", pod.ready, pod.changed))
        conditions.append(condition("ContainersReady", pod.containers_ready, pod.changed))
    if pod.gate is not None:
        spec["readinessGates"] = [{"conditionType": "example.com/in"}]
        conditions.append(condition("example.com/in", pod.gate, pod.changed))
    status["conditions"] = conditions
    state: dict[str, Any] = {
        "running": {"startedAt": text(pod.started or pod.created if pod.restarted is None else pod.restarted)}
    }
    if pod.crash:
        state = {"waiting": {"reason": "CrashLoopBackOff"}}
    ended = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    status["containerStatuses"] = [
        {"name": name, "state": state if name == "app" or pod.sidecar_runs else ended} for name in names
    ]
    if pod.restarted is not None and not pod.crash:
        status["containerStatuses"][0]["restartCount"] = 1
    return {"metadata": meta, "spec": spec, "status": status}


def condition(kind: str, holds: bool, changed: float) -> dict[str, Any]:
    return {"type": kind, "status": "True" if holds else "False", "lastTransitionTime": text(changed)}


def endpoint_slice(service: Service) -> dict[str, Any]:
    endpoints = [
        {
            "addresses": [pod.ip],
            "conditions": {"ready": pod.endpoint, "serving": pod.endpoint},
            "targetRef": {"kind": "Pod", "namespace": "shop", "name": pod.name, "uid": f"uid-{pod.name}"},
        }
        for pod in service.pods
        if pod.endpoint is not None
    ]
    return {
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "web-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
        "endpoints": endpoints,
    }  # fmt: skip


def pod_metrics(service: Service, pod: SimPod) -> dict[str, Any] | None:
    """One object of metrics.k8s.io; its time is that of the first resource metric."""
    resources = [one for one in service.spec["metrics"] if "resource" in one]
    known = [(one["resource"]["name"], pod.samples.get(one["name"])) for one in resources]
    present = [(name, sample) for name, sample in known if sample is not None]
    if not present or pod.crash:
        # metrics-server has nothing of a pod with a container that does not run.
        return None
    amounts = {name: number(sample[1]) for name, sample in reversed(present)}
    containers = [{"name": "app", "usage": amounts}]
    if service.two_containers and pod.sidecar_runs:
        containers.append({"name": "sidecar", "usage": dict.fromkeys(amounts, "0")})
    return {
        "metadata": {"name": pod.name, "namespace": "shop"},
        "timestamp": text(present[0][1][0]),
        "window": "15s",
        "containers": containers,
    }


def query_samples(service: Service) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in service.spec["metrics"]:
        name = one["name"]
        if "query" not in one:
            continue
        window = service.windows.get(name, 0)
        if name.startswith("total"):
            total = service.totals.get(name)
            if total is not None:
                found[name] = {"at": text(total[0]), "total": counted(service, name, total[1])}
                if maybe(service.rng, 0.5):
                    found[name]["readsPods"] = read_pods(service)
        else:
            known = {pod.name: sample for pod in service.pods if (sample := pod.samples.get(name)) is not None}
            if known:
                newest = max(at for at, _ in known.values())
                values = {pod: counted(service, name, value) for pod, (at, value) in known.items() if at == newest}
                found[name] = {"at": text(newest), "pods": values}
        if name in found and window:
            found[name]["windowSeconds"] = window
    return found


def read_pods(service: Service) -> list[str]:
    """The pods that a total reads: all, all but a few, one for all of them, or none; some have left."""
    names = [pod.name for pod in service.pods]
    lacks = service.rng.choice((0, 0, 1, 1, 2, len(names) - 1, len(names)))
    read = names[max(0, lacks) :]
    return [*read, "web-99"] if maybe(service.rng, 0.1) else read


def counted(service: Service, name: str, value: int) -> Any:
    """A value of a query, sometimes with how many samples its window holds."""
    if name not in service.full:
        return number(value)
    full = service.full[name]
    held = service.rng.choice((full or 4,) * 6 + (0, 1, 2, 3, 4, 5, 6, 7, 8, 9))
    return {"value": number(value), "windowSamples": held} | ({} if full is None else {"fullWindow": full})
