"""The reference model: the page of the decision as plain, slow, exact code that shares nothing with the adapter.

`decide(document)` takes a `decide` document and returns the answer. The sections named are those of the page.
"""

import ipaddress
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction as F
from math import ceil, floor
from typing import Any
from zoneinfo import ZoneInfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SUFFIX = {"n": F(1, 10**9), "u": F(1, 10**6), "m": F(1, 1000), "": F(1), "k": F(1000)}
SUFFIX |= {letter: F(1000) ** i for i, letter in enumerate("MGTPE", 2)}
SUFFIX |= {f"{letter}i": F(1024) ** i for i, letter in enumerate("KMGTPE", 1)}
OUT_STATUS = {"OUT_OF_SERVICE", "DOWN", "MAINTENANCE", "CRITICAL"}
WORKLOADS = {"Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "DeploymentConfig"}
OTHERS = {"Job", "CronJob", "DaemonSet", "StatefulSet", "Deployment"}
PULLED_OUT, DELETION_COST = "effective-load.io/pulled-out", "controller.kubernetes.io/pod-deletion-cost"


def seconds(text: Any) -> F | None:
    if text is None:
        return None
    gone = datetime.fromisoformat(str(text).replace("Z", "+00:00")) - EPOCH
    return F(gone.days * 86400 + gone.seconds) + F(gone.microseconds, 10**6)


def rfc3339(moment: F) -> str:
    return (EPOCH + timedelta(microseconds=int(moment * 10**6))).isoformat().replace("+00:00", "Z")


def quantity(text: Any) -> F:
    found = re.fullmatch(r"([+-]?[0-9.]+)(?:[eE]([+-]?[0-9]+))?([a-zA-Z]*)(%?)", str(text).strip())
    assert found, text
    number, exponent, suffix, percent = found.groups()
    return F(number) * F(10) ** int(exponent or 0) * SUFFIX[suffix] / (100 if percent else 1)


def duration(text: str) -> F:
    units = {"ms": F(1, 1000), "s": F(1), "m": F(60), "h": F(3600)}
    return sum((F(n) * units[u] for n, u in re.findall(r"([0-9.]+)(ms|s|m|h)", text)), F(0))


@dataclass
class Pod:
    raw: dict[str, Any]
    name: str
    uid: str
    created: F
    start: F | None
    ready: bool
    turned: F | None  # last transition of Ready
    state: str = ""
    since: F = F(0)  # in service since
    away: F | None = None  # out or doubtful since
    young: bool = False
    registered: bool = False


@dataclass
class Result:
    """What one metric says: None as the upper bound is unlimited, 0 as the lower one is no proposal."""

    lower: int = 0
    upper: int | None = None
    held: str | None = None
    error: str | None = None


@dataclass
class World:
    doc: dict[str, Any]
    now: F
    spec: dict[str, Any]
    memory: dict[str, Any]
    current: int
    minimum: int
    pods: list[Pod] = field(default_factory=list)
    started: F = F(0)
    rose: F = F(0)
    changed: F = F(0)
    delete_first: bool = False
    rollout: bool = False
    after: dict[str, Any] = field(default_factory=dict)

    def of(self, *states: str) -> list[Pod]:
        return [p for p in self.pods if p.state in states]


# §1: pods


def condition(pod: dict[str, Any], kind: str) -> dict[str, Any]:
    return next((c for c in pod.get("status", {}).get("conditions", []) if c["type"] == kind), {})


def belongs(raw: dict[str, Any], doc: dict[str, Any]) -> bool:
    meta, target = raw["metadata"], doc["hpa"]["spec"]["scaleTargetRef"]
    labels = meta.get("labels")
    for part in filter(None, (doc["scale"].get("status", {}).get("selector") or "").split(",")):
        key, _, value = part.partition("=")
        if labels is not None and labels.get(key) != value.lstrip("="):
            return False
    owner = next((o for o in meta.get("ownerReferences", []) if o.get("controller")), None)
    if owner is None:
        return True
    kind, name = owner["kind"], owner["name"]
    if (kind, name) == (target["kind"], target["name"]):
        return True
    if target["kind"] not in WORKLOADS:
        return kind not in OTHERS
    template = re.escape(target["name"]) + "-[a-z0-9]+"
    return kind in ("ReplicaSet", "ReplicationController") and bool(re.fullmatch(template, name))


def pod_of(raw: dict[str, Any]) -> Pod:
    meta, status, ready = raw["metadata"], raw.get("status", {}), condition(raw, "Ready")
    turned, created = seconds(ready.get("lastTransitionTime")), seconds(meta.get("creationTimestamp")) or F(0)
    start = seconds(status.get("startTime"))
    return Pod(raw, meta["name"], meta.get("uid") or meta["name"], created, start, ready.get("status") == "True", turned)


def address(text: Any) -> Any:
    return ipaddress.ip_address(str(text))


def records_of(pod: Pod, answer: dict[str, Any], port: int | None) -> list[dict[str, Any]]:
    """The registry's records of a pod that is not gone."""
    status = pod.raw["status"]
    ips = [status.get("podIP")] + [one.get("ip") for one in status.get("podIPs", [])]
    own, found = {address(ip) for ip in ips if ip}, []
    for one in answer.get("items", []):
        named = one.get("podUid", pod.uid) == pod.uid and one.get("podName", pod.name) == pod.name
        registered = seconds(one.get("registeredAt"))
        stale = registered is not None and pod.start is not None and registered < pod.start
        if named and not stale and address(one["ip"]) in own and (port is None or one.get("port") == port):
            found.append(one)
    begun = [
        seconds(c.get("state", {}).get("running", {}).get("startedAt")) for c in status.get("containerStatuses", [])
    ]
    last = max((b for b in begun if b is not None), default=F(0))
    at = [seconds(one.get("registeredAt")) for one in found]
    if any(t is not None and t >= last for t in at):
        found = [one for one, t in zip(found, at, strict=True) if t is None or t >= last]
    return found


def says_out(one: dict[str, Any], protected: bool, unhealthy_is_out: bool) -> bool:
    if not one.get("enabled", True) or one.get("isolated", False) or F(str(one.get("weight", 1))) == 0:
        return True
    if str(one.get("status", "")).upper() in OUT_STATUS:
        return True
    return not one.get("healthy", True) and unhealthy_is_out and not protected


def endpoint_says_out(pod: Pod, doc: dict[str, Any]) -> bool:
    serving = [
        one.get("conditions", {}).get("serving", True)
        for piece in doc.get("endpointSlices", [])
        for one in piece.get("endpoints", [])
        if one.get("targetRef", {}).get("uid", pod.uid) == pod.uid
        and one.get("targetRef", {}).get("name", "") == pod.name
    ]
    return bool(serving) and not any(serving)


def never_was_ready(pod: Pod) -> bool:
    return pod.turned is None or pod.start is None or pod.turned < pod.start + 30 or pod.turned <= pod.created


def state_of(p: Pod, w: World, listed: list[dict[str, Any]] | None, half_absent: bool) -> str:
    """The first rule of the table that fits. `listed` is None where no service registry has answered."""
    meta, status, registry = p.raw["metadata"], p.raw.get("status", {}), w.spec.get("registry") or {}
    named = registry.get("name", "kubernetes") != "kubernetes"
    answer = w.doc.get("instances") or {}
    at, only_out = seconds(answer.get("at")), answer.get("onlyOut", False)
    if meta.get("deletionTimestamp"):
        return "terminating"
    if status.get("phase") in ("Failed", "Succeeded"):
        return "finished"
    if status.get("phase") == "Pending" or p.start is None or not condition(p.raw, "Ready"):
        return "starting"
    if not p.ready and never_was_ready(p):
        return "starting"
    lacking = named and listed is not None and not listed and not only_out
    fresh = p.ready and w.now - (p.turned or F(0)) < registry.get("registrationGraceSeconds", 180)
    if lacking and fresh and at is not None and at > (p.turned or F(0)):
        return "starting"
    gates = [condition(p.raw, g["conditionType"]).get("status") for g in p.raw["spec"].get("readinessGates", [])]
    gate = "False" in gates
    if not p.ready:
        return "pulledOut" if gate and condition(p.raw, "ContainersReady").get("status") == "True" else "unready"
    waiting = [c.get("state", {}).get("waiting", {}).get("reason") for c in status.get("containerStatuses", [])]
    if "CrashLoopBackOff" in waiting:
        return "unready"
    if (meta.get("annotations") or {}).get(PULLED_OUT) == "true":
        return "pulledOut"
    if not named:
        if gate:
            return "pulledOut"
        if endpoint_says_out(p, w.doc):
            return "doubtful" if (w.doc.get("assessed") or {}).get("endpointSlicesSilent") else "pulledOut"
        return "serving"
    if listed is None or at is None:
        return "doubtful"
    protected, unhealthy = answer.get("protected", False), registry.get("treatUnhealthyAsOut", True)
    outs = [says_out(one, protected, unhealthy) for one in listed]
    if listed:
        if any(outs) if registry.get("anyInstanceOut", False) else all(outs):
            return "pulledOut" if w.now - at <= 1800 else "doubtful"
        return "serving"
    if only_out:
        return "serving"
    absent = at - (seconds(w.after["absentSince"].get(p.uid)) or at)
    confirmed = absent >= registry.get("absenceConfirmationSeconds", 45) and w.now - at <= 300
    return "pulledOut" if p.registered and confirmed and not half_absent else "doubtful"


def classify(w: World) -> None:
    """States, and what is remembered of pods: away, registered, absentSince, inServiceSince."""
    memory, registry, answer = w.memory, w.spec.get("registry") or {}, w.doc.get("instances")
    before = memory.get("away", {})
    w.after = {
        "absentSince": dict(memory.get("absentSince", {})),
        "inServiceSince": dict(memory.get("inServiceSince", {})),
        "away": {},
    }
    alive = [p for p in w.pods if not p.raw["metadata"].get("deletionTimestamp")]
    alive = [p for p in alive if p.raw.get("status", {}).get("phase") not in ("Failed", "Succeeded")]
    listed: dict[str, list[dict[str, Any]] | None] = {p.uid: None for p in w.pods}
    absent, late = [], set()
    for p in alive:
        p.registered = p.uid in memory.get("registered", []) or before.get(p.uid, {}).get("state") == "pulledOut"
        if answer and registry.get("name", "kubernetes") != "kubernetes":
            found = listed[p.uid] = records_of(p, answer, registry.get("port"))
            if found:
                if not p.registered and w.after["absentSince"].pop(p.uid, None) and p.ready:
                    late.add(p.uid)
                p.registered = True
                w.after["absentSince"].pop(p.uid, None)
            elif p.ready:
                w.after["absentSince"].setdefault(p.uid, answer["at"])
                if p.registered:
                    absent.append(p)
    half = 2 * len(absent) >= sum(p.ready for p in alive)
    for p in w.pods:
        p.state = state_of(p, w, listed[p.uid], half)
    if not w.of("serving", "doubtful"):
        for p in w.of("pulledOut"):
            p.state = "doubtful"
    for p in w.pods:
        was = before.get(p.uid)
        if p.state in ("pulledOut", "doubtful"):
            p.away = min(seconds(was["since"]) or w.now, w.now) if was else w.now
            out = p.state == "pulledOut" or (was or {}).get("state") == "pulledOut"
            w.after["away"][p.uid] = {"since": rfc3339(p.away), "state": "pulledOut" if out else "doubtful"}
        elif (p.state == "serving" and was and was["state"] == "pulledOut") or p.uid in late:
            w.after["inServiceSince"][p.uid] = rfc3339(w.now)
        p.since = max(p.start or F(0), p.turned or F(0), seconds(w.after["inServiceSince"].get(p.uid)) or F(0))
        recent = w.now - max(p.created, p.turned or F(0)) < 300
        unsure = p.state in ("starting", "unready") or (p.state == "doubtful" and not p.registered)
        p.young = unsure and recent
    w.after["registered"] = sorted(p.uid for p in w.pods if p.registered)
    w.pods = [p for p in w.pods if p.state not in ("terminating", "finished")] + w.of("terminating", "finished")


# §2: samples


@dataclass
class Samples:
    value: dict[str, F] = field(default_factory=dict)
    bound: dict[str, F] = field(default_factory=dict)
    begun: list[F] = field(default_factory=list)
    newest: F = F(0)
    window: F = F(0)
    poll: F = F(15)
    steady: bool = True
    error: str | None = None
    total: F | None = None
    total_bound: F | None = None
    small: dict[str, F] = field(default_factory=dict)  # capacities for the upper bound
    large: dict[str, F] = field(default_factory=dict)  # for the lower bound
    last: dict[str, F] = field(default_factory=dict)  # kept 300 s, with this look's
    before: dict[str, F] = field(default_factory=dict)  # when they counted

    @property
    def b(self) -> F:
        return min(self.begun) - self.poll


def containers_of(pod: Pod, named: list[str] | None) -> list[str]:
    if named:
        return named
    statuses = pod.raw.get("status", {}).get("containerStatuses")
    if statuses is None:
        return [c["name"] for c in pod.raw["spec"].get("containers", [])]
    return [c["name"] for c in statuses if "running" in c.get("state", {})]


def capacity(pod: Pod, names: list[str], kind: str, resource: str) -> tuple[F, F] | None:
    """The smaller and the larger of what the spec says and what is in force, summed over containers."""
    spec = {c["name"]: c.get("resources", {}) for c in pod.raw["spec"].get("containers", [])}
    live = {c["name"]: c.get("resources", {}) for c in pod.raw.get("status", {}).get("containerStatuses", [])}
    asked, real = F(0), F(0)
    for name in names:
        wanted = spec.get(name, {}).get(kind, {}).get(resource)
        actual = live.get(name, {}).get(kind, {}).get(resource, wanted)
        wanted = actual if wanted is None else wanted
        if actual is None or quantity(actual) == 0 or quantity(wanted) == 0:
            return None
        asked, real = asked + quantity(wanted), real + quantity(actual)
    return (min(asked, real), max(asked, real)) if names else None


def read(w: World, metric: dict[str, Any]) -> Samples:
    """The samples that count, of every pod that is not gone."""
    s, name, now = Samples(), metric["name"], w.now
    resource, query = metric.get("resource"), metric.get("query")
    source = (w.doc.get("usageSource") if resource else (w.doc.get("samples") or {}).get(name)) or {}
    if source.get("error") or (query and "total" not in source and "pods" not in source):
        s.error = source.get("error") or "no answer"
        return s
    s.poll, max_age = F(source.get("intervalSeconds", 15)), source.get("maxAgeSeconds", 90)
    found: dict[str, tuple[F, F, F, F | None]] = {}  # value, at, window, count
    counts, alive = source.get("counts") or {}, [p for p in w.pods if p.state not in ("terminating", "finished")]
    by_name = {one["metadata"]["name"]: one for one in w.doc.get("usage") or []}
    window = F(str(source.get("windowSeconds", 0)))
    for p in alive if resource else []:
        assert resource
        used = {c["name"]: c.get("usage", {}).get(resource["name"]) for c in by_name.get(p.name, {}).get("containers", [])}
        parts = [used.get(c) for c in containers_of(p, resource.get("containers"))]
        if parts and all(x is not None for x in parts):
            width = duration(by_name[p.name].get("window", "0s")) if resource["name"] == "cpu" else F(0)
            at = seconds(by_name[p.name]["timestamp"]) or now
            found[p.uid] = (sum(map(quantity, parts), F(0)), min(at, now), width, None)
    for p in alive if "pods" in source else []:
        one = source["pods"].get(p.name)
        if one is not None:
            one = one if isinstance(one, dict) else {"value": one}
            at = seconds(one.get("at") or source.get("at")) or now
            c = counts.get(p.name)
            found[p.uid] = (quantity(one["value"]), min(at, now), window, None if c is None else F(c))
    steady_pods = [p for p in w.of("serving", "doubtful", "pulledOut") if p.name in counts]
    total_at = min(seconds(source.get("at")) or now, now)
    usual = sorted(F(counts[p.name]) for p in steady_pods if p.since <= found.get(p.uid, (0, total_at))[1] - window)
    medians = [(seconds(t) or F(0), F(m)) for t, m in w.memory.get("medians", {}).get(name, [])]
    medians = [x for x in medians if now - x[0] <= 3600] + ([(now, usual[(len(usual) - 1) // 2])] if usual else [])
    full = F(source["full"]) if "full" in source else max((m for _, m in medians), default=F(0))
    recent = [m for t, m in medians if now - t <= window]
    s.steady, s.window = not recent or max(recent) - min(recent) <= 1, window
    remembered = {u: (seconds(x["at"]) or F(0), quantity(x["bound"])) for u, x in w.memory.get("last", {}).get(name, {}).items()}
    remembered = {u: x for u, x in remembered.items() if now - x[0] < 300}
    s.last, s.before = {u: x[1] for u, x in remembered.items()}, {u: x[0] for u, x in remembered.items()}
    if "total" in source:
        if now - total_at > max_age:
            s.error = "too old"
        s.total, s.begun, s.newest = quantity(source["total"]), [total_at - window], total_at
        c = min((F(counts[p.name]) for p in steady_pods), default=full)
        s.total_bound = s.total if c >= full else s.total * full / (c - 1) if c >= 2 else None
        return s
    accept, states = w.spec.get("acceptZeroUsage", False), {p.uid: p for p in alive}
    of = (resource or {}).get("relativeTo") or (query or {}).get("relativeTo")
    of_resource = (resource or {}).get("name") or (query or {}).get("resource")
    if of:
        for p in alive:
            names = containers_of(p, (resource or query or {}).get("containers"))
            both = capacity(p, names, of.lower() + "s", str(of_resource))
            if both:
                s.small[p.uid], s.large[p.uid] = both
    for uid, (value, at, width, c) in found.items():
        p = states[uid]
        if now - at > max_age or ((width or (resource or {}).get("name") == "cpu") and at - width < p.since):
            continue
        if (c is not None and c < 2) or (value == 0 and not accept and s.last.get(uid)) or (of and uid not in s.large):
            continue
        s.value[uid] = value
        s.bound[uid] = value if c is None or c >= full else value * full / (c - 1)
        s.last[uid], s.before[uid] = s.bound[uid], now
        if p.state in ("serving", "doubtful", "pulledOut"):
            s.begun.append(at - width)
            s.newest = max(s.newest, at)
    active = w.of("serving", "doubtful")
    if active and not any(p.uid in s.value for p in active):
        s.error = "no pod has a sample"
    if active and of and not any(p.uid in s.large for p in active):
        s.error = "no capacity"
    return s


# §3: bounds


@dataclass
class Limits:
    high: F | None
    low: F | None
    tolerance: F
    ratio: bool
    absolute: bool
    cpu_of: str | None  # "" plain CPU, "Limit": saturation applies


def mean_capacity(pods: list[Pod], capacities: dict[str, F]) -> F:
    """The average capacity; 1 where the metric is relative to nothing. A pod without one has the others' average."""
    own = [capacities[p.uid] for p in pods if p.uid in capacities]
    return sum(own, F(0)) / len(own) if own else F(1)


def replaced(w: World, pods: list[Pod], left_out: list[Pod]) -> int:
    spec = w.spec.get("pulledOut") or {}
    if not spec.get("replace", True) or w.rollout:
        return 0
    old = [p for p in w.of("pulledOut") if w.now - (p.away or w.now) >= spec.get("replaceAfterSeconds", 60)]
    old += [p for p in left_out if w.now - (p.away or w.now) >= 300]
    count = sum(w.now - p.created > spec.get("minAgeSeconds", 600) for p in old)
    return max(0, min(count, w.current - len(pods) - len(w.of("starting"))))


def limit_of(pods: list[Pod], limits: Limits) -> F | None:
    """The sum of the CPU limits where saturation applies: every counted pod has one."""
    if limits.cpu_of is None:
        return None
    found = [capacity(p, containers_of(p, limits.cpu_of.split(",") if limits.cpu_of else None), "limits", "cpu") for p in pods]
    return sum((x[1] for x in found if x), F(0)) if all(found) else None


def readings(w: World, s: Samples, threshold: F) -> list[tuple[list[Pod], list[Pod], F | None]]:
    """U1 and U2: the pods, the doubtful ones that are left out, and the sum (None: no sample)."""
    serving, doubtful = w.of("serving"), w.of("doubtful")

    def shows(p: Pod) -> bool:
        return p.uid in s.value and s.value[p.uid] > threshold * s.large.get(p.uid, F(1))

    hot = [p for p in doubtful if s.total is None and shows(p)]
    result: list[tuple[list[Pod], list[Pod], F | None]] = []
    for pods, rest in ((serving + doubtful, []), (serving + hot, [p for p in doubtful if p not in hot])):
        values = [s.value[p.uid] for p in pods if p.uid in s.value]
        total = s.total if s.total is not None else sum(values, F(0)) if values else None
        result.append((pods, rest, total if pods else None))
    return result


def lower(w: World, s: Samples, limits: Limits, factor: F, accept: bool) -> tuple[int, bool]:
    """The lower bound, and whether a reading is beyond the high watermark."""
    best, beyond = 0, False
    if limits.high is None:
        return best, beyond
    for pods, rest, total in readings(w, s, limits.high):
        if total is None or (total == 0 and not accept):
            continue
        n = len(pods)
        if limits.absolute and s.total is None:
            n = sum(p.uid in s.value for p in pods)
        scale = F(1) if limits.absolute else mean_capacity(pods, s.large)
        usage, high, needs = (total if limits.absolute else total / n), limits.high * scale, []
        if usage > high * (1 + limits.tolerance):
            needs.append(n * usage / high)
        limit = limit_of(pods, limits) if s.total is None else None
        if limit and factor > 1 and total >= F(97, 100) * limit:
            needs.append(factor * n * usage / min(high, limit if limits.absolute else limit / len(pods)))
        if needs:
            beyond = True
            best = max(best, w.current, ceil(max(needs)) + replaced(w, pods, rest))
    return best, beyond


def held_down(w: World, s: Samples) -> str | None:
    counted = len(w.of("serving", "unready", "pulledOut", "doubtful"))
    if w.started > s.b or w.rose >= s.b:
        return "WarmingUp"
    if not s.steady:
        return "Windows"
    if s.total is None and not any(p.uid in s.value for p in w.of("serving")):
        return "Missing"
    if len(w.of("serving")) * 100 < w.spec.get("minServingPercent", 50) * counted:
        return "MinServing"
    return None


def departed(w: World, s: Samples) -> list[str]:
    here = {p.uid for p in w.pods if p.state not in ("terminating", "finished")}
    return [u for u in s.last if u not in here and s.before[u] >= s.b]


def upper(w: World, s: Samples, limits: Limits, accept: bool) -> tuple[int | None, str | None, bool]:
    """The upper bound, what holds it, and whether the possible load is below the low watermark."""
    if limits.low is None:
        return None, None, False
    serving, doubtful, out = w.of("serving"), w.of("doubtful"), w.of("pulledOut")
    kept, b = [] if w.delete_first else out, s.b
    least = 1 + len(doubtful) + len(kept)
    known = s.total if s.total is not None else sum((s.value.get(p.uid, F(0)) for p in serving + doubtful), F(0))
    held, left, counted = held_down(w, s), departed(w, s), serving + doubtful + kept
    filled: list[Pod] = []
    if known == 0 and not accept:
        return (w.current, held, False) if held else (None, None, False)
    if s.total is not None:
        held = held or ("Missing" if s.total_bound is None else None)
        if any(p.since >= b for p in serving + doubtful):
            held = held or "WarmingUp"
        reads = (w.doc["samples"][w.doc["_metric"]]).get("readsPods")
        if reads and any(p.name not in reads for p in serving + doubtful):
            held = held or "Missing"
        load, departing = (s.total_bound or s.total) + limits.low * (len(doubtful) + len(kept)), F(0)
        if s.total == 0 and w.minimum == 0:
            least -= 1
    else:
        young = [p for p in w.pods if p.young]
        filled = young + [p for p in serving + doubtful if p.uid not in s.value and p not in young]
        counted = [p for p in serving + doubtful + out if p not in young] + young
        load = sum((s.bound[p.uid] for p in serving if p.uid in s.value), F(0))  # D1
        fills, of = {}, mean_capacity(counted, s.small) if s.small else F(1)
        for p in filled if limits.high is not None else []:  # D2
            assert limits.high is not None
            fill = limits.high * (1 + limits.tolerance) * s.small.get(p.uid, of)
            fills[p.uid] = max(fill, s.last.get(p.uid, F(0)))
        for p in doubtful + out:  # D3, D4
            if p in filled:
                continue
            one, recent = limits.low * s.small.get(p.uid, of), (p.away or F(0)) >= b
            if p.uid not in s.value:
                load += one + (s.last.get(p.uid, F(0)) if recent else 0)
            elif p.state == "pulledOut" and w.delete_first:
                load += s.bound[p.uid]
            else:
                load += s.bound[p.uid] + one if recent else max(s.bound[p.uid], one)
        sampled = [s.bound[p.uid] for p in serving if p.uid in s.value]
        mean = sum(sampled, F(0)) / len(sampled) if sampled else F(0)
        came = sum((f for u, f in fills.items() for p in w.pods if p.uid == u and (p.young or p.since >= b)), F(0))
        load += sum(fills.values(), F(0))
        departing = max(F(0), sum((max(mean, s.last[u]) for u in left), F(0)) - came)  # D5
    if held:
        return w.current, held, False
    if filled and limits.absolute:
        return w.current, "Missing", False
    if filled and limits.high is None:
        return None, "Missing", False
    n = len(counted)
    possible, low = load + departing, limits.low * (F(1) if limits.absolute else mean_capacity(counted, s.small))
    usage = possible if limits.absolute else possible / n
    if usage >= low * (1 - limits.tolerance):
        reason = "Missing" if filled else "Doubt" if doubtful or out else "Departed" if departing else None
        return None, reason if known < low * len(serving) else None, False
    needed = (n + len(left) if limits.absolute else n) * usage / low
    return max(least, ceil(needed) if limits.ratio else floor(needed)), None, True


def step(w: World, s: Samples, metric: dict[str, Any], limits: Limits, factor: F, accept: bool) -> tuple[Result, str | None]:
    """Strategy Step: the bounds, and the direction beyond the tolerance."""
    spec = w.spec.get("step") or {}
    target, t = quantity(metric["target"]), F(str(spec.get("tolerance", 15)))
    relative = bool((metric.get("resource") or metric.get("query") or {}).get("relativeTo"))
    margin = target * t / 100 if spec.get("toleranceUnit", "Points") == "Percent" else t / 100 if relative else t
    top, bottom = target + margin, target - margin
    serving, best, direction, result = w.of("serving"), 0, None, Result()
    each = s.total is None and spec.get("trigger", "AnyPod") == "AnyPod"
    shown = [s.value[p.uid] / s.large.get(p.uid, F(1)) for p in serving if p.uid in s.value]
    for pods, rest, total in readings(w, s, top):
        if total is None or (total == 0 and not accept):
            continue
        scale, n = mean_capacity(pods, s.large), len(pods)
        limit, needs = limit_of(pods, limits) if s.total is None else None, []
        if any(x > top for x in shown) if each else total / n > top * scale:
            needs.append(ceil(total / (target * scale) + spec.get("up", 2)))
        if limit and factor > 1 and total >= F(97, 100) * limit:
            needs.append(ceil(factor * total / min(target * scale, limit / n)))
        if needs:
            direction, best = "up", max(best, w.current, max(needs) + replaced(w, pods, rest))
    result.lower = best
    result.held = held_down(w, s)
    if result.held or direction:
        result.upper = w.current if result.held else None
        return result, direction
    shown = [s.bound[p.uid] / s.small.get(p.uid, F(1)) for p in serving if p.uid in s.value]
    known = s.total_bound if s.total is not None else sum((s.bound[p.uid] for p in serving if p.uid in s.value), F(0))
    scale, n = mean_capacity(serving, s.small), len(serving)
    if known is None or not n or (known == 0 and not accept):
        return result, None
    if not (any(x < bottom for x in shown) if each else known / n < bottom * scale):
        return result, None
    aim = max(spec.get("minPods", 2), w.current - spec.get("down", 2))
    left = n - (w.current - aim)
    unsure = any(p.young for p in w.pods) or w.of("doubtful") or (s.total is None and len(shown) < n)
    if unsure or w.changed >= s.b or left < 1 or known / left > top * scale:
        result.upper, result.held = w.current, "Missing" if unsure else "WarmingUp" if w.changed >= s.b else None
        return result, "down"
    result.upper = aim
    return result, "down"


def converge(w: World, s: Samples, limits: Limits, accept: bool) -> tuple[int, int | None]:
    """One step of replicaMultiple toward a watermark, never past it."""
    k, towards = w.spec.get("replicaMultiple", 1), w.spec["convergeTowards"]
    serving, doubtful = w.of("serving"), w.of("doubtful")
    if towards == "Low" and limits.low is not None:
        pods = serving + doubtful
        total = s.total if s.total is not None else sum((s.value.get(p.uid, F(0)) for p in pods), F(0))
        to = (w.current // k + 1) * k
        n, scale = len(pods) + to - w.current, mean_capacity(pods, s.large)
        usage = total if limits.absolute else total / n
        if (total or accept) and not limits.absolute and usage >= limits.low * scale:
            return to, None
    if towards == "High" and limits.high is not None and not held_down(w, s):
        total = s.total_bound if s.total is not None else sum((s.bound.get(p.uid, F(0)) for p in serving), F(0))
        to, b = (-(-w.current // k) - 1) * k, s.b
        n, scale = len(serving) + to - w.current, mean_capacity(serving, s.small)
        unsure = doubtful or any(p.young for p in w.pods) or departed(w, s) or w.changed >= b
        unsure = unsure or any(p.since >= b for p in serving) or any((p.away or F(0)) >= b for p in w.of("pulledOut"))
        if s.total is None:
            unsure = unsure or any(p.uid not in s.value or s.value[p.uid] != s.bound[p.uid] for p in serving)
        else:
            unsure = unsure or s.total != s.total_bound
        if total is not None and (total or accept) and not unsure and n >= 1 and not limits.absolute:
            if to >= 1 and total / n <= limits.high * scale:
                return 0, to
    return 0, None


def one_metric(w: World, metric: dict[str, Any]) -> tuple[Result, Samples]:
    """A metric's bounds, or its error."""
    s, strategy, resource = read(w, metric), w.spec.get("strategy", "Watermark"), metric.get("resource")
    w.doc["_metric"] = metric["name"]
    if not s.error and not w.of("serving", "doubtful"):
        s.error = "no pod serves"
    if s.error:
        return Result(error=s.error), s
    total = s.total is not None
    accept = w.spec.get("acceptZeroUsage", total)
    if metric.get("floor"):
        high = quantity(metric.get("highWatermark") or metric["target"])
        return (Result(lower=ceil(s.total / high)) if s.total is not None else Result(error="not a total")), s
    target = metric.get("target")
    high, low = (target, target) if strategy == "Ratio" else (metric.get("highWatermark"), metric.get("lowWatermark"))
    of = (resource or {}).get("relativeTo", "")
    limits = Limits(
        None if high is None else quantity(high),
        None if low is None else quantity(low),
        quantity(w.spec.get("tolerance", "10%" if strategy == "Ratio" else "1%")),
        strategy == "Ratio",
        w.spec.get("algorithm", "Average") == "Absolute",
        ",".join(resource.get("containers", [])) if resource and resource["name"] == "cpu" and of != "Request" else None,
    )
    factor = quantity(w.spec.get("saturationFactor", "1.25"))
    if strategy == "Step":
        result, direction = step(w, s, metric, limits, factor, accept)
    else:
        result = Result()
        result.lower, above = lower(w, s, limits, factor, accept)
        result.upper, result.held, below = upper(w, s, limits, accept)
        direction = "up" if above else "down" if below else None
    delay = (w.spec.get("delay") or {}) | (metric.get("delay") or {})
    beyond = w.memory.get("beyondSince", {}).get(metric["name"], {})
    since = seconds(beyond.get(direction or "")) or s.newest
    wait = delay.get("scaleUpSeconds" if direction == "up" else "scaleDownSeconds", 0)
    if direction and s.newest - since < wait:
        result = Result(0, result.upper if direction == "up" else None, "Delay")
    k = w.spec.get("replicaMultiple", 1)
    if not direction and strategy == "Watermark" and w.spec.get("convergeTowards"):
        up, down = converge(w, s, limits, accept)
        result.lower, result.upper = max(result.lower, up), result.upper if down is None else down
    if result.lower > w.current:
        result.lower = -(-result.lower // k) * k
    if result.upper is not None and result.upper < w.current:
        result.upper = min(w.current, -(-result.upper // k) * k)
    return result, s


# §4: after the metrics


def cron_set(text: str, least: int, most: int, names: str) -> set[int]:
    found: set[int] = set()
    for part in text.upper().split(","):
        span, _, every = part.partition("/")
        ends = [str(names.split().index(x) + least) if x in names.split() else x for x in span.split("-")]
        first = least if ends[0] == "*" else int(ends[0])
        last = most if ends[0] == "*" or (every and len(ends) == 1) else int(ends[-1])
        found |= set(range(first, last + 1, int(every or 1)))
    return found


def active(schedule: dict[str, Any], now: F) -> bool:
    minute, hour, day, month, weekday = schedule["cron"].split()
    months, days = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC", "SUN MON TUE WED THU FRI SAT"
    at = EPOCH + timedelta(minutes=int(now) // 60)
    weekdays = {x % 7 for x in cron_set(weekday, 0, 7, days)}
    while now - seconds(at.isoformat()) < schedule["durationSeconds"]:  # type: ignore[operator]
        t = at.astimezone(ZoneInfo(schedule.get("timeZone", "UTC")))
        on_day, on_weekday = t.day in cron_set(day, 1, 31, ""), (t.weekday() + 1) % 7 in weekdays
        fits = (on_day or on_weekday) if day[0] != "*" and weekday[0] != "*" else (on_day and on_weekday)
        if fits and t.minute in cron_set(minute, 0, 59, "") and t.hour in cron_set(hour, 0, 23, ""):
            if t.month in cron_set(month, 1, 12, months):
                return True
        at -= timedelta(minutes=1)
    return False


def metrics(w: World) -> tuple[Result, dict[str, F]]:
    """Several metrics: the largest bounds; one in error blocks the way down. The last samples by metric."""
    results, totals_in_error, lasts = [], False, {}
    floors, total_load = 0, []
    for metric in w.spec["metrics"]:
        result, s = one_metric(w, metric)
        lasts[metric["name"]] = {u: (s.before[u], bound) for u, bound in s.last.items()}
        source = (w.doc.get("samples") or {}).get(metric["name"]) or {}
        is_total = bool(metric.get("query")) and "pods" not in source and not source.get("byPod")
        is_total = is_total and not metric["query"].get("relativeTo")
        if is_total and w.current == 0:
            bad = s.total is None or s.error not in (None, "no pod serves")
            high = quantity(metric.get("highWatermark") or metric.get("target") or 1)
            if metric.get("floor"):
                floors = max(floors, 0 if bad else ceil((s.total or F(0)) / high))
            elif bad:
                totals_in_error = True
            else:
                total_load.append(s.total)
        elif metric.get("floor"):
            floors = max(floors, result.lower)
        else:
            results.append(result)
    if w.current == 0:
        if not total_load and not totals_in_error:
            return Result(floors, error=None if floors else "is scaled to zero"), lasts
        if not total_load:
            return Result(floors, error=None if floors else "in error"), lasts
        return Result(max(floors, 1 if any(total_load) else 0)), lasts
    if not [p for p in w.pods if p.state not in ("terminating", "finished")]:
        return Result(error="no pods exist"), lasts
    good = [r for r in results if not r.error]
    if not good:
        return Result(floors, error=None if floors > w.current else "; ".join(r.error or "" for r in results)), lasts
    uppers = [r.upper for r in good]
    result = Result(max(floors, *(r.lower for r in good)))
    result.upper = None if None in uppers else max(u for u in uppers if u is not None)
    result.held = next((r.held for r in good if r.held), None)
    if len(good) < len(results) and result.upper is not None:
        result.held, result.upper = "MetricError" if result.upper < w.current else result.held, max(w.current, result.upper)
    return result, lasts


def decide(document: dict[str, Any]) -> dict[str, Any]:
    doc, spec, hpa = dict(document), document["policy"]["spec"], document["hpa"]
    now, memory = seconds(doc["now"]) or F(0), doc.get("memory") or {}
    current, least = doc["scale"]["spec"].get("replicas", 0), hpa["spec"].get("minReplicas", 1)

    def past(key: str) -> F:
        return min(seconds(memory.get(key)) or F(0), now)

    w = World(doc, now, spec, memory, current, least, started=past("startedAt"), rose=past("roseAt"), changed=past("changedAt"))
    before = memory.get("lastReplicas", current)
    w.rose = now if current > before else w.rose
    w.changed = now if current != before else max(w.changed, w.rose)
    w.pods = [pod_of(raw) for raw in doc["pods"] if belongs(raw, doc)]
    classify(w)
    alive = [p for p in w.pods if p.state not in ("terminating", "finished")]
    progressing = condition(doc.get("target") or {}, "Progressing")
    w.rollout = progressing.get("status") == "True" and progressing.get("reason") != "NewReplicaSetAvailable"
    out, rest = w.of("pulledOut"), [p for p in alive if p.state != "pulledOut"]
    owners = {o["name"] for p in alive for o in p.raw["metadata"].get("ownerReferences", []) if o.get("controller")}

    def cost(p: Pod) -> int:
        return int((p.raw["metadata"].get("annotations") or {}).get(DELETION_COST, 0))

    deployment = hpa["spec"]["scaleTargetRef"]["kind"] == "Deployment"
    w.delete_first = bool(out) and deployment and len(owners) == 1
    w.delete_first = w.delete_first and all(cost(p) < cost(q) for p in out for q in rest)
    result, lasts = metrics(w)
    failed = result.error is not None
    error_since = min(seconds(memory.get("errorSince")) or now, now) if failed else None
    wanted = None if failed else max(result.lower, current if result.upper is None else min(current, result.upper))
    held = result.held

    def stage(value: int | None, name: str) -> None:
        nonlocal wanted, held
        if value != wanted:
            wanted, held = value, name

    # 2: schedules and the fallback
    windows = [one for one in spec.get("schedules", []) if active(one, now)]
    caps = [one["maxReplicas"] for one in windows if "maxReplicas" in one]
    floor_ = max((one["minReplicas"] for one in windows if "minReplicas" in one), default=0)
    if wanted is not None:
        stage(max(min([wanted, *caps]), floor_), "Schedule")
    elif floor_ > current:
        stage(floor_, "Schedule")
    fallback = spec.get("fallback")
    asleep = current == 0 and result.error == "is scaled to zero"
    if failed and fallback and not asleep and error_since is not None:
        if now - error_since >= fallback.get("afterSeconds", 300) and fallback["replicas"] > max(current, wanted or 0):
            stage(fallback["replicas"], "Fallback")
    # 3 and 4: velocity and cooldown; a schedule's floor ignores both
    if wanted is not None:
        velocity = spec.get("velocity") or {}
        up, down = velocity.get("scaleUpPercent"), velocity.get("scaleDownPercent")
        if wanted > current and up is not None:
            stage(min(wanted, current + (max(1, current * up // 100) if up else 0)), "Velocity")
        if wanted < current and down is not None:
            stage(max(wanted, current - (max(1, current * down // 100) if down else 0)), "Velocity")
        usual = (180, 300) if spec.get("strategy") == "Step" else (0, 0)
        cooldown = spec.get("cooldown") or {}
        last = max(min(seconds(hpa.get("status", {}).get("lastScaleTime")) or F(0), now), w.changed)
        pause = cooldown.get("scaleUpSeconds", usual[0]) if wanted > current else cooldown.get("scaleDownSeconds", usual[1])
        if wanted != current and last and now - last < pause:
            stage(current, "Cooldown")
        stage(max(wanted, floor_), "Schedule")
        # 5: the HPA's bounds
        stage(min(max(wanted, least), hpa["spec"]["maxReplicas"]), "Bounds")
    # 6: modes
    until = seconds((document["policy"].get("metadata", {}).get("annotations") or {}).get("effective-load.io/hold-until"))
    if spec.get("mode", "Active") != "Active" or (until is not None and now < until):
        stage(current, "Mode")
    # §5: what is served
    served = None
    if wanted is not None:
        size = doc["scale"].get("status", {}).get("replicas", current)
        served = 0 if wanted == 0 else 1000 * wanted if wanted >= size else 1000 * (wanted - 1) + 1
    return {
        "desiredReplicas": wanted,
        "served": served,
        "error": result.error if wanted is None else None,
        "heldBy": held if wanted is not None else None,
        "current": current,
        "lowerBound": result.lower,
        "upperBound": result.upper,
        "pods": {p.name: p.state for p in w.pods},
        "memory": {"away": w.after["away"]} | ({"errorSince": rfc3339(error_since)} if error_since is not None else {}),
        "_memory": {k: v for k, v in w.after.items() if v} | {"lastReplicas": current, "last": lasts},
    }
