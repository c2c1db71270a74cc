"""Wrong policies: what is wrong with each, where, and words that both the API server's sentence and ours must have.

Here is one of each kind of bound, for the words of both: the bounds themselves are read from the CRD.
"""

import copy
from typing import Any, NamedTuple

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


class Wrong(NamedTuple):
    """`words` are in both sentences; `path` is where we say the fault is."""

    name: str
    path: str
    words: tuple[str, ...]
    document: Object


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
BELOW = "lowWatermark must be below highWatermark"
ONE_NUMBER = "a floor is a query that gives one number for the service"
ROWS: dict[str, list[tuple[Any, ...]]] = {
    "spec.metrics": [
        ("no metrics at all", {"metrics": None}, "metrics"),
        ("an empty list of metrics", {"metrics": []}, "at least 1 items"),
        ("eleven metrics", {"metrics": [{**CPU, "name": f"m{i}"} for i in range(11)]}, "must have at most 10 items"),
        ("nothing but floors", {"metrics": [PLAN]}, "give a metric without floor as well"),
        ("points of plain cpu", {**STEP, **target("600m", **PLAIN)}, "write step.toleranceUnit Percent"),
    ],
    "spec.metrics[0]": [
        ("neither resource nor query", metric(CPU, resource=None), "exactly one of resource"),
        ("both resource and query", metric(CPU, query={"name": "q"}), "exactly one of resource"),
        (
            "no watermark",
            metric(CPU, highWatermark=None, lowWatermark=None),
            "give highWatermark, lowWatermark, or both",
        ),
        ("watermarks for a ratio", RATIO, "strategies Ratio and Step take target"),
        ("a target and a watermark", {**STEP, **metric(MEMORY, target="80%")}, "strategies Ratio and Step take target"),
        (
            "a total of ratios",
            {"algorithm": "Absolute", **metric(MEMORY)},
            "is a ratio and needs algorithm Average",
        ),
    ],
    "spec.metrics[0].name": [
        ("a metric without a name", metric(CPU, name=None), "Required value"),
        ("a name in capitals", metric(CPU, name="CPU"), "lower case letters"),
        ("a name with a slash", metric(CPU, name="a/b"), "lower case letters"),
        ("a metric called pods", metric(CPU, name="pods"), "effective_pods"),
    ],
    "spec.metrics[0].lowWatermark": [
        ("low above high", metric(CPU, lowWatermark="2"), BELOW),
        ("low equal to high in another notation", metric(CPU, lowWatermark="1.2"), BELOW),
        ("low ratio above high percentage", metric(MEMORY, lowWatermark="0.81"), BELOW),
        ("a negative watermark", metric(CPU, lowWatermark="-1"), "more than 0"),
        ("a watermark of zero", metric(CPU, lowWatermark=0), "more than 0"),
    ],
    "spec.metrics[0].highWatermark": [
        ("no quantity", metric(CPU, highWatermark="fast"), "is not a quantity; write a number such as 1200m"),
        ("an absurd watermark", metric(CPU, highWatermark="2Ei"), "at most 1Ei"),
        ("a fraction without quotes", metric(MEMORY, highWatermark=0.8), "integer"),
        (
            "a percentage of nothing",
            metric(CPU, highWatermark="80%"),
            "a percentage needs relativeTo: Limit or Request",
        ),
        ("eighty instead of eighty per cent", metric(MEMORY, highWatermark=80), 'for eighty per cent write "80%"'),
    ],
    "spec.metrics[0].target": [
        ("a target for watermarks", metric(CPU, target="1"), "target is for strategies Ratio and Step"),
        ("a target of nothing", {**RATIO, **target(0)}, "more than 0"),
        ("a target in words", {**RATIO, **target("much")}, "is not a quantity"),
        ("a target beyond all bounds", {**RATIO, **target("2Ei")}, "a target must be at most 1Ei"),
        (
            "a target of a share of nothing",
            {**RATIO, **target("80%", **PLAIN)},
            "a percentage needs relativeTo: Limit or Request",
        ),
        ("a target of eighty", {**RATIO, **target(80)}, "a ratio above 10 is 1000 %"),
    ],
    "spec.metrics[0].resource.name": [
        ("an unknown resource", metric(CPU, resource={"name": "cpus"}), "cpu", "memory"),
        ("a nameless resource", metric(CPU, resource={}), "Required value"),
    ],
    "spec.metrics[0].query": [
        (
            "a query by name and by text",
            metric(RPS, query={"name": "a", "promQL": "b", "server": "c"}),
            "exactly one of name",
        ),
        ("inline PromQL without a server", metric(RPS, query={"promQL": "up"}), "promQL and server go together"),
        (
            "a share of nobody knows which resource",
            metric(RPS, query={"name": "a", "relativeTo": "Limit"}, highWatermark="80%"),
            "relativeTo and resource go together",
        ),
        (
            "containers for no comparison",
            metric(RPS, query={"name": "a", "containers": ["app"]}),
            "containers only matters together with relativeTo",
        ),
    ],
    "spec.metrics[1].name": [("two metrics of one name", {"metrics": [CPU, CPU]}, "Duplicate value")],
    "spec.metrics[1]": [
        (
            "a floor of a resource",
            {"metrics": [CPU, {**CPU, "name": "plan", "lowWatermark": None, "floor": True}]},
            ONE_NUMBER,
        ),
        (
            "a floor of ratios",
            plan(query={"name": "a", "relativeTo": "Limit", "resource": "cpu"}, highWatermark="80%"),
            ONE_NUMBER,
        ),
        ("a floor with a low watermark", plan(lowWatermark=50), "the load of one pod, and no"),
        (
            "a floor with only a low watermark",
            plan(highWatermark=None, lowWatermark=50),
            "the load of one pod, and no",
        ),
        ("a floor that waits", plan(delay={"scaleUpSeconds": 60}), "a floor has no delay"),
    ],
    "spec.convergeTowards": [
        (
            "drifting to the watermark of a floor",
            {"convergeTowards": "High", "metrics": [{**CPU, "highWatermark": None}, PLAN]},
            "convergeTowards High needs a metric with highWatermark",
        ),
        (
            "drifting to a target",
            {**RATIO, "convergeTowards": "High", **target("60%")},
            "strategies Ratio and Step have one target",
        ),
        (
            "drifting to a watermark that nobody gave",
            {"convergeTowards": "Low", **metric(RPS)},
            "convergeTowards Low needs a metric with lowWatermark",
        ),
    ],
    "spec.step": [
        ("steps for watermarks", {"step": {"up": 2}}, "step is for strategy Step"),
        ("pods left for a ratio", {**RATIO, "step": {"minPods": 3}, **target("80%")}, "step is for strategy Step"),
    ],
    "spec.strategy": [
        ("an unknown strategy", {"strategy": "Fibonacci"}, "Watermark", "Ratio", "Step"),
    ],
    "spec.tolerance": [
        (
            "two tolerances",
            {**STEP, "tolerance": "1%", **target("60%")},
            "strategy Step has step.tolerance instead of tolerance",
        ),
        ("a tolerance of five", {"tolerance": 5}, 'tolerance is "1%" or a ratio'),
        ("a tolerance of 100 %", {"tolerance": "100%"}, 'tolerance is "1%" or a ratio'),
        ("a negative tolerance", {"tolerance": "-0.1"}, 'tolerance is "1%" or a ratio'),
    ],
    "spec.step.tolerance": [
        (name, {**STEP, **spec}, "step.tolerance must be less than the target")
        for name, spec in (
            ("as many points as the target", {"step": {"tolerance": 60}, **target("60%")}),
            ("more points than the target by default", target("10%")),
            ("as many points as a query's target", metric(RPS, highWatermark=None, target="15")),
            ("a tolerance of the target", {"step": {"toleranceUnit": "Percent", "tolerance": 100}, **target("60%")}),
        )
    ],
    "spec.algorithm": [
        (
            "steps for a total",
            {**STEP, "algorithm": "Absolute", "step": {"toleranceUnit": "Percent"}, **target("3", **PLAIN)},
            "needs algorithm Average",
        ),
    ],
    "spec.replicaMultiple": [
        (
            "rounded up again",
            {**STEP, "replicaMultiple": 3, **target("60%")},
            "step.down must be at least replicaMultiple",
        ),
        ("multiples of nothing", {"replicaMultiple": 0}, "greater than or equal to 1"),
    ],
    "spec.saturationFactor": [
        (
            "a saturation factor below 1",
            {"saturationFactor": "0.9"},
            'saturationFactor is a number from 1 (off) to 10, such as "1.25"',
        ),
        ("a saturation factor of eleven", {"saturationFactor": 11}, "from 1 (off) to 10"),
    ],
    "spec.registry": [
        ("a registry without service", {"registry": {"name": "nacos"}}, "a registry needs service"),
        (
            "a service name for Kubernetes itself",
            {"registry": {"name": "kubernetes", "service": "a"}},
            "registry kubernetes reads the pods themselves",
        ),
    ],
    "spec.registry.name": [("a nameless registry", {"registry": {"service": "a"}}, "Required value")],
    "spec.registry.port": [
        ("a port beyond all", {"registry": {**NACOS, "port": 70000}}, "less than or equal to 65535")
    ],
    "spec.acceptZeroUsage": [("a flag in words", {"acceptZeroUsage": "yes"}, "boolean")],
    "spec.notify[1]": [("one route twice", {"notify": ["oncall", "oncall"]}, "Duplicate value")],
    "spec.notify[0]": [("a route without a name", {"notify": [""]}, "")],
    "spec.notify": [
        ("a route by itself", {"notify": "oncall"}, "notify"),
    ],
    "spec.lowWaterMark": [("a key that does not exist", {"lowWaterMark": 1}, "unknown field")],
    "spec.cooldown.scaleUpSeconds": [("a cooldown in words", {"cooldown": {"scaleUpSeconds": "1m"}}, "integer")],
    "spec.schedules[1].name": [("two schedules of one name", {"schedules": [LUNCH, LUNCH]}, "Duplicate value")],
    "spec.schedules[0]": [
        ("a schedule for nothing", lunch(minReplicas=None), "a schedule needs minReplicas, maxReplicas or both")
    ],
    "spec.schedules[0].minReplicas": [
        ("a schedule of more at least than at most", lunch(maxReplicas=19), "minReplicas must be at most maxReplicas")
    ],
    "spec.schedules[0].durationSeconds": [
        ("a schedule without a length", lunch(durationSeconds=None), "Required value")
    ],
    "spec.schedules[0].cron": [
        ("fields of a cron expression that only a tab parts", lunch(cron="0\t11 * * 1-5"), "it has not five fields"),
        ("a cron expression of four fields", lunch(cron="0 11 * * "), "it has not five fields"),
        ("a cron expression at 25 o'clock", lunch(cron="0 25 * * *"), "is no cron expression", "write five fields"),
        ("from the evening to the morning", lunch(cron="0 22-5 * * *"), "is no cron expression"),
    ],
    "spec.fallback.replicas": [("a fallback to nothing", {"fallback": {}}, "Required value")],
}
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


def former(path: str, value: Any) -> Object:
    """A spec that is right but for one field, which has its former name."""
    place, _, name = path.rpartition(".")
    match place:
        case "spec.registry":
            return {"registry": {**NACOS, name: value}}
        case "spec.metrics[0].resource":
            return metric(CPU, resource={"name": "cpu", name: value})
        case "spec.metrics[0].query":
            return metric(RPS, query={"name": "http_requests_per_second", name: value})
    return {name: value}


WRONG = [
    *(
        Wrong(f"the former name {path}", path, (f"{path.rpartition('.')[2]} is now {now}",), document)
        for path, (value, now) in FORMER.items()
        for document in [policy("checkout", "default", **former(path, value))]
    ),
    *(
        Wrong(name, path, tuple(words), policy("checkout", "default", **spec))
        for path, rows in ROWS.items()
        for name, spec, *words in rows
    ),
    Wrong("a name longer than a label", "metadata.name", ("at most 63 characters",), policy("a" * 64, "default")),
]
