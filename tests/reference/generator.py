"""Seeded random `decide` documents that reach every rule of the page.

No age equals a threshold of the page (30, 45, 60, 90, 180, 300, 600, 1800 s), so "less than" and "at most" agree.
"""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

Json = dict[str, Any]
NOW = datetime(2026, 1, 7, 12, 0, tzinfo=UTC)  # a Wednesday
MILLI = (20, 50, 100, 200, 300, 350, 380, 396, 397, 400, 500, 800, 1190, 1212, 1213, 1300, 1480, 1500, 2500)
AGES = (3, 13, 26, 38, 52, 68, 83, 97, 133, 172, 188, 247, 288, 312, 397, 573, 611, 907, 1793, 1807, 3607)
KINDS = ("new", "new", "back", "unready", "gate", "crash", "booting", "pending", "gone", "finished", "out", "out")
FAULTS: tuple[Json, ...] = ({"enabled": False}, {"weight": 0}, {"status": "OUT_OF_SERVICE"}, {"status": "DOWN"})
FAULTS += ({"isolated": True}, {"healthy": False})
CRONS = ("0 11 * * *", "30 8 * * 1-5", "0 12 * * 3", "50 11 7 1 *", "*/30 9-11 * * *", "0 22 * * *", "0 11 * * 0")
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4f8", "uid": "rs-1", "controller": True}
API = {"apiVersion": "effective-load.io/v1alpha1", "kind": "WatermarkPolicy"}
HPA: Json = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
FOLLOWS: Json = {
    "describedObject": API | {"name": "web"},
    "metric": {"name": "desired_replicas"},
    "target": {"type": "AverageValue", "averageValue": "1"},
}


def at(age: float) -> str:
    """The moment so many seconds before now."""
    return (NOW - timedelta(seconds=age)).isoformat().replace("+00:00", "Z")


