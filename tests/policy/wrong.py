"""Policies for tests: parts, one with every field, and wrong ones by the words with which each is refused."""

import copy
from typing import Any

Object = dict[str, Any]

CPU: Object = {"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "1200m", "lowWatermark": "400m"}
RPS: Object = {"name": "rps", "query": {"name": "http_requests_per_second"}, "highWatermark": 100}
PLAN: Object = {"name": "plan", "query": {"name": "planned_requests"}, "highWatermark": 100, "floor": True}
MEMORY: Object = {"name": "memory", "resource": {"name": "memory", "relativeTo": "Limit"}, "highWatermark": "80%"}
NACOS: Object = {"name": "prod-nacos", "service": "com.shop.checkout"}
LUNCH: Object = {"name": "lunch", "cron": "0 11 * * 1-5", "durationSeconds": 7200, "minReplicas": 20}


def policy(name: str = "checkout", namespace: str = "shop", /, **spec: Any) -> Object:
    return {
        "apiVersion": "effective-load.io/v1alpha1",
        "kind": "WatermarkPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"metrics": [copy.deepcopy(CPU)], **copy.deepcopy(spec)},
    }


PROMQL = {"promQL": "up", "server": "main", "relativeTo": "Limit", "resource": "memory", "containers": ["app"]}
EVERYTHING: Object = {
    "hpa": "web",
    "mode": "Active",
    "hpaConfiguration": "Report",
    "strategy": "Watermark",
    "algorithm": "Average",
    "tolerance": "1%",
    "metrics": [
        {**CPU, "resource": {"name": "cpu", "containers": ["app"], "relativeTo": None}},
        {**MEMORY, "resource": {**MEMORY["resource"], "containers": ["app"]}, "lowWatermark": "0.5"},
        {**RPS, "query": PROMQL, "highWatermark": "80%"},
        {**RPS, "name": "named", "delay": {"scaleUpSeconds": 60, "scaleDownSeconds": 300}},
        PLAN,
    ],
    "registry": {
        **NACOS,
        "namespace": "public",
        "group": "DEFAULT_GROUP",
        "registrationGraceSeconds": 180,
        "absenceConfirmationSeconds": 45,
        "treatUnhealthyAsOut": True,
        "anyInstanceOut": False,
        "match": "IPPort",
        "port": 8080,
        "podNameKey": "pod",
    },
    "pulledOut": {"replace": True, "replaceAfterSeconds": 60, "minAgeSeconds": 600, "deleteFirst": False},
    "velocity": {"scaleUpPercent": 100, "scaleDownPercent": 20},
    "delay": {"scaleUpSeconds": 30, "scaleDownSeconds": 600},
    "cooldown": {"scaleUpSeconds": 60, "scaleDownSeconds": 300},
    "schedules": [
        {**LUNCH, "timeZone": "Asia/Shanghai"},
        {"name": "night", "cron": "0 22 * * *", "durationSeconds": 3600, "maxReplicas": 5},
    ],
    "fallback": {"afterSeconds": 300, "replicas": 10},
    "minServingPercent": 50,
    "acceptZeroUsage": False,
    "saturationFactor": "1.25",
    "replicaMultiple": 1,
    "convergeTowards": "High",
    "fastScaleUp": False,
    "notify": ["oncall"],
}


def changed(base: Object, changes: Object) -> list[Object]:
    """A list of the base alone with these keys, without those of None."""
    return [{key: value for key, value in {**copy.deepcopy(base), **changes}.items() if value is not None}]


def metric(base: Object, **changes: Any) -> Object:
    return {"metrics": changed(base, changes)}


def target(value: Any, **changes: Any) -> Object:
    """A share of memory with a target instead of watermarks."""
    return metric(MEMORY, highWatermark=None, target=value, **changes)


def plan(**changes: Any) -> Object:
    """A floor beside a metric."""
    return {"metrics": [CPU, {**PLAN, **changes}]}


def lunch(**changes: Any) -> Object:
    return {"schedules": changed(LUNCH, changes)}


RATIO, STEP = {"strategy": "Ratio"}, {"strategy": "Step"}
PLAIN: Object = {"resource": {"name": "cpu"}}
SHARE: Object = {"name": "a", "relativeTo": "Limit", "resource": "cpu"}
WRONG: dict[tuple[str, str], list[Object]] = {
    ("spec.metrics", "Required value"): [{"metrics": None}],
    ("spec.metrics", "at least 1 items"): [{"metrics": []}],
    ("spec.metrics", "must have at most 10 items"): [{"metrics": [{**CPU, "name": f"m{i}"} for i in range(11)]}],
    ("spec.metrics", "at least one metric must be without floor"): [{"metrics": [PLAN]}],
    ("spec.metrics", "write step.toleranceUnit Percent"): [{**STEP, **target("60", **PLAIN)}],
    ("spec.metrics", "strategies Ratio and Step take target instead"): [
        metric(CPU, target="1"),
        RATIO,
        {**STEP, **metric(MEMORY, target="80%")},
    ],
    ("spec.metrics[0]", "exactly one of resource"): [metric(CPU, resource=None), metric(CPU, query={"name": "q"})],
    ("spec.metrics[0]", "give highWatermark, lowWatermark, or both"): [
        metric(CPU, highWatermark=None, lowWatermark=None)
    ],
    ("spec.metrics[0]", "a percentage needs relativeTo: Limit or Request"): [
        metric(CPU, highWatermark="80%"),
        {**RATIO, **target("80%", **PLAIN)},
    ],
    ("spec.metrics[0]", 'for eighty per cent write "80%"'): [
        metric(MEMORY, highWatermark=80),
        {**RATIO, **target(80)},
    ],
    ("spec.metrics[0].name", "Required value"): [metric(CPU, name=None)],
    ("spec.metrics[0].name", "lower case letters"): [metric(CPU, name=name) for name in ("CPU", "a/b", "pods")],
    ("spec.metrics[0].lowWatermark", "lowWatermark must be below highWatermark"): [
        metric(CPU, lowWatermark="2"),
        metric(CPU, lowWatermark="1.2"),
        metric(MEMORY, lowWatermark="0.81"),
    ],
    ("spec.metrics[0].lowWatermark", "a watermark must be more than 0 and at most 1Ei"): [
        metric(CPU, lowWatermark=low) for low in ("-1", 0)
    ],
    ("spec.metrics[0].highWatermark", "a quantity such as 1200m"): [
        metric(CPU, highWatermark=text)
        for text in ("fast", "2Ei", "5%%", "1e", "0x10", "NaN", "1Ki%", " 5", "٥", "1_000")
    ],
    ("spec.metrics[0].highWatermark", "integer"): [metric(MEMORY, highWatermark=0.8)],
    ("spec.metrics[0].target", "a target must be more than 0 and at most 1Ei"): [
        {**RATIO, **target(value)} for value in (0, "much", "2Ei")
    ],
    ("spec.metrics[0].resource.name", "memory"): [metric(CPU, resource={"name": "cpus"})],
    ("spec.metrics[0].resource.name", "Required value"): [metric(CPU, resource={})],
    ("spec.metrics[0].query", "either name (a query of the settings) or promQL with server"): [
        metric(RPS, query=query)
        for query in ({}, {"name": "a", "server": "c"}, {"promQL": "up"}, {"name": "a", "promQL": "b", "server": "c"})
    ],
    ("spec.metrics[0].query", "relativeTo and resource need each other, and containers needs both"): [
        metric(RPS, query={"name": "a", **query})
        for query in ({"relativeTo": "Limit"}, {"resource": "cpu"}, {"containers": ["app"]})
    ],
    ("spec.metrics[1].name", "Duplicate value"): [{"metrics": [CPU, CPU]}],
    ("spec.metrics[1]", "a floor is a query without relativeTo"): [
        {"metrics": [CPU, {**CPU, "name": "plan", "lowWatermark": None, "floor": True}]},
        plan(query=SHARE, highWatermark="80%"),
        plan(lowWatermark=50),
        plan(highWatermark=None, lowWatermark=50),
        plan(delay={"scaleUpSeconds": 60}),
    ],
    ("spec.convergeTowards", "convergeTowards needs strategy Watermark, and that watermark"): [
        {"convergeTowards": "High", "metrics": [{**CPU, "highWatermark": None}, PLAN]},
        {"convergeTowards": "Low", **metric(RPS)},
        {**RATIO, "convergeTowards": "High", **target("60%")},
    ],
    ("spec.strategy", "step is for strategy Step, which has step.tolerance"): [
        {"step": {"up": 2}},
        {**STEP, "tolerance": "1%", **target("60%")},
    ],
    ("spec.strategy", "Watermark"): [{"strategy": "Fibonacci"}],
    ("spec.tolerance", 'tolerance is "1%" or a ratio'): [{"tolerance": value} for value in (5, "100%", "-0.1")],
    ("spec", "step.tolerance must be less than the target"): [
        {**STEP, "step": {"tolerance": 60}, **target("60%")},
        {**STEP, **target("10%")},
        {**STEP, **metric(RPS, highWatermark=None, target="15")},
        {**STEP, "step": {"toleranceUnit": "Percent", "tolerance": 100}, **target("60%")},
    ],
    ("spec.algorithm", "strategy Step and metrics with relativeTo need algorithm Average"): [
        {"algorithm": "Absolute", **metric(MEMORY)},
        {**STEP, "algorithm": "Absolute", "step": {"toleranceUnit": "Percent"}, **target("3", **PLAIN)},
    ],
    ("spec.replicaMultiple", "step.down must be at least replicaMultiple"): [
        {**STEP, "replicaMultiple": 3, **target("60%")}
    ],
    ("spec.replicaMultiple", "greater than or equal to 1"): [{"replicaMultiple": 0}],
    ("spec.saturationFactor", 'saturationFactor is a number from 1 (off) to 10, such as "1.25"'): [
        {"saturationFactor": value} for value in ("0.9", 11)
    ],
    ("spec.registry", "a registry needs service, the name the pods register under; registry kubernetes reads"): [
        {"registry": {"name": "nacos"}},
        *({"registry": {"name": "kubernetes", key: value}} for key, value in (("service", "a"), ("port", 1))),
    ],
    ("spec.registry.port", "less than or equal to 65535"): [{"registry": {**NACOS, "port": 70000}}],
    ("spec.acceptZeroUsage", "boolean"): [{"acceptZeroUsage": "yes"}],
    ("spec.notify[1]", "Duplicate value"): [{"notify": ["oncall", "oncall"]}],
    ("spec.notify[0]", "1"): [{"notify": [""]}],
    ("spec.notify", "notify"): [{"notify": "oncall"}],
    ("spec.lowWaterMark", "unknown field"): [{"lowWaterMark": 1}],
    ("spec.cooldown.scaleUpSeconds", "integer"): [{"cooldown": {"scaleUpSeconds": "1m"}}],
    ("spec.schedules[0]", "a schedule needs minReplicas, maxReplicas or both"): [lunch(minReplicas=None)],
    ("spec.schedules[0].minReplicas", "minReplicas must be at most maxReplicas"): [lunch(maxReplicas=19)],
    ("spec.schedules[0].cron", "invalid cron expression: write five fields"): [
        lunch(cron=cron) for cron in ("0\t11 * * 1-5", "0 11 * * ", "0 25 * * *", "0 22-5 * * *", "0 5 * * SAT-SUN")
    ],
    ("spec.fallback.replicas", "Required value"): [{"fallback": {}}],
}
"""Specs that are refused, by the path of the fault in a file and by words of the API server's sentence and ours."""


FORMER: dict[str, tuple[Any, str]] = {
    "spec.average": ("PerPod", "algorithm"),
    "spec.hpaWiring": ("Enforce", "hpaConfiguration"),
    "spec.multipleOf": (2, "replicaMultiple"),
    "spec.tolerateZero": (True, "acceptZeroUsage"),
    "spec.stepTolerance": (15, "step.tolerance"),
    "spec.toleranceIn": ("Ratio", "step.toleranceUnit"),
    "spec.trigger": ("AnyPod", "step.trigger"),
    "spec.stepUp": (2, "step.up"),
    "spec.stepDown": (2, "step.down"),
    "spec.minPods": (2, "step.minPods"),
    "spec.metrics[0].resource.of": ("Limit", "relativeTo"),
    "spec.metrics[0].query.of": ("Limit", "relativeTo"),
    "spec.registry.graceSeconds": (180, "registrationGraceSeconds"),
    "spec.registry.absentSeconds": (45, "absenceConfirmationSeconds"),
    "spec.registry.unhealthyIsOut": (True, "treatUnhealthyAsOut"),
    "spec.registry.anyOut": (False, "anyInstanceOut"),
}
"""Former names of fields, each with a value that it took and the present name."""


FORMER_PLACES = {"spec.metrics[0].resource": CPU, "spec.metrics[0].query": RPS}


def former(path: str, value: Any) -> Object:
    """A spec that is right but for one field, which has its former name."""
    place, _, name = path.rpartition(".")
    if place == "spec.registry":
        return {"registry": {**NACOS, name: value}}
    if (base := FORMER_PLACES.get(place)) is None:
        return {name: value}
    source = place.rpartition(".")[2]
    return metric(base, **{source: {**base[source], name: value}})


WRONG |= {
    (path, f"{path.rpartition('.')[2]} is now {now}"): [former(path, value)] for path, (value, now) in FORMER.items()
}
