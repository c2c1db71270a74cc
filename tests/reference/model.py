"""The reference model: the page of the decision as plain, slow, exact code that shares nothing with the adapter.

`decide(document)` answers a document, whose keys README.md lists. The sections named are those of the page.
"""

from dataclasses import dataclass, field
from math import ceil, floor

from tests.reference.documents import (
    ZERO,
    F,
    Json,
    Pod,
    belongs,
    capacity,
    condition,
    is_active,
    quantity,
    records_of,
    running,
    seconds,
)

OUT_STATUS = {"OUT_OF_SERVICE", "DOWN", "MAINTENANCE", "CRITICAL"}


@dataclass
class Samples:  # by UID
    value: dict[str, F] = field(default_factory=dict)
    bound: dict[str, F] = field(default_factory=dict)
    last: dict[str, tuple[F, F]] = field(default_factory=dict)  # moment of the look, bound
    before: dict[str, tuple[F, F]] = field(default_factory=dict)  # `last` without this look
    small: dict[str, F] = field(default_factory=dict)  # capacities for the upper bound
    large: dict[str, F] = field(default_factory=dict)  # for the lower bound
    begun: F = ZERO  # B
    newest: F = ZERO
    steady: bool = True
    error: str | None = None
    total: F | None = None  # of a service total
    total_bound: F | None = None
    reads: list[str] | None = None  # the pods that a total reads
    lost: bool = False  # a total reads fewer scrape targets than in the last hour


@dataclass
class Result:
    lower: int = 0  # 0: no proposal
    upper: int | None = None  # None: unlimited
    error: str | None = None


@dataclass
class Limits:
    high: F | None  # the watermark, or the target
    low: F | None
    top: F  # beyond it usage is above
    bottom: F
    each: bool = False  # one pod beyond is enough
    accept: bool = False  # a sum of exactly 0
    factor: F = ZERO


class World:
    def __init__(self, doc: Json) -> None:
        self.doc, self.spec, self.memory = doc, doc["policy"]["spec"], doc.get("memory") or {}
        self.now, self.current = seconds(doc["now"]), doc["scale"]["spec"].get("replicas", 0)
        self.target, self.minimum = doc["hpa"]["spec"]["scaleTargetRef"], doc["hpa"]["spec"].get("minReplicas", 1)
        past = [min(seconds(self.memory.get(key)), self.now) for key in ("startedAt", "roseAt", "changedAt")]
        self.started, self.rose, self.changed = past
        before = self.memory.get("lastReplicas", self.current)
        self.rose = self.now if self.current > before else self.rose
        self.changed = self.now if self.current != before else max(self.changed, self.rose)
        self.registry, self.answer = self.spec.get("registry") or {}, doc.get("instances") or {}
        self.named = self.registry.get("name", "kubernetes") != "kubernetes"
        self.all = [p for p in map(Pod, doc["pods"]) if belongs(p, doc["scale"]["status"]["selector"], self.target)]
        self.pods = [p for p in self.all if not p.meta.get("deletionTimestamp")]
        self.pods = [p for p in self.pods if p.status.get("phase") not in ("Failed", "Succeeded")]
        classify(self)
        progress = condition(doc.get("target") or {}, "Progressing")
        self.rollout = progress.get("status") == "True" and progress.get("reason") != "NewReplicaSetAvailable"
        cost = {p.uid: int(p.notes.get("controller.kubernetes.io/pod-deletion-cost", 0)) for p in self.pods}
        out, owners = self.of("pulledOut"), {p.owner["name"] for p in self.pods if p.owner}
        rest = [p for p in self.pods if p not in out]
        self.delete_first = self.target["kind"] == "Deployment" and len(owners) == 1
        self.delete_first &= all(cost[p.uid] < cost[q.uid] for p in out for q in rest)
        self.absolute = self.spec.get("algorithm", "Average") == "Absolute"

    def of(self, *states: str) -> list[Pod]:
        return [p for p in self.pods if p.state in states]


# §1: states


def says_out(one: Json, w: World) -> bool:
    unhealthy = w.registry.get("treatUnhealthyAsOut", True) and not w.answer.get("protected", False)
    out = not one.get("enabled", True) or one.get("isolated", False) or quantity(one.get("weight", 1)) == 0
    return out or str(one.get("status", "")).upper() in OUT_STATUS or (unhealthy and not one.get("healthy", True))


