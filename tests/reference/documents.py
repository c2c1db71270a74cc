"""What documents are made of, read exactly: times, quantities, pods, capacities, schedules."""

import ipaddress
import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

F = Fraction
Json = dict[str, Any]
ZERO, EPOCH = F(0), datetime(1970, 1, 1, tzinfo=UTC)
SUFFIX = {"n": F(1, 10**9), "u": F(1, 10**6), "m": F(1, 1000), "": F(1), "k": F(1000)}
SUFFIX |= {letter: F(1000) ** i for i, letter in enumerate("MGTPE", 2)}
SUFFIX |= {f"{letter}i": F(1024) ** i for i, letter in enumerate("KMGTPE", 1)}

address = cache(ipaddress.ip_address)


@cache
def seconds(text: str | None) -> F:
    """A time since 1970; 0 where there is none."""
    gone = datetime.fromisoformat(text) - EPOCH if text else timedelta()
    return F(gone // timedelta(microseconds=1), 10**6)


@cache
def quantity(text: Any) -> F:
    found = re.fullmatch(r"([+-]?[0-9.]+)(?:[eE]([+-]?[0-9]+))?([a-zA-Z]*)(%?)", str(text))
    assert found, text
    number, exponent, suffix, percent = found.groups()
    return F(number) * F(10) ** int(exponent or 0) * SUFFIX[suffix] / (100 if percent else 1)


def condition(thing: Json, kind: str) -> Json:
    return next((c for c in thing.get("status", {}).get("conditions", []) if c["type"] == kind), {})


class Pod:
    def __init__(self, raw: Json) -> None:
        self.raw, self.meta, self.spec, self.status = raw, raw["metadata"], raw["spec"], raw["status"]
        self.name, self.uid, ready = self.meta["name"], self.meta["uid"], condition(raw, "Ready")
        self.created, self.start = seconds(self.meta.get("creationTimestamp")), seconds(self.status.get("startTime"))
        self.ready, self.turned = ready.get("status") == "True", seconds(ready.get("lastTransitionTime"))
        self.notes = self.meta.get("annotations") or {}
        self.owner = next((o for o in self.meta.get("ownerReferences", []) if o.get("controller")), None)
        self.containers = self.status.get("containerStatuses", [])
        self.state, self.since, self.away = "", ZERO, ZERO  # in service since, out or doubtful since
        self.shifted = ZERO  # as `away`, and zero where nobody watched before
        self.registered = self.young = False


def belongs(p: Pod, selector: str, target: Json) -> bool:
    labels = [f"{key}={value}" for key, value in p.meta["labels"].items()]
    if any(part not in labels for part in selector.split(",")):
        return False
    if p.owner is None or (p.owner["kind"], p.owner["name"]) == (target["kind"], target["name"]):
        return True
    templated = p.owner["name"].rpartition("-")[0] == target["name"]
    return p.owner["kind"] in ("ReplicaSet", "ReplicationController") and templated


SLACK = 30  # seconds that the clock of a registry may be behind


def records_of(p: Pod, answer: Json, port: int | None) -> list[Json]:
    addresses = {p.status.get("podIP"), *(one["ip"] for one in p.status.get("podIPs", []))} - {None}
    own, found = {address(ip) for ip in addresses}, []
    for one in answer.get("items", []):
        named = one.get("podUid", p.uid) == p.uid and one.get("podName", p.name) == p.name
        stale = "registeredAt" in one and seconds(one["registeredAt"]) < p.start - SLACK
        if named and not stale and address(one["ip"]) in own and port in (None, one.get("port")):
            found.append(one)
    begun = max(seconds(c["state"].get("running", {}).get("startedAt")) for c in p.containers) if found else ZERO
    newer = [one for one in found if "registeredAt" not in one or seconds(one["registeredAt"]) >= begun - SLACK]
    return newer if any("registeredAt" in one for one in newer) else found


def running(p: Pod, named: list[str] | None) -> list[str]:
    return named or [c["name"] for c in p.containers if "running" in c["state"]]


def capacity(p: Pod, named: list[str] | None, kind: str, resource: str) -> tuple[F, F] | None:
    """The smaller and the larger of what the spec says and what is in force, summed over containers."""
    spec = {c["name"]: c.get("resources", {}).get(kind, {}) for c in p.spec.get("containers", [])}
    live = {c["name"]: c.get("resources", {}).get(kind, {}) for c in p.containers}
    asked = [spec.get(name, {}).get(resource) for name in running(p, named)]
    real = [live.get(name, {}).get(resource, x) for name, x in zip(running(p, named), asked, strict=True)]
    if not real or None in real:
        return None
    sums = sum((quantity(a or r) for a, r in zip(asked, real, strict=True)), ZERO), sum(map(quantity, real), ZERO)
    return min(sums), max(sums)


def fits(part: str, value: int) -> bool:
    """A field of a cron expression: `*`, numbers, ranges and steps."""
    for one in part.split(","):
        span, _, every = one.partition("/")
        first, last = (int(x) for x in ("0-99" if span == "*" else f"{span}-{span}").split("-")[:2])
        if first <= value <= last and (value - first) % int(every or 1) == 0:
            return True
    return False


def is_active(schedule: Json, now: F) -> bool:
    fields, zone = schedule["cron"].split(), ZoneInfo(schedule.get("timeZone", "UTC"))
    for age in range(schedule["durationSeconds"] // 60):
        t = (EPOCH + timedelta(minutes=int(now) // 60 - age)).astimezone(zone)
        if all(map(fits, fields, (t.minute, t.hour, t.day, t.month, (t.weekday() + 1) % 7))):
            return True
    return False
