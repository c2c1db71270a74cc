"""A small service for tests: pods with loads, a policy, and the two calls that decide."""

from dataclasses import replace
from fractions import Fraction

from adapter.load.assess import assess
from adapter.load.assessment import Assessment, AssessmentInputs, Decision
from adapter.load.decide import decide
from adapter.load.memory import Memory
from adapter.load.pods import Container, Owner, Pod, PodCondition
from adapter.load.quantity import NANO, parse_quantity
from adapter.load.roster import Instance, Roster
from adapter.load.samples import PodUsage, Point, QuerySamples, ResourceSamples, Samples
from adapter.load.spec import Bounds, Metric, Policy, PulledOut, Query, Registry, Scale, Target
from adapter.policy.conditions import FOUND

NOW = 1_767_268_800.0
TARGET = Target(api_version="apps/v1", kind="Deployment", name="web", uid="target")


def nano(text: str | int) -> int:
    """Nano-units of a quantity such as 1200m."""
    return int(parse_quantity(str(text)) * NANO)


def pod(
    name: str = "web-0",
    *,
    ready: bool = True,
    age: float = 3600.0,
    ready_for: float | None = None,
    limits: dict[str, str] | None = None,
    requests: dict[str, str] | None = None,
    ip: str = "",
    now: float = NOW,
    **changes: object,
) -> Pod:
    """A pod that has been running and Ready for an hour by default."""
    since = now - (age - 5 if ready_for is None else ready_for)
    container = Container(
        "app",
        limits={k: nano(v) for k, v in (limits or {}).items()},
        requests={k: nano(v) for k, v in (requests or {}).items()},
        running=True,
    )
    base = Pod(
        namespace="shop",
        name=name,
        uid=f"uid-{name}",
        created_at=now - age,
        started_at=now - age,
        ready=PodCondition(ready, since),
        containers_ready=ready,
        ips=(ip,) if ip else (),
        owner=Owner("ReplicaSet", "web-abc"),
        template_hash="abc",
        containers=(container,),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def out(name: str, **changes: object) -> Pod:
    """A pod that was pulled out by hand."""
    return pod(name, pulled_out_annotation=True, **changes)  # type: ignore[arg-type]


def cpu(high: str | None = "1200m", low: str | None = None, **changes: object) -> Metric:
    """A CPU metric with its watermarks."""
    metric = Metric(
        name="cpu",
        resource="cpu",
        high=None if high is None else Fraction(nano(high)),
        low=None if low is None else Fraction(nano(low)),
    )
    return replace(metric, **changes)  # type: ignore[arg-type]


def policy(*metrics: Metric, replace_after: float = 0.0, replaces: bool = True, **changes: object) -> Policy:
    """A policy with the defaults of the vectors."""
    base = Policy(
        namespace="shop",
        name="web",
        hpa="web",
        metrics=metrics or (cpu(),),
        pulled_out=PulledOut(replace=replaces, replace_after=replace_after),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def usage(loads: dict[str, str | int | None], *, resource: str = "cpu", at: float = NOW - 10) -> Samples:
    """Samples as metrics.k8s.io gives them: pod name → quantity, None for a pod that has none."""
    pods = {
        name: PodUsage(at, 15.0, {"app": {resource: nano(load)}}) for name, load in loads.items() if load is not None
    }
    return Samples(ResourceSamples(pods=pods, fetched_at=at))


def total(value: str, name: str = "queue", at: float = NOW - 10) -> Samples:
    """Samples with one number for the service."""
    return Samples(queries={name: QuerySamples(total=Point(at, nano(value)), fetched_at=at)})


def queue(high: str | None = None, low: str | None = None) -> Metric:
    """A metric that is one number for the service."""
    return replace(cpu(high, low), name="queue", resource="", query=Query(name="queue"))


REGISTRY = Registry(name="nacos", service="com.shop.web")


def roster(*ips: str, at: float = NOW - 1, disabled: tuple[str, ...] = (), **changes: object) -> Roster:
    """A roster of instances at these addresses."""
    instances = tuple(Instance(ip=ip, port=8080) for ip in ips)
    instances += tuple(Instance(ip=ip, port=8080, enabled=False) for ip in disabled)
    return replace(Roster(at=at, instances=instances), **changes)  # type: ignore[arg-type]


def scale(replicas: int, status: int | None = None) -> Scale:
    """A scale whose status agrees with its spec by default."""
    return Scale(replicas=replicas, status_replicas=replicas if status is None else status, selector="app=web")


BOUNDS = Bounds(minimum=1, maximum=1000)


def assess_and_decide(
    rule: Policy,
    pods: list[Pod],
    samples: Samples,
    *,
    current: int | None = None,
    status: int | None = None,
    listed: Roster | None = None,
    memory: Memory | None = None,
    bounds: Bounds = BOUNDS,
    target: Target | None = TARGET,
    now: float = NOW,
) -> tuple[Assessment, Decision]:
    """Assess and decide; by default with as many replicas as pods."""
    inputs = AssessmentInputs(
        policy=rule, pods=pods, samples=samples, roster=listed,
        scale=scale(len(pods) if current is None else current, status), bounds=bounds, target=target,
        memory=memory or Memory(), now=now,
    )  # fmt: skip
    assessment = assess(inputs)
    assert set(assessment.conditions) <= set(FOUND), "condition_sentences has a type that FOUND does not have"
    return assessment, decide(assessment, inputs.scale, bounds, now)


def same(count: int, load: str | int | None, prefix: str = "web") -> tuple[list[Pod], dict[str, str | int | None]]:
    """So many pods of the same load."""
    names = [f"{prefix}-{index}" for index in range(count)]
    return [pod(name) for name in names], dict.fromkeys(names, load)
