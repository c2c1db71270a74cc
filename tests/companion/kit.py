"""A leader that looks at one policy again and again, without a cluster."""

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from adapter.companion import changes, companion
from adapter.companion.changes import Change, Told
from adapter.companion.state import ActionResult, Context, State, Write, WrittenStatus
from adapter.load.pods import Pod
from adapter.load.quantity import NANO
from adapter.load.samples import Samples
from adapter.load.spec import Bounds, Policy, Target
from adapter.policy import hpa as hpas
from adapter.settings import CompanionSettings
from adapter.settings.companion import NotificationRoute, Notifications
from adapter.snapshot import Key, PolicyView
from tests.load.kit import NOW, TARGET, assess_and_decide, cpu, policy, same, scale, usage

KEY = Key("shop", "web")
RULE = policy(cpu("1200m", "400m"), uid="policy-uid", generation=1)
ROUTE = NotificationRoute(name="oncall", urls=("json://localhost",), default=True, namespaces=("*",))
NOTIFYING = CompanionSettings(notifications=Notifications(routes=(ROUTE,)))
"""Settings with somebody who listens."""
DESIRED = hpas.HpaMetric(
    kind="Object", name="desired_replicas", target="AverageValue", aim=NANO,
    described=hpas.CrossVersionReference("effective-load.io/v1alpha1", "WatermarkPolicy", "web"),
)  # fmt: skip
"""The metric of an HPA that follows the policy."""
FREE = hpas.ScalingRules(
    tolerance=Fraction(0), stabilization=0, select="Max", policies=(hpas.ScalingPolicy("Percent", 900, 1),)
)


def hpa(up: hpas.ScalingRules = FREE, *, bounds: Bounds | None = None, **changes: Any) -> hpas.Hpa:
    """An HPA that follows the policy at once."""
    given = {"bounds": bounds or Bounds(minimum=1, maximum=100), "metrics": (DESIRED,), "scale_up": up}
    given |= {"target": hpas.CrossVersionReference("apps/v1", "Deployment", "web"), "has_behavior": bool(up.policies)}
    return hpas.Hpa(namespace="shop", name="web", **(given | {"scaling_active": hpas.ScalingActive("True")} | changes))


def context(
    load: str | None = "800m",
    *,
    pods: int | list[Pod] = 4,
    current: int | None = None,
    rule: Policy = RULE,
    now: float = NOW,
    bounds: Bounds | None = None,
    target: Target | None = TARGET,
    settings: CompanionSettings | None = None,
    samples: Samples | None = None,
    memory: Any = None,
    listed: Any = None,
    scale_path: str = "",
    **changes: Any,
) -> Context:
    """Pods of the same load, inside the band unless told otherwise; load None: no pod has a sample."""
    those = same(pods, None)[0] if isinstance(pods, int) else pods
    limits = bounds or Bounds(minimum=1, maximum=100)
    replicas = len(those) if current is None else current
    heard = samples or usage({pod.name: load for pod in those}, at=now - 10)
    assessment, decision = assess_and_decide(
        rule, those, heard, current=replicas, bounds=limits, target=target, now=now, memory=memory, listed=listed
    )
    view = PolicyView(
        policy=rule, target=target, scale_path=scale_path, scale=scale(replicas), bounds=limits, assessment=assessment
    )
    seen = {"key": KEY, "now": now, "view": view, "decision": decision, "hpa": None, "state": State()}
    return Context(**(seen | {"settings": settings or NOTIFYING} | changes))


def judged(case: Context) -> Context:
    """The same with its conditions."""
    return replace(case, conditions=companion.conditions(case))


class Leader:
    """Looks, plans and acts; every write succeeds unless `outcome` says otherwise."""

    def __init__(self, status: dict[str, Any] | None = None, at: float = NOW) -> None:
        self.state = State().having(WrittenStatus(status=status or {}, at=at if status else None))
        self.outcome: ActionResult | None = ActionResult.DONE

    def look(self, case: Context) -> list[Write]:
        """What is written after a look."""
        seen = judged(replace(case, state=self.state))
        self.state = changes.observe(seen)
        seen = replace(seen, state=self.state)
        actions = [*companion.writes(seen, urgent=True), *companion.writes(seen, urgent=False)]
        for action in actions:
            if self.outcome is not None:
                self.state = self.state.tried(action, self.outcome, case.now)
        return actions

    def written(self, case: Context) -> list[dict[str, Any]]:
        """The Events that are written after a look."""
        return [write.body for write in writes(self.look(case), "WriteEvent")]

    def events(self, case: Context) -> list[str]:
        """The same as text: type, reason and note."""
        return [told(body) for body in self.written(case)]

    def notices(self, case: Context) -> list[Change]:
        """What people are told after a look."""
        self.look(case)
        return [change for change in self.state.of(Told).news if change.topic is not None]

    def status(self, case: Context) -> dict[str, Any]:
        """The status that is written after a look."""
        (write,) = writes(self.look(case), "WriteStatus")
        return status_in(write)


def writes(actions: Iterable[Write], kind: str) -> list[Write]:
    """The writes of this kind."""
    return [action for action in actions if action.kind == kind]


def status_in(write: Write) -> dict[str, Any]:
    """The status that is written."""
    return dict(write.body[-1]["value"])


def told(body: dict[str, Any]) -> str:
    return f"{body['type']} {body['reason']}: {body['note']}"
