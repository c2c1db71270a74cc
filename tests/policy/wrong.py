"""Wrong policies: what is wrong with each, where, and words that both the API server's sentence and ours must have."""

import copy
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]

CPU: Object = {"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "1200m", "lowWatermark": "400m"}
RPS: Object = {"name": "rps", "query": {"name": "http_requests_per_second"}, "highWatermark": 100}
PLAN: Object = {"name": "plan", "query": {"name": "planned_requests"}, "highWatermark": 100, "floor": True}
MEMORY: Object = {"name": "memory", "resource": {"name": "memory", "of": "Limit"}, "highWatermark": "80%"}
NACOS: Object = {"name": "prod-nacos", "service": "com.shop.checkout"}
LUNCH: Object = {"name": "lunch", "cron": "0 11 * * 1-5", "durationSeconds": 7200, "minReplicas": 20}


def policy(name: str = "checkout", namespace: str = "shop", /, **spec: Any) -> Object:
    return {
        "apiVersion": "effective-load.io/v1alpha1",
        "kind": "WatermarkPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"metrics": [copy.deepcopy(CPU)], **copy.deepcopy(spec)},
    }


@dataclass(frozen=True)
class Wrong:
    """`words` are in both sentences; `path` is where we say the fault is."""

    name: str
    spec: Object
    path: str
    words: tuple[str, ...]
    called: str = "checkout"

    def document(self, namespace: str) -> Object:
        return policy(self.called, namespace, **self.spec)


def metric(base: Object, **changes: Any) -> Object:
    changed = {**copy.deepcopy(base), **changes}
    return {"metrics": [{key: value for key, value in changed.items() if value is not None}]}


def target(value: Any, **changes: Any) -> Object:
    """A share of memory with a target instead of watermarks."""
    return metric(MEMORY, highWatermark=None, target=value, **changes)


WRONG = [
    Wrong("no metrics at all", {"metrics": None}, "spec.metrics", ("metrics",)),
    Wrong("an empty list of metrics", {"metrics": []}, "spec.metrics", ("at least 1 items",)),
    Wrong(
        "more metrics than ten",
        {"metrics": [{**CPU, "name": f"m{i}"} for i in range(11)]},
        "spec.metrics",
        ("must have at most 10 items",),
    ),
    Wrong("two metrics of one name", {"metrics": [CPU, CPU]}, "spec.metrics[1].name", ("Duplicate value",)),
    Wrong("a metric without a name", metric(CPU, name=None), "spec.metrics[0].name", ("Required value",)),
    Wrong("a name in capitals", metric(CPU, name="CPU"), "spec.metrics[0].name", ("lower case letters",)),
    Wrong("a name with a slash", metric(CPU, name="a/b"), "spec.metrics[0].name", ("lower case letters",)),
    Wrong("a metric called pods", metric(CPU, name="pods"), "spec.metrics[0].name", ("effective_pods",)),
    Wrong("neither resource nor query", metric(CPU, resource=None), "spec.metrics[0]", ("exactly one of resource",)),
    Wrong("both resource and query", metric(CPU, query={"name": "q"}), "spec.metrics[0]", ("exactly one of resource",)),
    Wrong(
        "no watermark",
        metric(CPU, highWatermark=None, lowWatermark=None),
        "spec.metrics[0]",
        ("give highWatermark, lowWatermark, or both",),
    ),
    Wrong(
        "low above high",
        metric(CPU, lowWatermark="2"),
        "spec.metrics[0].lowWatermark",
        ("lowWatermark must be below highWatermark",),
    ),
    Wrong(
        "low equal to high in another notation",
        metric(CPU, lowWatermark="1.2"),
        "spec.metrics[0].lowWatermark",
        ("lowWatermark must be below highWatermark",),
    ),
    Wrong(
        "low ratio above high percentage",
        metric(MEMORY, lowWatermark="0.81"),
        "spec.metrics[0].lowWatermark",
        ("lowWatermark must be below highWatermark",),
    ),
    Wrong(
        "a watermark that is no quantity",
        metric(CPU, highWatermark="fast"),
        "spec.metrics[0].highWatermark",
        ("is not a quantity; write a number such as 1200m",),
    ),
    Wrong("a negative watermark", metric(CPU, lowWatermark="-1"), "spec.metrics[0].lowWatermark", ("more than 0",)),
    Wrong("a watermark of zero", metric(CPU, lowWatermark=0), "spec.metrics[0].lowWatermark", ("more than 0",)),
    Wrong("an absurd watermark", metric(CPU, highWatermark="2Ei"), "spec.metrics[0].highWatermark", ("at most 1Ei",)),
    Wrong(
        "a fraction without quotes", metric(MEMORY, highWatermark=0.8), "spec.metrics[0].highWatermark", ("integer",)
    ),
    Wrong(
        "a percentage of nothing",
        metric(CPU, highWatermark="80%"),
        "spec.metrics[0].highWatermark",
        ("a percentage needs of: Limit or of: Request",),
    ),
    Wrong(
        "eighty instead of eighty per cent",
        metric(MEMORY, highWatermark=80),
        "spec.metrics[0].highWatermark",
        ('for eighty per cent write "80%"',),
    ),
    Wrong(
        "an unknown resource",
        metric(CPU, resource={"name": "cpus"}),
        "spec.metrics[0].resource.name",
        ("cpu", "memory"),
    ),
    Wrong("a nameless resource", metric(CPU, resource={}), "spec.metrics[0].resource.name", ("Required value",)),
    Wrong(
        "a container named twice",
        metric(CPU, resource={"name": "cpu", "containers": ["app", "app"]}),
        "spec.metrics[0].resource.containers",
        ("Duplicate value",),
    ),
    Wrong(
        "of something else",
        metric(MEMORY, resource={"name": "memory", "of": "Node"}),
        "spec.metrics[0].resource.of",
        ("Limit", "Request"),
    ),
    Wrong(
        "a query by name and by text",
        metric(RPS, query={"name": "a", "promQL": "b", "server": "c"}),
        "spec.metrics[0].query",
        ("exactly one of name",),
    ),
    Wrong(
        "inline PromQL without a server",
        metric(RPS, query={"promQL": "up"}),
        "spec.metrics[0].query",
        ("promQL and server go together",),
    ),
    Wrong(
        "a query compared with nobody knows which resource",
        metric(RPS, query={"name": "a", "of": "Limit"}, highWatermark="80%"),
        "spec.metrics[0].query",
        ("of and resource go together",),
    ),
    Wrong(
        "containers for no comparison",
        metric(RPS, query={"name": "a", "containers": ["app"]}),
        "spec.metrics[0].query",
        ("containers only matters together with of",),
    ),
    Wrong(
        "a floor of a resource",
        {"metrics": [CPU, {**CPU, "name": "plan", "lowWatermark": None, "floor": True}]},
        "spec.metrics[1]",
        ("a floor is a query that gives one number for the service",),
    ),
    Wrong(
        "a floor of ratios",
        {"metrics": [CPU, {**PLAN, "query": {"name": "a", "of": "Limit", "resource": "cpu"}, "highWatermark": "80%"}]},
        "spec.metrics[1]",
        ("a floor is a query that gives one number for the service",),
    ),
    Wrong(
        "a floor with a low watermark",
        {"metrics": [CPU, {**PLAN, "lowWatermark": 50}]},
        "spec.metrics[1]",
        ("the load of one pod, and no",),
    ),
    Wrong(
        "a floor with only a low watermark",
        {"metrics": [CPU, {**PLAN, "highWatermark": None, "lowWatermark": 50}]},
        "spec.metrics[1]",
        ("the load of one pod, and no",),
    ),
    Wrong(
        "a floor that waits",
        {"metrics": [CPU, {**PLAN, "delay": {"scaleUpSeconds": 60}}]},
        "spec.metrics[1]",
        ("a floor has no delay",),
    ),
    Wrong("nothing but floors", {"metrics": [PLAN]}, "spec.metrics", ("give a metric without floor as well",)),
    Wrong(
        "drifting to the watermark of a floor",
        {"convergeTowards": "High", "metrics": [{**CPU, "highWatermark": None}, PLAN]},
        "spec.convergeTowards",
        ("convergeTowards High needs a metric with highWatermark",),
    ),
    Wrong(
        "a negative delay",
        {"delay": {"scaleUpSeconds": -1}},
        "spec.delay.scaleUpSeconds",
        ("greater than or equal to 0",),
    ),
    Wrong("an unknown way of wiring", {"hpaWiring": "Force"}, "spec.hpaWiring", ("Report", "Enforce")),
    Wrong(
        "a target for watermarks",
        metric(CPU, target="1"),
        "spec.metrics[0].target",
        ("target is for strategies Ratio and Step",),
    ),
    Wrong(
        "watermarks for a ratio", {"strategy": "Ratio"}, "spec.metrics[0]", ("strategies Ratio and Step take target",)
    ),
    Wrong(
        "a target and a watermark for steps",
        {"strategy": "Step", **metric(MEMORY, target="80%")},
        "spec.metrics[0]",
        ("strategies Ratio and Step take target",),
    ),
    Wrong("a target of nothing", {"strategy": "Ratio", **target(0)}, "spec.metrics[0].target", ("more than 0",)),
    Wrong(
        "a target in words", {"strategy": "Ratio", **target("much")}, "spec.metrics[0].target", ("is not a quantity",)
    ),
    Wrong(
        "a target beyond all bounds",
        {"strategy": "Ratio", **target("2Ei")},
        "spec.metrics[0].target",
        ("a target must be at most 1Ei",),
    ),
    Wrong(
        "a percentage of nothing as target",
        {"strategy": "Ratio", **target("80%", resource={"name": "cpu"})},
        "spec.metrics[0].target",
        ("a percentage needs of: Limit or of: Request",),
    ),
    Wrong(
        "a target of eighty",
        {"strategy": "Ratio", **target(80)},
        "spec.metrics[0].target",
        ("a ratio above 10 is 1000 %",),
    ),
    Wrong("steps for watermarks", {"stepUp": 2}, "spec.strategy", ("are for strategy Step",)),
    Wrong(
        "pods left for a ratio",
        {"strategy": "Ratio", "minPods": 3, **target("80%")},
        "spec.strategy",
        ("are for strategy Step",),
    ),
    Wrong(
        "two tolerances for steps",
        {"strategy": "Step", "tolerance": "1%", **target("60%")},
        "spec.tolerance",
        ("strategy Step has stepTolerance instead of tolerance",),
    ),
    Wrong(
        "steps for a total",
        {"strategy": "Step", "average": "Total", "toleranceIn": "Ratio", **target("3", resource={"name": "cpu"})},
        "spec.average",
        ("needs PerPod",),
    ),
    Wrong(
        "drifting to a target",
        {"strategy": "Ratio", "convergeTowards": "High", **target("60%")},
        "spec.convergeTowards",
        ("strategies Ratio and Step have one target",),
    ),
    Wrong(
        "points of plain cpu",
        {"strategy": "Step", **target("600m", resource={"name": "cpu"})},
        "spec.metrics",
        ("write toleranceIn Ratio",),
    ),
    Wrong(
        "as many points as the target",
        {"strategy": "Step", "stepTolerance": 60, **target("60%")},
        "spec.stepTolerance",
        ("stepTolerance must be less than the target",),
    ),
    Wrong(
        "more points than the target by default",
        {"strategy": "Step", **target("10%")},
        "spec.stepTolerance",
        ("stepTolerance must be less than the target",),
    ),
    Wrong(
        "as many points as the target of a query",
        {"strategy": "Step", **metric(RPS, highWatermark=None, target="15")},
        "spec.stepTolerance",
        ("stepTolerance must be less than the target",),
    ),
    Wrong(
        "a tolerance of the whole target",
        {"strategy": "Step", "toleranceIn": "Ratio", "stepTolerance": 100, **target("60%")},
        "spec.stepTolerance",
        ("stepTolerance must be less than the target",),
    ),
    Wrong(
        "steps that are rounded up again",
        {"strategy": "Step", "multipleOf": 3, **target("60%")},
        "spec.multipleOf",
        ("stepDown must be at least multipleOf",),
    ),
    Wrong(
        "no step down",
        {"strategy": "Step", "stepDown": 0, **target("60%")},
        "spec.stepDown",
        ("greater than or equal to 1",),
    ),
    Wrong("an unknown trigger", {"strategy": "Step", "trigger": "Max", **target("60%")}, "spec.trigger", ("AnyPod",)),
    Wrong(
        "an unknown unit of tolerance",
        {"strategy": "Step", "toleranceIn": "Percent", **target("60%")},
        "spec.toleranceIn",
        ("Points",),
    ),
    Wrong("an unknown mode", {"mode": "Watch"}, "spec.mode", ("Active", "Observe", "Paused")),
    Wrong("an unknown strategy", {"strategy": "Fibonacci"}, "spec.strategy", ("Watermark", "Ratio", "Step")),
    Wrong("a tolerance of five", {"tolerance": 5}, "spec.tolerance", ('tolerance is "1%" or a ratio',)),
    Wrong(
        "a saturation factor below 1",
        {"saturationFactor": "0.9"},
        "spec.saturationFactor",
        ('saturationFactor is a number from 1 (off) to 10, such as "1.25"',),
    ),
    Wrong("a saturation factor of eleven", {"saturationFactor": 11}, "spec.saturationFactor", ("from 1 (off) to 10",)),
    Wrong("a tolerance of 100 %", {"tolerance": "100%"}, "spec.tolerance", ('tolerance is "1%" or a ratio',)),
    Wrong("a negative tolerance", {"tolerance": "-0.1"}, "spec.tolerance", ('tolerance is "1%" or a ratio',)),
    Wrong(
        "a total of ratios",
        {"average": "Total", **metric(MEMORY)},
        "spec.metrics[0]",
        ("a metric with of is a ratio and needs PerPod",),
    ),
    Wrong(
        "drifting to a watermark that nobody gave",
        {"convergeTowards": "Low", **metric(RPS)},
        "spec.convergeTowards",
        ("convergeTowards Low needs a metric with lowWatermark",),
    ),
    Wrong(
        "a registry without service", {"registry": {"name": "nacos"}}, "spec.registry", ("a registry needs service",)
    ),
    Wrong("a nameless registry", {"registry": {"service": "a"}}, "spec.registry.name", ("Required value",)),
    Wrong(
        "a service name for Kubernetes itself",
        {"registry": {"name": "kubernetes", "service": "a"}},
        "spec.registry",
        ("registry kubernetes reads the pods themselves",),
    ),
    Wrong(
        "a port beyond all",
        {"registry": {**NACOS, "port": 70000}},
        "spec.registry.port",
        ("less than or equal to 65535",),
    ),
    Wrong(
        "more than all pods",
        {"pulledOut": {"maxPercent": 101}},
        "spec.pulledOut.maxPercent",
        ("less than or equal to 100",),
    ),
    Wrong("multiples of nothing", {"multipleOf": 0}, "spec.multipleOf", ("greater than or equal to 1",)),
    Wrong("a share in words", {"minServingPercent": "half"}, "spec.minServingPercent", ("minServingPercent",)),
    Wrong("a flag in words", {"tolerateZero": "yes"}, "spec.tolerateZero", ("boolean",)),
    Wrong("haste in words", {"fastScaleUp": "please"}, "spec.fastScaleUp", ("boolean",)),
    Wrong("one route twice", {"notify": ["oncall", "oncall"]}, "spec.notify", ("Duplicate value",)),
    Wrong("a route without a name", {"notify": [""]}, "spec.notify", ("",)),
    Wrong("a route by itself", {"notify": "oncall"}, "spec.notify", ("notify",)),
    Wrong("a key that does not exist", {"lowWaterMark": 1}, "spec.lowWaterMark", ("unknown field",)),
    Wrong("a field of a later version", {"stepSideways": 2}, "spec.stepSideways", ("unknown field",)),
    Wrong(
        "a velocity below zero",
        {"velocity": {"scaleDownPercent": -1}},
        "spec.velocity.scaleDownPercent",
        ("greater than or equal to 0",),
    ),
    Wrong(
        "a cooldown in words",
        {"cooldown": {"scaleUpSeconds": "1m"}},
        "spec.cooldown.scaleUpSeconds",
        ("integer",),
    ),
    Wrong(
        "a schedule for nothing",
        {"schedules": [{"name": "lunch", "cron": "0 11 * * *", "durationSeconds": 60}]},
        "spec.schedules[0]",
        ("a schedule needs minReplicas, maxReplicas or both",),
    ),
    Wrong(
        "a schedule with more at least than at most",
        {"schedules": [{**LUNCH, "maxReplicas": 19}]},
        "spec.schedules[0].minReplicas",
        ("minReplicas must be at most maxReplicas",),
    ),
    Wrong(
        "fields of a cron expression that only a tab parts",
        {"schedules": [{**LUNCH, "cron": "0\t11 * * 1-5"}]},
        "spec.schedules[0].cron",
        ("it has not five fields",),
    ),
    Wrong(
        "a cron expression of four fields",
        {"schedules": [{**LUNCH, "cron": "0 11 * * "}]},
        "spec.schedules[0].cron",
        ("it has not five fields",),
    ),
    Wrong(
        "a cron expression at 25 o'clock",
        {"schedules": [{**LUNCH, "cron": "0 25 * * *"}]},
        "spec.schedules[0].cron",
        ("is no cron expression", "write five fields"),
    ),
    Wrong(
        "a cron expression from the evening to the morning",
        {"schedules": [{**LUNCH, "cron": "0 22-5 * * *"}]},
        "spec.schedules[0].cron",
        ("is no cron expression",),
    ),
    Wrong(
        "a schedule without a length",
        {"schedules": [{"name": "lunch", "cron": "0 11 * * *", "minReplicas": 2}]},
        "spec.schedules[0].durationSeconds",
        ("Required value",),
    ),
    Wrong(
        "two schedules of one name",
        {"schedules": [LUNCH, LUNCH]},
        "spec.schedules",
        ("Duplicate value",),
    ),
    Wrong("a fallback to nothing", {"fallback": {}}, "spec.fallback.replicas", ("Required value",)),
    Wrong("a name longer than a label", {}, "metadata.name", ("at most 63 characters",), called="a" * 64),
]