def state_of(p: Pod, w: World, listed: list[Json] | None, absent_for: F, half_absent: bool) -> str:
    """The first rule of the table that fits. `listed` is None where no service registry has answered."""
    at, only_out = seconds(w.answer.get("at")), w.answer.get("onlyOut", False)
    if p.status.get("phase") == "Pending" or not p.start or not condition(p.raw, "Ready"):
        return "starting"
    looping = "CrashLoopBackOff" in [c["state"].get("waiting", {}).get("reason") for c in p.containers]
    if not p.ready and not looping and (p.turned < p.start + 30 or p.turned <= p.created):
        return "starting"
    by_hand = p.notes.get("effective-load.io/pulled-out") == "true"
    lacking = w.named and listed == [] and not only_out and at >= p.turned and not by_hand
    if p.ready and not looping and lacking and w.now - p.turned < w.registry.get("registrationGraceSeconds", 180):
        return "starting"
    gate = "False" in [condition(p.raw, g["conditionType"]).get("status") for g in p.spec.get("readinessGates", [])]
    if looping:
        return "unready"
    if not p.ready:
        return "pulledOut" if gate and condition(p.raw, "ContainersReady").get("status") == "True" else "unready"
    if by_hand or (gate and not w.named):
        return "pulledOut"
    if not w.named:
        ends = [one for piece in w.doc.get("endpointSlices", []) for one in piece["endpoints"]]
        serves = [one["conditions"]["serving"] for one in ends if one["targetRef"].get("uid", p.uid) == p.uid]
        silent = (w.doc.get("assessed") or {}).get("endpointSlicesSilent")
        if silent and (p.uid in w.memory.get("away", {}) or (serves and not any(serves))):
            return "doubtful"
        return "serving" if not serves or any(serves) else "pulledOut"
    if listed is None:
        return "doubtful"
    outs = [says_out(one, w) for one in listed]
    if outs and (any(outs) if w.registry.get("anyInstanceOut", False) else all(outs)):
        return "pulledOut" if w.now - at <= 1800 else "doubtful"
    if outs or only_out:
        return "serving"
    confirmed = absent_for >= w.registry.get("absenceConfirmationSeconds", 45) and p.turned <= at >= w.now - 300
    return "pulledOut" if p.registered and confirmed and not half_absent else "doubtful"


def classify(w: World) -> None:
    before, absent_since = w.memory.get("away", {}), dict(w.memory.get("absentSince", {}))
    listed: dict[str, list[Json] | None] = {p.uid: None for p in w.pods}
    absent, late = 0, set()
    for p in w.pods:
        p.registered = p.uid in w.memory.get("registered", []) or before.get(p.uid, {}).get("state") == "pulledOut"
        if w.answer and w.named:
            listed[p.uid] = records_of(p, w.answer, w.registry.get("port"))
            if listed[p.uid]:
                if not p.registered and p.ready and p.uid in absent_since:
                    late.add(p.uid)
                p.registered = True
            elif p.ready and seconds(w.answer["at"]) < p.turned:
                absent_since.pop(p.uid, None)  # absent before it was Ready: that says nothing
                absent += p.registered
            elif p.ready:
                absent_since.setdefault(p.uid, w.answer["at"])
                absent += p.registered
    half, at = 2 * absent >= sum(p.ready for p in w.pods), seconds(w.answer.get("at"))
    for p in w.pods:
        since = seconds(absent_since.get(p.uid)) or at
        p.state = state_of(p, w, listed[p.uid], at - (since if since >= p.turned else at), half)
    for p in [] if w.of("serving", "doubtful") else w.of("pulledOut"):
        p.state = "doubtful"
    for p in w.pods:
        was = before.get(p.uid)
        back = p.state == "serving" and was is not None and was["state"] == "pulledOut"
        came = w.now if back or p.uid in late else seconds(w.memory.get("inServiceSince", {}).get(p.uid))
        p.since, p.away = max(p.start, p.turned, came), min(seconds(was["since"]), w.now) if was else w.now
        p.shifted = p.away if was or w.memory else ZERO  # a file without a memory: as if it had watched for long
        unsure = p.state in ("starting", "unready") or (p.state == "doubtful" and not p.registered)
        p.young = unsure and w.now - max(p.created, p.turned) < 300
    for p in [p for p in w.all if p not in w.pods]:
        p.state = "terminating" if p.meta.get("deletionTimestamp") else "finished"


