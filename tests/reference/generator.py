"""Seeded random `decide` documents that reach every rule of the page.

Times keep clear of the boundaries of whole minutes that the page leaves open ("less than 300 s", "at most 90 s"): they
end in 1 to 9 seconds past a multiple of ten, and thresholds are multiples of ten or five that ages never equal.
"""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

NOW = datetime(2026, 1, 7, 12, 0, tzinfo=UTC)  # a Wednesday
MILLI = (
    0,
    20,
    50,
    100,
    150,
    200,
    300,
    350,
    380,
    396,
    397,
    400,
    500,
    700,
    900,
    1190,
    1200,
    1212,
    1213,
    1300,
    1500,
    2500,
)
AGES = (3, 13, 26, 38, 52, 68, 83, 97, 133, 172, 188, 247, 288, 312, 397, 573, 611, 907, 1793, 1807, 3607, 7207)
SHORT = (2, 4, 7, 9, 11, 14, 18, 26, 33)


def at(age: float) -> str:
    """The moment so many seconds before now."""
    return (NOW - timedelta(seconds=age)).isoformat().replace("+00:00", "Z")


class Generator:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names: list[str] = []
        self.memory: dict[str, Any] = {}

    def chance(self, percent: float) -> bool:
        return self.random.random() * 100 < percent

    def pick(self, *values: Any) -> Any:
        return self.random.choice(values)

    def maybe(self, percent: float, **fields: Any) -> dict[str, Any]:
        return fields if self.chance(percent) else {}

    # policies

    def metric(self, name: str, strategy: str, absolute: bool) -> dict[str, Any]:
        kind = self.pick("cpu", "cpu", "load", "load", "rate", "total", "memory" if strategy != "Step" else "load")
        relative = self.chance(25) and not absolute and kind != "total"
        if kind in ("cpu", "memory"):
            source: dict[str, Any] = {
                "resource": {"name": kind} | self.maybe(100 * relative, relativeTo=self.pick("Limit", "Request"))
            }
            source["resource"] |= self.maybe(10, containers=["app"])
        else:
            source = {"query": {"name": f"{kind}-{name}"}}
            if relative:
                source["query"] |= {"relativeTo": self.pick("Limit", "Request"), "resource": "cpu"}
        unit = 1000 if not relative else 1500
        high = self.pick(1200, 1200, 1000, 1500) * (8 if absolute or kind == "total" and self.chance(30) else 1)
        low = high // 3 if self.chance(70) else high * 3 // 4
        shown = {"highWatermark": f"{high}m", "lowWatermark": f"{low}m", "target": f"{high * 2 // 3}m"}
        if relative:
            shown = {key: f"{int(text[:-1]) * 100 // unit}%" for key, text in shown.items()}
        if strategy != "Watermark":
            keys = ["target"]
        else:
            keys = self.pick(
                ["highWatermark", "lowWatermark"],
                ["highWatermark", "lowWatermark"],
                ["highWatermark"],
                ["lowWatermark"],
            )
            keys = ["highWatermark", "lowWatermark"] if self.chance(60) else keys
        if kind == "total" and strategy == "Watermark" and self.chance(15):
            return {"name": name, "floor": True, **source, "highWatermark": shown["highWatermark"]}
        delay = self.maybe(8, delay={"scaleUpSeconds": self.pick(0, 30, 60), "scaleDownSeconds": self.pick(0, 60, 120)})
        return {"name": name, **source, **{key: shown[key] for key in keys}, **delay}

    def policy(self) -> dict[str, Any]:
        strategy = self.pick("Watermark", "Watermark", "Watermark", "Watermark", "Ratio", "Step")
        absolute = strategy != "Step" and self.chance(12)
        metrics = [self.metric(f"m{i}", strategy, absolute) for i in range(self.pick(1, 1, 1, 2, 3))]
        if all(one.get("floor") for one in metrics):
            metrics[0].pop("floor")
            metrics = metrics[:1]
        spec: dict[str, Any] = {"strategy": strategy, "metrics": metrics}
        spec |= self.maybe(100 * absolute, algorithm="Absolute")
        out = self.maybe(60, replaceAfterSeconds=self.pick(0, 0, 30)) | self.maybe(8, replace=False)
        spec["pulledOut"] = out | self.maybe(10, minAgeSeconds=self.pick(0, 120)) | self.maybe(20, deleteFirst=True)
        if strategy == "Step":
            percent = self.chance(40) or any(
                "resource" in one and "relativeTo" not in one["resource"] for one in metrics
            )
            percent = percent or not all(
                one[kind].get("relativeTo") for one in metrics for kind in ("resource", "query") if kind in one
            )
            step = {"tolerance": self.pick(10, 20, 30)} | self.maybe(100 * percent, toleranceUnit="Percent")
            step |= self.maybe(30, trigger=self.pick("AnyPod", "Average")) | self.maybe(30, up=self.pick(0, 1, 3))
            spec["step"] = step | self.maybe(30, down=self.pick(1, 3)) | self.maybe(30, minPods=self.pick(1, 3, 6))
        elif self.chance(15):
            spec["tolerance"] = self.pick("0%", "5%", "10%")
        if strategy == "Watermark" and self.chance(12):
            towards = self.pick("High", "Low")
            if any(f"{towards.lower()}Watermark" in one and not one.get("floor") for one in metrics):
                spec["convergeTowards"] = towards
        if strategy != "Step":
            spec |= self.maybe(10, replicaMultiple=self.pick(2, 3, 4))
        spec |= self.maybe(12, minServingPercent=self.pick(0, 30, 80, 100)) | self.maybe(
            10, acceptZeroUsage=self.chance(60)
        )
        spec |= self.maybe(15, saturationFactor=self.pick("1", "1.5", "2"))
        spec |= self.maybe(
            12,
            velocity=self.maybe(80, scaleUpPercent=self.pick(0, 1, 20, 50))
            | self.maybe(80, scaleDownPercent=self.pick(0, 1, 10, 40)),
        )
        spec |= self.maybe(
            12,
            cooldown=self.maybe(80, scaleUpSeconds=self.pick(60, 180))
            | self.maybe(80, scaleDownSeconds=self.pick(60, 300)),
        )
        spec |= self.maybe(
            10,
            delay=self.maybe(80, scaleUpSeconds=self.pick(30, 60))
            | self.maybe(80, scaleDownSeconds=self.pick(60, 120)),
        )
        spec |= self.maybe(
            15, fallback={"replicas": self.pick(3, 8, 25)} | self.maybe(60, afterSeconds=self.pick(0, 120, 600))
        )
        if self.chance(12):
            spec["schedules"] = [self.schedule(f"s{i}") for i in range(self.pick(1, 2))]
        spec |= self.maybe(6, mode=self.pick("Observe", "Paused"))
        return spec

    def schedule(self, name: str) -> dict[str, Any]:
        cron = self.pick(
            "0 11 * * *", "30 8 * * 1-5", "0 12 * * WED", "50 11 7 1 *", "*/30 9-11 * * *", "0 22 * * *", "0 11 * * SUN"
        )
        bounds = self.pick(
            {"minReplicas": self.pick(2, 9, 14)},
            {"maxReplicas": self.pick(4, 8, 12)},
            {"minReplicas": 5, "maxReplicas": 9},
        )
        zone = self.maybe(20, timeZone=self.pick("UTC", "Asia/Shanghai", "America/New_York"))
        return {"name": name, "cron": cron, "durationSeconds": self.pick(600, 3600, 7200, 14400), **zone, **bounds}

    # pods

    def containers(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The spec's containers and their statuses."""
        limits = {"cpu": self.pick("1500m", "1500m", "1500m", "2"), "memory": "2Gi"}
        asked: dict[str, Any] = {"limits": limits, "requests": {"cpu": "1", "memory": "1Gi"}}
        if self.chance(5):
            asked = self.pick({}, {"requests": {"cpu": "1", "memory": "1Gi"}})
        spec, running = [{"name": "app", "resources": asked}], {"running": {"startedAt": at(7300)}}
        status: list[dict[str, Any]] = [{"name": "app", "state": running}]
        if asked and self.chance(6):
            status[0]["resources"] = {
                "limits": {"cpu": self.pick("1", "1500m", "3"), "memory": "1Gi"},
                "requests": {"cpu": "500m", "memory": "1Gi"},
            }
        if self.chance(6):
            spec.append(
                {
                    "name": "side",
                    "resources": {
                        "limits": {"cpu": "100m", "memory": "1Gi"},
                        "requests": {"cpu": "50m", "memory": "64Mi"},
                    },
                }
            )
            status.append(
                {"name": "side", "state": running if self.chance(70) else {"waiting": {"reason": "PodInitializing"}}}
            )
        return spec, status

    def pod(self, number: int, kind: str) -> dict[str, Any]:
        name = f"web-{number}"
        age = {"new": self.pick(38, 68, 133, 172, 247)}.get(kind, self.pick(7307, 7307, 7307, 911, 503, 397))
        turned, ready = age - self.pick(12, 22), "True"
        if kind == "back":
            turned = self.pick(*[x for x in AGES if x < age - 60])
        if kind in ("unready", "gate", "crash"):
            turned, ready = self.pick(*[x for x in AGES if x < age - 60]), "True" if kind == "crash" else "False"
        if kind == "booting":
            age = self.pick(22, 68, 247, 397)
            turned, ready = age - 1, "False"
        spec, statuses = self.containers()
        for one in statuses:
            if "running" in one["state"]:
                one["state"] = {"running": {"startedAt": at(age - 1)}}
        if kind == "crash":
            statuses[0]["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
        inner = "True" if kind == "gate" else ready
        conditions = [
            {"type": "Ready", "status": ready, "lastTransitionTime": at(turned)},
            {"type": "ContainersReady", "status": inner, "lastTransitionTime": at(turned)},
        ]
        gates: list[dict[str, Any]] = []
        if kind == "gate":
            gates = [{"conditionType": "example.com/in"}]
            conditions.append({"type": "example.com/in", "status": "False", "lastTransitionTime": at(turned)})
        meta: dict[str, Any] = {"name": name, "uid": f"uid-{name}", "namespace": "shop", "creationTimestamp": at(age)}
        meta["labels"] = {"app": "web", "pod-template-hash": "5d4f8"}
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4f8", "uid": "rs-1", "controller": True}
        meta["ownerReferences"] = [owner]
        status: dict[str, Any] = {"phase": "Running", "startTime": at(age - 1), "podIP": f"10.0.0.{number + 1}"}
        status |= {"conditions": conditions, "containerStatuses": statuses}
        if kind == "pending":
            status = {"phase": "Pending"}
        elif kind == "gone":
            meta["deletionTimestamp"] = at(5)
        elif kind == "finished":
            status["phase"] = self.pick("Failed", "Succeeded")
        elif kind == "annotated":
            meta["annotations"] = {"effective-load.io/pulled-out": "true"}
        elif kind == "foreign":
            meta["ownerReferences"] = [owner | {"kind": "Job", "name": "web-job"}]
        elif kind == "label":
            meta["labels"] = {"app": "other"}
        return {
            "metadata": meta,
            "spec": {"containers": spec} | ({"readinessGates": gates} if gates else {}),
            "status": status,
        }

    def pods(self, count: int) -> list[dict[str, Any]]:
        rare = (
            "new",
            "new",
            "back",
            "unready",
            "gate",
            "crash",
            "booting",
            "pending",
            "gone",
            "finished",
            "annotated",
            "annotated",
            "foreign",
            "label",
        )
        trouble = self.pick(0, 0, 5, 20, 60)
        same = self.pick(*rare)
        made = []
        for i in range(count):
            kind = "old" if not self.chance(trouble) else same if self.chance(50) else self.pick(*rare)
            made.append(self.pod(i, kind))
        return made

    # what the sources answer

    def registry(self, spec: dict[str, Any], document: dict[str, Any]) -> None:
        spec["registry"] = {"name": "prod", "service": "web"}
        spec["registry"] |= self.maybe(10, registrationGraceSeconds=self.pick(0, 60, 400)) | self.maybe(
            10, absenceConfirmationSeconds=self.pick(0, 120)
        )
        spec["registry"] |= (
            self.maybe(10, treatUnhealthyAsOut=False) | self.maybe(10, anyInstanceOut=True) | self.maybe(10, port=8080)
        )
        age, registered, absent = self.pick(2, 2, 2, 4, 40, 97, 290, 311, 1790, 1811), [], {}
        share, out = self.pick(0, 0, 10, 30, 55, 100), self.pick(0, 0, 10, 30, 100)
        items: list[dict[str, Any]] = [{"ip": "10.9.9.9", "port": 8080}] if self.chance(20) else []
        for pod in document["pods"]:
            uid, ip = pod["metadata"]["uid"], pod["status"].get("podIP", "10.8.8.8")
            if self.chance(85):
                registered.append(uid)
            if self.chance(share):
                if self.chance(80):
                    absent[uid] = at(age + self.pick(2, 20, 44, 46, 130))
                continue
            for _ in range(self.pick(1, 1, 1, 1, 2)):
                item: dict[str, Any] = {"ip": ip, "port": self.pick(8080, 8080, 8080, 9090)}
                if self.chance(out):
                    item |= self.pick(
                        {"enabled": False},
                        {"weight": 0},
                        {"status": "OUT_OF_SERVICE"},
                        {"status": "DOWN"},
                        {"isolated": True},
                        {"healthy": False},
                    )
                item |= self.maybe(5, podUid=self.pick(uid, "uid-other")) | self.maybe(
                    10, registeredAt=at(self.pick(30, 500, 8000))
                )
                items.append(item)
        if self.chance(92):
            document["instances"] = {"at": at(age), "items": items} | self.maybe(10, protected=True)
        if self.chance(85):
            self.memory["registered"] = registered
        if absent and self.chance(85):
            self.memory["absentSince"] = absent

    def kubernetes(self, document: dict[str, Any]) -> None:
        endpoints = [
            {
                "addresses": [pod["status"].get("podIP", "10.8.8.8")],
                "conditions": {"ready": (serves := not self.chance(25)), "serving": serves},
                "targetRef": {"kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]},
            }
            for pod in document["pods"]
            if self.chance(90)
        ]
        meta = {"name": "web-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}}
        document["endpointSlices"] = [{"metadata": meta, "addressType": "IPv4", "endpoints": endpoints}]

    def load(self) -> tuple[int, int]:
        """The usual values of a document: a centre and how far pods are from it."""
        return self.pick(0, 50, 100, 200, 300, 350, 400, 500, 800, 1000, 1190, 1213, 1300, 1500, 1480, 2500), self.pick(
            0, 0, 10, 50
        )

    def value(self, centre: int, spread: int) -> int:
        if self.chance(4):
            return int(self.pick(*MILLI))
        return max(0, centre + self.random.randint(-spread, spread))

    def usage(self, document: dict[str, Any]) -> None:
        (centre, spread), age, lost = self.load(), self.pick(2, 4, 7, 11, 26), self.pick(0, 0, 5, 30, 100)
        document["usage"] = []
        for pod in document["pods"]:
            if self.chance(lost):
                continue
            own = self.pick(87, 93, 200) if self.chance(3) else age
            names = [one["name"] for one in pod["status"].get("containerStatuses", [])]
            used = {
                name: {
                    "cpu": f"{self.value(centre, spread)}m" if name == "app" else "0",
                    "memory": f"{self.pick(300, 900, 1700)}Mi",
                }
                for name in names
            }
            containers = [{"name": name, "usage": one} for name, one in used.items() if not self.chance(2)]
            document["usage"].append(
                {
                    "metadata": {"name": pod["metadata"]["name"]},
                    "timestamp": at(own),
                    "window": self.pick("15s", "30s"),
                    "containers": containers,
                }
            )
        if self.chance(3):
            document["usageSource"] = {"error": "timed out"}

    def sample(self, metric: dict[str, Any], document: dict[str, Any]) -> dict[str, Any] | None:
        kind = metric["query"]["name"].split("-")[0]
        if self.chance(5):
            return None if self.chance(50) else {"error": "timed out", "byPod": kind != "total"}
        (centre, spread), pods = self.load(), [pod["metadata"]["name"] for pod in document["pods"]]
        entry: dict[str, Any] = {"at": at(self.pick(*SHORT) if self.chance(97) else self.pick(88, 93))}
        window = self.pick(0, 0, 60) if kind == "total" else self.pick(30, 60, 120) if kind == "rate" else 0
        entry |= {"windowSeconds": window} if window else {}
        if window and self.chance(60):
            full = self.pick(4, 8)
            short = self.pick(0, 0, 10, 50, 100)
            entry["counts"] = {name: full - (self.pick(1, 1, 2, 3, 4) if self.chance(short) else 0) for name in pods}
            entry |= self.maybe(60, full=full)
            if self.chance(60):
                ages = [x for x in (15, 31, 47, 61.5, 77, 119, 131, 900, 3590) if self.chance(60)]
                counts = [
                    [at(x), full - (self.pick(1, 2, 3) if self.chance(short / 2) else 0)]
                    for x in sorted(ages, reverse=True)
                ]
                self.memory.setdefault("medians", {})[metric["name"]] = counts
        if kind == "total":
            total = self.pick(0, 1, centre * len(pods), centre * len(pods), centre * len(pods))
            return (
                entry | {"total": f"{total}m"} | self.maybe(15, readsPods=[name for name in pods if not self.chance(5)])
            )
        lost = self.pick(0, 0, 5, 30, 100)
        values: dict[str, Any] = {name: f"{self.value(centre, spread)}m" for name in pods if not self.chance(lost)}
        for name in values:
            if self.chance(2):
                values[name] = {"at": at(self.pick(1, 50, 95)), "value": values[name]}
        return entry | {"pods": values}

    def remember(self, spec: dict[str, Any], document: dict[str, Any], current: int) -> None:
        memory, pods = self.memory, [pod["metadata"]["uid"] for pod in document["pods"]]
        memory |= self.maybe(25, startedAt=at(self.pick(20, 50, 83, 172, 3000))) | self.maybe(
            20, roseAt=at(self.pick(10, 50, 83, 172, 700))
        )
        memory |= self.maybe(25, changedAt=at(self.pick(10, 50, 83, 172, 700))) | self.maybe(
            30, errorSince=at(self.pick(10, 130, 310, 601, 4000))
        )
        memory |= self.maybe(
            40, lastReplicas=current if self.chance(70) else self.pick(current + 1, max(0, current - 1), 9)
        )
        if self.chance(60):
            share = self.pick(10, 50, 100)
            away = {
                uid: {"since": at(self.pick(*AGES)), "state": self.pick("pulledOut", "doubtful")}
                for uid in pods
                if self.chance(share)
            }
            memory |= {"away": away} if away else {}
        if self.chance(25):
            memory["inServiceSince"] = {uid: at(self.pick(5, 28, 61, 83, 700)) for uid in pods if self.chance(20)}
        for metric in spec["metrics"]:
            if self.chance(45):
                share, centre = self.pick(20, 100), self.pick(*MILLI)
                uids = [uid for uid in pods if self.chance(share)] + [
                    f"uid-left-{i}" for i in range(self.pick(0, 0, 1, 2, 5))
                ]
                last = {
                    uid: {
                        "at": at(self.pick(6, 14, 32, 58, 83, 133, 288, 307)),
                        "bound": f"{centre if self.chance(90) else 20000}m",
                    }
                    for uid in uids
                }
                memory.setdefault("last", {})[metric["name"]] = last
            if self.chance(25):
                beyond = self.maybe(70, up=at(self.pick(20, 45, 70, 100, 300))) | self.maybe(
                    70, down=at(self.pick(20, 45, 70, 100, 300))
                )
                memory.setdefault("beyondSince", {})[metric["name"]] = beyond

    def document(self) -> dict[str, Any]:
        spec, count = self.policy(), self.pick(0, 1, 2, 3, 5, 8, 10, 10, 12, 20)
        document: dict[str, Any] = {"now": at(0), "pods": self.pods(count)}
        zero = not count and self.chance(60)
        current = 0 if zero else max(1, count + self.pick(0, 0, 0, 0, 0, 0, -1, 1, 2))
        registry = self.chance(60)
        if registry:
            self.registry(spec, document)
        elif self.chance(25):
            self.kubernetes(document)
        if self.chance(15):
            for pod in document["pods"]:
                if self.chance(90) and (registry or "annotations" in pod["metadata"]):
                    cost = "-100" if "annotations" in pod["metadata"] or self.chance(20) else "0"
                    pod["metadata"].setdefault("annotations", {})["controller.kubernetes.io/pod-deletion-cost"] = cost
        if any("resource" in metric for metric in spec["metrics"]):
            self.usage(document)
        samples = {metric["name"]: self.sample(metric, document) for metric in spec["metrics"] if "query" in metric}
        document["samples"] = {name: one for name, one in samples.items() if one is not None}
        if self.chance(70):
            self.remember(spec, document, current)
        document |= {"memory": self.memory} if self.memory and self.chance(95) else {}
        if self.chance(15):
            reason = self.pick("ReplicaSetUpdated", "NewReplicaSetAvailable", "ProgressDeadlineExceeded")
            status = "False" if reason == "ProgressDeadlineExceeded" else "True"
            condition = {"type": "Progressing", "status": status, "reason": reason}
            document["target"] = {
                "kind": "Deployment",
                "metadata": {"name": "web"},
                "status": {"conditions": [condition]},
            }
        meta: dict[str, Any] = {"name": "web", "namespace": "shop"}
        meta |= self.maybe(3, annotations={"effective-load.io/hold-until": at(self.pick(-60, 60))})
        document["policy"] = {
            "apiVersion": "effective-load.io/v1alpha1",
            "kind": "WatermarkPolicy",
            "metadata": meta,
            "spec": spec,
        }
        object_ = {
            "describedObject": {"apiVersion": "effective-load.io/v1alpha1", "kind": "WatermarkPolicy", "name": "web"},
            "metric": {"name": "desired_replicas"},
            "target": {"type": "AverageValue", "averageValue": "1"},
        }
        least = 0 if zero or self.chance(8) else self.pick(1, 1, 1, 2, 6)
        hpa_spec = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": least,
            "maxReplicas": 1000 if self.chance(85) else max(1, least, self.pick(6, 12)),
            "behavior": {
                "scaleUp": {"tolerance": "0"},
                "scaleDown": {"tolerance": "0", "stabilizationWindowSeconds": 60},
            },
            "metrics": [{"type": "Object", "object": object_}],
        }
        scaled = self.maybe(20, status={"lastScaleTime": at(self.pick(-30, 20, 100, 170, 250, 900))})
        document["hpa"] = {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": hpa_spec,
            **scaled,
        }
        size = current if self.chance(85) else current + self.pick(0, 1, 3)
        document["scale"] = {"spec": {"replicas": current}, "status": {"replicas": size, "selector": "app=web"}}
        return document


def document(seed: int) -> dict[str, Any]:
    return Generator(seed).document()