class Generator:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.memory: Json = {}

    def chance(self, percent: float) -> bool:
        return self.random.random() * 100 < percent

    def pick(self, *values: Any) -> Any:
        return self.random.choice(values)

    def some(self, **fields: Any) -> Json:
        """Each field with its chance in percent, and one of its values."""
        return {key: self.pick(*values) for key, (percent, *values) in fields.items() if self.chance(percent)}

    def moments(self, **fields: Any) -> Json:
        return {key: at(age) for key, age in self.some(**fields).items()}

    # policies

    def metric(self, name: str, strategy: str, absolute: bool) -> Json:
        kind = self.pick("cpu", "cpu", "load", "load", "rate", "total", "memory")
        relative = self.chance(25) and not absolute and kind != "total"
        of = self.pick("Limit", "Request")
        if kind in ("cpu", "memory"):
            source = {"resource": {"name": kind} | self.some(containers=(10, ["app"]))}
            source["resource"] |= {"relativeTo": of} if relative else {}
        else:
            source = {"query": {"name": f"{kind}-{name}"} | ({"relativeTo": of, "resource": "cpu"} if relative else {})}
        high = self.pick(1200, 1200, 1000, 1500) * (8 if absolute or (kind == "total" and self.chance(30)) else 1)
        marks = {"highWatermark": high, "lowWatermark": self.pick(high // 3, high // 3, high * 3 // 4)}
        if strategy != "Watermark":
            marks = {"target": high * 2 // 3}
        elif self.chance(20):
            marks.pop(self.pick("highWatermark", "lowWatermark"))
        floor = kind == "total" and "highWatermark" in marks and self.chance(15)
        if floor:
            marks = {"highWatermark": high}
        shown = {key: f"{mark // 15}%" if relative else f"{mark}m" for key, mark in marks.items()}
        delay = {} if floor else self.some(delay=(8, {"scaleUpSeconds": 30}, {"scaleDownSeconds": 60}))
        return {"name": name, **source, **shown, **delay, **({"floor": True} if floor else {})}

    def policy(self) -> Json:
        strategy = self.pick("Watermark", "Watermark", "Watermark", "Watermark", "Ratio", "Step")
        absolute = strategy != "Step" and self.chance(12)
        metrics = [self.metric(f"m{i}", strategy, absolute) for i in range(self.pick(1, 1, 1, 2, 3))]
        if all(one.get("floor") for one in metrics):
            metrics[0].pop("floor")
        spec: Json = {"strategy": strategy, "metrics": metrics} | ({"algorithm": "Absolute"} if absolute else {})
        spec["pulledOut"] = self.some(
            replaceAfterSeconds=(60, 0, 0, 33), replace=(8, False), minAgeSeconds=(10, 0, 121)
        )
        if strategy == "Step":
            spec["step"] = self.some(trigger=(40, "AnyPod", "Average"), up=(30, 0, 1, 3), down=(30, 1, 3))
            spec["step"] |= {"tolerance": self.pick(10, 20, 30)} | self.some(minPods=(30, 1, 3, 6))
            relative = [(one.get("resource") or one["query"]).get("relativeTo") for one in metrics]
            spec["step"] |= {} if all(relative) and self.chance(60) else {"toleranceUnit": "Percent"}
        else:
            spec |= self.some(tolerance=(15, "0%", "5%", "10%"), replicaMultiple=(10, 2, 3, 4))
        towards = self.pick("High", "Low")
        converges = any(f"{towards.lower()}Watermark" in one and not one.get("floor") for one in metrics)
        if strategy == "Watermark" and converges and self.chance(15):
            spec["convergeTowards"] = towards
        spec |= self.some(
            minServingPercent=(12, 0, 30, 80, 100), acceptZeroUsage=(10, True, False), mode=(4, "Observe", "Paused")
        )
        if self.chance(12):
            spec["velocity"] = self.some(scaleUpPercent=(80, 0, 1, 20, 50), scaleDownPercent=(80, 0, 1, 10, 40))
        if self.chance(12):
            spec["cooldown"] = self.some(scaleUpSeconds=(80, 60, 180), scaleDownSeconds=(80, 60, 300))
        if self.chance(10):
            spec["delay"] = self.some(scaleUpSeconds=(80, 30, 60), scaleDownSeconds=(80, 60, 120))
        if self.chance(15):
            spec["fallback"] = {"replicas": self.pick(3, 8, 25)} | self.some(afterSeconds=(60, 0, 120, 600))
        if self.chance(12):
            bounds = ({"minReplicas": 2}, {"minReplicas": 14}, {"maxReplicas": 4}, {"minReplicas": 5, "maxReplicas": 9})
            spec["schedules"] = [
                {"name": f"s{i}", "cron": self.pick(*CRONS), "durationSeconds": self.pick(600, 7200, 14400)}
                | self.some(timeZone=(20, "UTC", "Asia/Shanghai", "America/New_York"))
                | self.pick(*bounds)
                for i in range(self.pick(1, 2))
            ]
        return spec | self.some(saturationFactor=(15, "1", "1.5", "2"))

    # pods

    def containers(self, begun: str) -> tuple[list[Json], list[Json]]:
        """The spec's containers and their statuses."""
        running = {"running": {"startedAt": begun}}
        asked = {"limits": {"cpu": "1500m", "memory": "2Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}
        asked["limits"]["cpu"] = self.pick("1500m", "1500m", "1500m", "2")
        if self.chance(5):
            asked = self.pick({}, {"requests": asked["requests"]})
        spec: list[Json] = [{"name": "app", "resources": asked}]
        status: list[Json] = [{"name": "app", "state": running}]
        if asked and self.chance(6):
            limits = {"cpu": self.pick("1", "1500m", "3"), "memory": "1Gi"}
            status[0]["resources"] = {"limits": limits, "requests": {"cpu": "500m", "memory": "1Gi"}}
        if self.chance(6):
            side = {"cpu": "100m", "memory": "1Gi"}
            spec.append({"name": "side", "resources": {"limits": side, "requests": side}})
            waiting = {"waiting": {"reason": "PodInitializing"}}
            status.append({"name": "side", "state": self.pick(running, running, waiting)})
        return spec, status

    def pod(self, number: int, kind: str) -> Json:
        name, age, ready = f"web-{number}", self.pick(7307, 7307, 7307, 911, 503, 397), "True"
        age = self.pick(38, 68, 133, 172, 247) if kind in ("new", "booting") else age
        turned = age - self.pick(12, 22)
        if kind in ("back", "unready", "gate", "crash"):
            turned = self.pick(*[x for x in AGES if x < age - 60])
        if kind in ("unready", "gate", "booting"):
            ready = "False"
        spec, statuses = self.containers(at(age - 1))
        if kind == "crash":
            statuses[0]["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
        states = {"Ready": ready, "ContainersReady": "True" if kind == "gate" else ready}
        states |= {"example.com/in": "False"} if kind == "gate" else {}
        conditions = [{"type": key, "status": x, "lastTransitionTime": at(turned)} for key, x in states.items()]
        meta: Json = {"name": name, "uid": f"uid-{name}", "namespace": "shop", "creationTimestamp": at(age)}
        meta |= {"labels": {"app": "web", "pod-template-hash": "5d4f8"}, "ownerReferences": [OWNER]}
        status: Json = {"phase": "Running", "startTime": at(age - 1), "podIP": f"10.0.0.{number + 1}"}
        status |= {"conditions": conditions, "containerStatuses": statuses}
        if kind == "pending":
            status = {"phase": "Pending"}
        elif kind == "gone":
            meta["deletionTimestamp"] = at(5)
        elif kind == "finished":
            status["phase"] = self.pick("Failed", "Succeeded")
        elif kind == "out":
            meta["annotations"] = {"effective-load.io/pulled-out": "true"}
        if self.chance(1):
            meta |= self.pick({"labels": {"app": "other"}}, {"ownerReferences": [OWNER | {"kind": "Job", "name": "a"}]})
        gates = {"readinessGates": [{"conditionType": "example.com/in"}]} if kind == "gate" else {}
        return {"metadata": meta, "spec": {"containers": spec} | gates, "status": status}

    # what the sources answer

    def registry(self, spec: Json, document: Json) -> None:
        spec["registry"] = {"name": "prod", "service": "web"} | self.some(port=(10, 8080), anyInstanceOut=(10, True))
        grace = {"registrationGraceSeconds": (10, 0, 60, 400), "absenceConfirmationSeconds": (10, 0, 120)}
        spec["registry"] |= self.some(treatUnhealthyAsOut=(10, False), **grace)
        age, registered, absent = self.pick(2, 2, 2, 4, 41, 97, 290, 311, 1790, 1811), [], {}
        share, out = self.pick(0, 0, 10, 30, 55, 100), self.pick(0, 0, 10, 30, 100)
        items: list[Json] = [{"ip": "10.9.9.9", "port": 8080}] if self.chance(20) else []
        for pod in document["pods"]:
            uid, ip = pod["metadata"]["uid"], pod["status"].get("podIP", "10.8.8.8")
            if self.chance(85):
                registered.append(uid)
            elif self.chance(30):
                absent[uid] = at(age + 20)
            if self.chance(share):
                absent |= {uid: at(age + self.pick(2, 20, 44, 46, 130))} if self.chance(80) else {}
                continue
            for _ in range(self.pick(1, 1, 1, 1, 2)):
                item: Json = {"ip": ip, "port": self.pick(8080, 8080, 8080, 9090)}
                item |= self.pick(*FAULTS) if self.chance(out) else {}
                item |= self.some(podUid=(5, uid, "uid-other"), registeredAt=(10, at(31), at(507), at(8001)))
                items.append(item)
        if self.chance(92):
            document["instances"] = {"at": at(age), "items": items} | self.some(protected=(10, True), onlyOut=(3, True))
        self.memory |= self.some(registered=(85, registered), absentSince=(85 if absent else 0, absent))

    def kubernetes(self, document: Json) -> None:
        endpoints = []
        for pod in document["pods"]:
            meta, serves = pod["metadata"], not self.chance(25)
            one: Json = {"addresses": [pod["status"].get("podIP", "10.8.8.8")]}
            one["conditions"] = {"ready": serves, "serving": serves}
            endpoints.append(one | {"targetRef": {"kind": "Pod", "name": meta["name"], "uid": meta["uid"]}})
        meta = {"name": "web-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}}
        document |= self.some(assessed=(10, {"endpointSlicesSilent": True}))
        document["endpointSlices"] = [{"metadata": meta, "addressType": "IPv4", "endpoints": endpoints}]

    def values(self, pods: list[str]) -> dict[str, str]:
        """A value of most pods, in milli, near one centre."""
        centre, spread, lost = self.pick(0, *MILLI), self.pick(0, 0, 10, 50), self.pick(0, 0, 0, 5, 30, 100)
        near = {name: max(0, centre + self.random.randint(-spread, spread)) for name in pods if not self.chance(lost)}
        return {name: f"{self.pick(0, *MILLI) if self.chance(4) else value}m" for name, value in near.items()}

    def usage(self, document: Json) -> None:
        pods, age = {pod["metadata"]["name"]: pod for pod in document["pods"]}, self.pick(2, 4, 7, 11, 26)
        document["usage"] = []
        for name, value in self.values(list(pods)).items():
            running = [one["name"] for one in pods[name]["status"].get("containerStatuses", [])]
            used = {
                one: {"cpu": value if one == "app" else "0", "memory": self.pick("300Mi", "1700Mi")} for one in running
            }
            containers = [{"name": key, "usage": x} for key, x in used.items() if not self.chance(1)]
            when = {
                "timestamp": at(self.pick(87, 93, 200) if self.chance(3) else age),
                "window": self.pick("15s", "30s"),
            }
            document["usage"].append({"metadata": {"name": name}, **when, "containers": containers})
        document |= self.some(usageSource=(3, {"error": "timed out"}))

    def sample(self, metric: Json, document: Json) -> Json | None:
        kind, name = metric["query"]["name"].split("-")
        pods = [pod["metadata"]["name"] for pod in document["pods"]]
        if self.chance(5):
            return self.pick(None, {"error": "timed out", "byPod": kind != "total"})
        entry: Json = {"at": at(self.pick(2, 4, 7, 9, 14, 18, 26, 33) if self.chance(97) else self.pick(88, 93))}
        window = self.pick(0, 0, 60) if kind == "total" else self.pick(30, 60, 120) if kind == "rate" else 0
        entry |= {"windowSeconds": window} if window else {}
        if window and self.chance(60):
            full, short = self.pick(4, 8), self.pick(0, 0, 10, 50, 100)
            entry["counts"] = {pod: full - self.pick(1, 1, 2, 3, 4) * self.chance(short) for pod in pods}
            oldest = self.some(oldest=(60, full))
            ages = [x for x in (3590, 900, 131, 119, 77, 62, 47, 31) if self.chance(40)]
            medians = [[at(x), full - self.pick(1, 2, 3) * self.chance(short / 2)] for x in ages]
            medians[:0] = [[at(3595), held] for held in oldest.values()]
            self.memory.setdefault("medians", {})[name] = medians
        values = self.values(pods)
        if kind == "total":
            total = self.pick(0, 1, *[sum(int(x[:-1]) for x in values.values())] * 3)
            if self.chance(20):
                entry["targets"] = {"/": self.pick(1, 2, 3)}
                numbers = [[at(x), self.pick(1, 2, 2, 3)] for x in (3607, 3590, 900, 31) if self.chance(40)]
                self.memory.setdefault("targets", {})[name] = numbers
            if self.chance(15):
                entry["targets"] = entry.get("targets", {}) | {x: 1 for x in pods if not self.chance(5)}
            return entry | {"total": f"{total}m"}
        dated = {pod: {"at": at(self.pick(1, 50, 95)), "value": x} for pod, x in values.items() if self.chance(2)}
        return entry | {"pods": values | dated}

    def remember(self, spec: Json, document: Json, current: int) -> None:
        uids = [pod["metadata"]["uid"] for pod in document["pods"]]
        self.memory |= self.moments(startedAt=(25, 20, 50, 83, 172, 3000), roseAt=(20, 10, 50, 83, 172, 700))
        self.memory |= self.moments(changedAt=(25, 10, 50, 83, 172, 700), errorSince=(30, 10, 130, 310, 601, 4000))
        self.memory |= self.some(lastReplicas=(40, current, current, current, current + 1, max(0, current - 1)))
        if self.chance(60):
            share, states = self.pick(10, 50, 100), ("pulledOut", "doubtful")
            away = {uid: {"since": at(self.pick(*AGES)), "state": self.pick(*states)} for uid in uids}
            self.memory["away"] = {uid: x for uid, x in away.items() if self.chance(share)}
        if self.chance(25):
            back = {uid: at(self.pick(5, 28, 61, 83, 700)) for uid in uids}
            self.memory["inServiceSince"] = {uid: x for uid, x in back.items() if self.chance(20)}
        for name in [metric["name"] for metric in spec["metrics"]]:
            if self.chance(45):
                share, usual, bounds = self.pick(20, 100), f"{self.pick(0, *MILLI)}m", {}
                for uid in [x for x in uids if self.chance(share)] + [
                    f"uid-left-{i}" for i in range(self.pick(0, 0, 1, 5))
                ]:
                    bound = usual if self.chance(95) else "20"
                    bounds[uid] = {"at": at(self.pick(6, 14, 32, 58, 83, 133, 288, 307)), "bound": bound}
                self.memory.setdefault("last", {})[name] = bounds
            beyond = self.moments(up=(20, 21, 46, 71, 101, 307), down=(20, 21, 46, 71, 101, 307))
            if beyond:
                self.memory.setdefault("beyondSince", {})[name] = beyond

    def document(self) -> Json:
        spec, count = self.policy(), self.pick(0, 1, 2, 3, 5, 8, 10, 10, 12, 20)
        trouble, usual = self.pick(0, 0, 5, 20, 60), self.pick(*KINDS)
        kinds = [self.pick(usual, self.pick(*KINDS)) if self.chance(trouble) else "old" for _ in range(count)]
        document: Json = {"now": at(0), "pods": [self.pod(i, kind) for i, kind in enumerate(kinds)]}
        zero = not count and self.chance(60)
        current = 0 if zero else max(1, count + self.pick(0, 0, 0, 0, 0, 0, -1, 1, 2))
        if self.chance(60):
            self.registry(spec, document)
        elif self.chance(25):
            self.kubernetes(document)
        if self.chance(15):
            for pod in document["pods"]:
                cost = "-100" if "annotations" in pod["metadata"] or self.chance(20) else "0"
                annotations = pod["metadata"].setdefault("annotations", {})
                annotations["controller.kubernetes.io/pod-deletion-cost"] = cost
        if any("resource" in metric for metric in spec["metrics"]):
            self.usage(document)
        samples = {one["name"]: self.sample(one, document) for one in spec["metrics"] if "query" in one}
        document["samples"] = {name: one for name, one in samples.items() if one is not None}
        if self.chance(70):
            self.remember(spec, document, current)
        document |= {"memory": self.memory} if self.memory else {}
        if self.chance(15):
            reason = self.pick("ReplicaSetUpdated", "NewReplicaSetAvailable", "ProgressDeadlineExceeded")
            state = {"status": "False" if reason == "ProgressDeadlineExceeded" else "True", "reason": reason}
            document["target"] = {"status": {"conditions": [{"type": "Progressing", **state}]}}
        meta: Json = {"name": "web", "namespace": "shop"}
        held = self.some(annotations=(3, {"effective-load.io/hold-until": at(self.pick(-61, 61))}))
        document["policy"] = {**API, "metadata": meta | held, "spec": spec}
        least = 0 if zero or self.chance(8) else self.pick(1, 1, 1, 2, 6)
        hpa: Json = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}
        hpa |= {
            "minReplicas": least,
            "maxReplicas": self.pick(*[1000] * 6, 12),
            "metrics": [{"type": "Object", "object": FOLLOWS}],
        }
        hpa["behavior"] = {
            "scaleUp": {"tolerance": "0"},
            "scaleDown": {"tolerance": "0", "stabilizationWindowSeconds": 60},
        }
        document["hpa"] = {**HPA, "metadata": meta, "spec": hpa}
        document["hpa"] |= self.some(status=(20, *[{"lastScaleTime": at(x)} for x in (-31, 20, 101, 170, 250, 900)]))
        size = current + self.pick(0, 0, 0, 0, 0, 1, 3)
        document["scale"] = {"spec": {"replicas": current}, "status": {"replicas": size, "selector": "app=web"}}
        return document


def document(seed: int) -> Json:
    return Generator(seed).document()