# §2: samples


def read(w: World, metric: Json) -> Samples:
    """The samples that count, of every pod that is not gone."""
    s, name, now, resource = Samples(), metric["name"], w.now, metric.get("resource")
    what = resource or metric["query"]
    source = (w.doc.get("usageSource") if resource else (w.doc.get("samples") or {}).get(name)) or {}
    if not resource and "total" not in source and "pods" not in source:
        s.error = source.get("error") or "no answer"
        return s
    poll, max_age, counts = source.get("intervalSeconds", 15), source.get("maxAgeSeconds", 90), source.get("counts", {})
    window, total_at = F(source.get("windowSeconds", 0)), min(seconds(source.get("at")) or now, now)
    found: dict[str, tuple[F, F, F, F | None]] = {}  # value, at, window, count
    usage = {one["metadata"]["name"]: one for one in w.doc.get("usage") or []} if resource else {}
    for p in w.pods:
        if p.name in usage:
            used = {c["name"]: c["usage"].get(what["name"]) for c in usage[p.name]["containers"]}
            parts = [used.get(c) for c in running(p, what.get("containers"))]
            if parts and None not in parts:
                width = F(usage[p.name]["window"].rstrip("s")) if what["name"] == "cpu" else ZERO
                at = min(seconds(usage[p.name]["timestamp"]), now)
                found[p.uid] = sum(map(quantity, parts), ZERO), at, width, None
        elif p.name in source.get("pods", {}):
            one = source["pods"][p.name]
            one = one if isinstance(one, dict) else {"value": one}
            at = min(seconds(one["at"]), now) if "at" in one else total_at
            found[p.uid] = quantity(one["value"]), at, window, F(counts[p.name]) if p.name in counts else None
    sure = [p for p in w.of("serving", "doubtful", "pulledOut") if p.name in counts]
    usual = sorted(F(counts[p.name]) for p in sure if p.since <= found.get(p.uid, (0, total_at))[1] - window)
    medians = [(seconds(t), F(m)) for t, m in w.memory.get("medians", {}).get(name, []) if now - seconds(t) <= 3600]
    medians += [(now, usual[(len(usual) - 1) // 2])] if usual else []
    full = max((m for _, m in medians), default=ZERO)
    recent = [m for t, m in medians if now - t <= window] or [ZERO]
    s.steady = max(recent) - min(recent) <= 1
    s.last = {u: (seconds(x["at"]), quantity(x["bound"])) for u, x in w.memory.get("last", {}).get(name, {}).items()}
    s.last = {u: x for u, x in s.last.items() if now - x[0] < 300}
    s.before = dict(s.last)
    if "total" in source:
        s.error, s.reads = (
            "too old" if now - total_at > max_age else None,
            [p.name for p in w.pods if p.name in source.get("targets", {})],
        )
        s.total, s.begun, s.newest = quantity(source["total"]), total_at - window - poll, total_at
        seen = [n for t, n in w.memory.get("targets", {}).get(name, []) if now - seconds(t) <= 3600]
        s.lost = source.get("targets", {}).get("/", 0) < max(seen, default=0)
        c = min((F(counts[p.name]) for p in sure), default=full)
        s.total_bound = s.total if c >= full else s.total * full / (c - 1) if c >= 2 else None
        return s
    of, begun = what.get("relativeTo"), [now]
    for p in w.pods:
        named = what["name"] if resource else what.get("resource")
        caps = capacity(p, what.get("containers"), of.lower() + "s", named) if of else None
        if caps:
            s.small[p.uid], s.large[p.uid] = caps
        value, at, width, c = found.get(p.uid, (ZERO, ZERO, ZERO, None))
        windowed = width or (resource and what["name"] == "cpu")
        is_late = now - at > max_age or at - (width if windowed else 0) < p.since
        if p.uid not in found or is_late or (c is not None and c < 2):
            continue
        doubted = value == 0 and not w.spec.get("acceptZeroUsage", False) and s.last.get(p.uid, (0, 0))[1] > 0
        if not doubted and (caps or not of):
            s.value[p.uid], s.bound[p.uid] = value, value if c is None or c >= full else value * full / (c - 1)
            s.last[p.uid] = now, s.bound[p.uid]
            if p.state in ("serving", "doubtful", "pulledOut"):
                begun, s.newest = [*begun, at - width], max(s.newest, at)
    s.begun, active = min(begun) - poll, w.of("serving", "doubtful")
    s.error = None if any(p.uid in s.value for p in active) else "no pod has a sample"
    if of and not any(p.uid in s.large for p in active):
        s.error = "no capacity"
    return s


# §3: bounds


def average(pods: list[Pod], capacities: dict[str, F]) -> F:
    """The average capacity; 1 where the metric is relative to nothing. A pod without one has the others' average."""
    own = [capacities[p.uid] for p in pods if p.uid in capacities]
    return sum(own, ZERO) / len(own) if own else F(1)


def replaced(w: World, pods: list[Pod], left_out: list[Pod]) -> int:
    spec = w.spec.get("pulledOut") or {}
    old = [p for p in w.of("pulledOut") if w.now - p.away >= spec.get("replaceAfterSeconds", 60)]
    old += [p for p in left_out if w.now - p.away >= 300]
    count = sum(w.now - p.created > spec.get("minAgeSeconds", 600) for p in old)
    count *= spec.get("replace", True) and not w.rollout
    return max(0, min(count, w.current - len(pods) - len(w.of("starting"))))


def lower(w: World, s: Samples, limits: Limits, metric: Json) -> tuple[int, bool]:
    """The lower bound, and whether a reading is above."""
    best, above, serving, doubtful = 0, False, w.of("serving"), w.of("doubtful")
    if limits.high is None:
        return 0, False
    step = w.spec.get("strategy") == "Step"
    extra, threshold = (w.spec.get("step") or {}).get("up", 2) if step else 0, limits.top if step else limits.high
    hot = [p for p in doubtful if p.uid in s.value and s.value[p.uid] > threshold * s.large.get(p.uid, F(1))]
    resource = metric.get("resource") or {}
    saturable = resource.get("name") == "cpu" and resource.get("relativeTo") != "Request" and limits.factor > 1
    for pods, rest in ((serving + doubtful, []), (serving + hot, [p for p in doubtful if p not in hot])):
        sampled = [p for p in pods if p.uid in s.value]
        total = sum((s.value[p.uid] for p in sampled), ZERO) if s.total is None else s.total
        if not pods or (s.total is None and not sampled) or (total == 0 and not limits.accept):
            continue
        n = len(sampled) if w.absolute and s.total is None else len(pods)
        scale, usage, needs = (F(1), total, []) if w.absolute else (average(pods, s.large), total / n, list[F]())
        shown = [s.value[p.uid] / s.large.get(p.uid, F(1)) for p in serving if p in sampled]
        if any(x > limits.top for x in shown) if limits.each else usage > limits.top * scale:
            needs.append(n * usage / (limits.high * scale) + extra)
        caps = [capacity(p, resource.get("containers"), "limits", "cpu") for p in pods] if saturable else [None]
        if all(caps):
            limit = sum((x[1] for x in caps if x), ZERO)
            if total >= limit * F(97, 100):
                most = min(limits.high * scale, limit if w.absolute else limit / n)
                needs.append(limits.factor * n * usage / most + extra)
        if needs:
            best, above = max(best, w.current, ceil(max(needs)) + replaced(w, pods, rest)), True
    return best, above


def is_held(w: World, s: Samples) -> bool:
    """Whether nothing goes down, whatever the sum says."""
    active, serving = w.of("serving", "doubtful"), w.of("serving")
    seen = active + w.of("unready", "pulledOut")
    if w.started > s.begun or w.rose >= s.begun or (s.total is not None and any(p.since >= s.begun for p in active)):
        return True
    unread = bool(s.reads) and any(p.name not in (s.reads or []) for p in active)
    unread = unread and not (len(active) > 2 and sum(p.name in (s.reads or []) for p in active) == 1)  # a leader
    if (
        unread
        or s.lost
        or (s.total_bound is None if s.total is not None else not any(p.uid in s.value for p in serving))
    ):
        return True
    return not s.steady or len(serving) * 100 < w.spec.get("minServingPercent", 50) * len(seen)


def departed(w: World, s: Samples) -> list[F]:
    here, lasts = {p.uid for p in w.pods}, [one.items() for one in w.memory.get("last", {}).values()]
    left = {u for last in lasts for u, x in last if u not in here and s.begun <= min(seconds(x["at"]), w.now)}
    return [s.last.get(uid, (0, ZERO))[1] for uid in sorted(left)]


def upper(w: World, s: Samples, limits: Limits) -> tuple[int | None, bool]:
    """The upper bound, and whether the possible load is below the low watermark."""
    serving, doubtful, out = w.of("serving"), w.of("doubtful"), w.of("pulledOut")
    if limits.low is None:
        return None, False
    left, b = departed(w, s), s.begun
    kept = [] if w.delete_first else out
    least = 1 + len(doubtful) + len(kept)
    known = sum((s.value.get(p.uid, ZERO) for p in serving + doubtful), s.total or ZERO)
    held = is_held(w, s)
    if held or (known == 0 and not limits.accept):
        return w.current if held else None, False
    if s.total is not None and s.total_bound is not None:
        filled, counted = [], serving + doubtful + kept
        load, scale = s.total_bound + (0 if w.absolute else limits.low * (len(doubtful) + len(kept))), F(1)
        least -= s.total == 0 and w.minimum == 0
    else:
        filled = [p for p in w.pods if p.young or (p.state in ("serving", "doubtful") and p.uid not in s.value)]
        counted = [p for p in w.pods if p in filled + serving + doubtful + out]
        sampled = [s.bound[p.uid] for p in serving if p.uid in s.value]
        load, mean, scale = sum(sampled, ZERO), sum(sampled, ZERO) / len(sampled), average(counted, s.small)  # D1
        before = {p.uid: s.before.get(p.uid, (0, ZERO))[1] for p in w.pods}  # with this look's bound: `last`
        fills = [max(limits.top * s.small.get(p.uid, scale), s.bound.get(p.uid, ZERO), before[p.uid]) for p in filled]
        came = sum(
            (f for p, f in zip(filled, fills, strict=True) if max(p.created, p.since if p.ready else 0) >= b), ZERO
        )
        for p in [p for p in doubtful + out if p not in filled]:  # D3, D4
            one = (0 if w.absolute else limits.low) * s.small.get(p.uid, scale)
            bound, is_first = s.bound.get(p.uid, ZERO), p.state == "pulledOut" and w.delete_first and p.uid in s.bound
            own = bound if is_first else max(bound, one)
            load += own if p.shifted < b else max(bound, before[p.uid]) + (ZERO if is_first else one)
        load += sum(fills, ZERO) + max(ZERO, sum((max(mean, last) for last in left), ZERO) - came)  # D5
    if (filled and (w.absolute or limits.high is None)) or (w.absolute and doubtful):
        return w.current if w.absolute else None, False
    n, low = len(counted), limits.low * (F(1) if w.absolute else scale)
    if (load if w.absolute else load / n) >= limits.bottom / limits.low * low:
        return None, False
    gone = len(left) if s.total is None else 0
    needed = (len(serving) + gone) * load / low + len(kept) if w.absolute else load / low  # which it keeps as they are
    return max(least, ceil(needed) if w.spec.get("strategy") == "Ratio" else floor(needed)), True


def step_down(w: World, s: Samples, limits: Limits) -> tuple[int | None, bool]:
    serving, spec = w.of("serving"), w.spec.get("step", {})
    if is_held(w, s):
        return w.current, False
    shown = [s.bound[p.uid] / s.small.get(p.uid, F(1)) for p in serving if p.uid in s.value]
    known = s.total_bound if s.total_bound is not None else sum((s.bound.get(p.uid, ZERO) for p in serving), ZERO)
    n, scale = len(serving), average(serving, s.small)
    beyond = n and (any(x < limits.bottom for x in shown) if limits.each else known / n < limits.bottom * scale)
    if not beyond or (known == 0 and not limits.accept):
        return None, False
    aim = max(spec.get("minPods", 2), w.current - spec.get("down", 2))
    left = n - (w.current - aim)
    unsure = any(p.young for p in w.pods) or w.of("doubtful") or (s.total is None and len(shown) < n)
    shifted = departed(w, s) or any(p.shifted >= s.begun for p in w.of("pulledOut"))
    if unsure or shifted or w.changed >= s.begun or left < 1 or known / left > limits.top * scale:
        return w.current, True
    return aim, True


def converge(w: World, s: Samples, limits: Limits) -> tuple[int, int | None]:
    """One step of replicaMultiple toward a watermark, never past it."""
    k, towards, serving, b = w.spec.get("replicaMultiple", 1), w.spec.get("convergeTowards"), w.of("serving"), s.begun
    active = w.of("serving", "doubtful")
    total = s.total if s.total is not None else sum((s.value.get(p.uid, ZERO) for p in active), ZERO)
    if total == 0 and not limits.accept:
        return 0, None
    if w.absolute:
        total *= len(active)
    if towards == "Low" and limits.low is not None:
        if w.changed >= b:
            return 0, None
        to = (w.current // k + 1) * k
        n = len(active) + to - w.current
        bottom = limits.low * (1 if w.absolute else average(active, s.large))
        return (to, None) if n > 0 and total / n >= bottom else (0, None)
    to = (-(-w.current // k) - 1) * k
    n = len(serving) + to - w.current
    unsure = w.of("doubtful") or any(p.young for p in w.pods) or departed(w, s) or w.changed >= b or is_held(w, s)
    unsure = unsure or any(p.since >= b for p in serving) or any(p.shifted >= b for p in w.of("pulledOut"))
    unsure = unsure or (s.total is None and any(s.value.get(p.uid, -1) != s.bound.get(p.uid) for p in serving))
    if towards != "High" or limits.high is None or unsure or s.total != s.total_bound or n < 1 or to < 1:
        return 0, None
    return 0, to if total / n <= limits.high * (1 if w.absolute else average(serving, s.small)) else None


def one_metric(w: World, metric: Json) -> tuple[Result, Samples]:
    """A metric's bounds, or its error."""
    s, strategy, spec = read(w, metric), w.spec.get("strategy", "Watermark"), w.spec
    if not s.error and not w.of("serving", "doubtful") and w.current:
        s.error = "no pod serves"
    if s.error:
        return Result(error=s.error), s
    high, low = (quantity(metric[key]) if key in metric else None for key in ("highWatermark", "lowWatermark"))
    high, low = (quantity(metric["target"]),) * 2 if "target" in metric else (high, low)
    if not w.current and not metric.get("floor"):
        return Result(), s
    if metric.get("floor"):
        return Result(ceil((s.total or ZERO) / (high or 1))), s
    t, step = quantity(spec.get("tolerance", "10%" if strategy == "Ratio" else "1%")), spec.get("step", {})
    limits = Limits(high, low, (high or ZERO) * (1 + t), (low or ZERO) * (1 - t))
    limits.accept = spec.get("acceptZeroUsage", s.total is not None)
    limits.factor = quantity(spec.get("saturationFactor", "1.25"))
    if strategy == "Step":
        relative, target = (metric.get("resource") or metric["query"]).get("relativeTo"), high or ZERO
        unit = target / 100 if step.get("toleranceUnit") == "Percent" else F(1, 100) if relative else F(1)
        margin = unit * step.get("tolerance", 15)
        limits.top, limits.bottom = target + margin, target - margin
        limits.each = s.total is None and step.get("trigger", "AnyPod") == "AnyPod"
    rise, above = lower(w, s, limits, metric)
    fall, below = (upper if strategy != "Step" else step_down)(w, s, limits)
    result, direction = Result(rise, fall), "up" if above else "down" if below else None
    delay = (spec.get("delay") or {}) | (metric.get("delay") or {})
    since = seconds(w.memory.get("beyondSince", {}).get(metric["name"], {}).get(direction)) or s.newest
    if direction and max(s.newest - since, ZERO) < delay.get("scaleUpSeconds" if above else "scaleDownSeconds", 0):
        result = Result(0, None)
    k = spec.get("replicaMultiple", 1)
    if not direction and strategy == "Watermark" and spec.get("convergeTowards"):
        up, down = converge(w, s, limits)
        result.lower, result.upper = max(rise, up), fall if down is None else down
    result.lower = -(-result.lower // k) * k if result.lower > w.current else result.lower
    if result.upper is not None and result.upper < w.current:
        result.upper = min(w.current, -(-result.upper // k) * k)
    return result, s


# §4: after the metrics


def combined(w: World) -> Result:
    """Several metrics: the largest bounds; one in error blocks the way down."""
    answers = [(metric, *one_metric(w, metric)) for metric in w.spec["metrics"]]
    floors = max((r.lower for metric, r, _ in answers if metric.get("floor")), default=0)
    results = [r for metric, r, _ in answers if not metric.get("floor")]
    if w.current == 0:
        samples, queries = w.doc.get("samples") or {}, [x for x in answers if "query" in x[0] and not x[0].get("floor")]
        queries = [x for x in queries if not x[0]["query"].get("relativeTo")]
        queries = [x for x in queries if "pods" not in (y := samples.get(x[0]["name"]) or {}) and not y.get("byPod")]
        loads = [s.total for _, _, s in queries if s.total is not None and not s.error]
        error = None if floors or loads else "in error" if queries else "is scaled to zero"
        return Result(max(floors, any(loads)), error=error)
    if not w.pods:
        return Result(error="no pods exist")
    good = [r for r in results if not r.error]
    if not good:
        return Result(floors, error=None if floors > w.current else "; ".join(r.error or "" for r in results))
    uppers = [r.upper for r in good if r.upper is not None]
    result = Result(max(floors, *(r.lower for r in good)), max(uppers) if len(uppers) == len(good) else None)
    if len(good) < len(results) and result.upper is not None:
        result.upper = max(w.current, result.upper)
    return result


def decide(document: Json) -> Json:
    w = World(document)
    spec, hpa, now, current, result = w.spec, document["hpa"], w.now, w.current, combined(w)
    failed = result.error is not None
    asked = None if failed else max(result.lower, current if result.upper is None else min(current, result.upper))
    # 2: schedules and the fallback; where the metrics are in error they only raise the count
    windows = [one for one in spec.get("schedules", []) if is_active(one, now)]
    caps = [one["maxReplicas"] for one in windows if "maxReplicas" in one]
    least = max((one["minReplicas"] for one in windows if "minReplicas" in one), default=0)
    if asked is not None:
        asked = max(min([asked, *caps]), least)
    elif least > current:
        asked = least
    fallback, since = spec.get("fallback"), min(seconds(w.memory.get("errorSince")) or now, now)
    if failed and fallback and result.error != "is scaled to zero" and now - since >= fallback.get("afterSeconds", 300):
        least = max(least, fallback["replicas"])  # which ignores both as well
        asked = least if least > max(current, asked or 0) else asked
    if asked is not None:
        # 3 to 5: velocity, cooldown (a schedule's floor ignores both), the HPA's bounds
        velocity, cooldown, step = spec.get("velocity", {}), spec.get("cooldown", {}), spec.get("strategy") == "Step"
        up, down = (velocity.get(key) for key in ("scaleUpPercent", "scaleDownPercent"))
        if asked > current and up is not None:
            asked = min(asked, current + (max(1, current * up // 100) if up else 0))
        if asked < current and down is not None:
            asked = max(asked, current - (max(1, current * down // 100) if down else 0))
        pause = cooldown.get("scaleDownSeconds", 300 if step else 0)
        pause = cooldown.get("scaleUpSeconds", 180 if step else 0) if asked > current else pause
        last = max(min(seconds(hpa.get("status", {}).get("lastScaleTime")), now), w.changed)
        asked = current if asked != current and last and now - last < pause else asked
        asked = min(max(asked, least, w.minimum), hpa["spec"]["maxReplicas"])
    until = (document["policy"].get("metadata", {}).get("annotations") or {}).get("effective-load.io/hold-until")
    if spec.get("mode", "Active") != "Active" or now < seconds(until):  # 6
        asked = current
    served, size = None, document["scale"]["status"].get("replicas", current)
    if asked is not None:  # §5
        served = 1000 * asked if asked >= size or not asked else 1000 * (asked - 1) + 1
    error, pods = result.error if asked is None else None, {p.name: p.state for p in w.all}
    return {"desiredReplicas": asked, "served": served, "error": error, "pods": pods}
