"""A leader that looks at one policy again and again, without a cluster."""

from dataclasses import replace
from typing import Any

from adapter.companion import observe, plan
from adapter.companion.context import Context, State, Written
from adapter.companion.state import Notice
from adapter.companion.writes.actions import Action, ActionResult, Notify, WriteEvent, WriteStatus
from adapter.load.pods import Pod
from adapter.load.samples import Samples
from adapter.load.spec import Bounds, Policy, Target
from adapter.settings import CompanionSettings
from adapter.settings.notifications import NotificationRoute, Notifications
from adapter.snapshot import Key, PolicyView
from tests.load.world import NOW, TARGET, cpu, policy, same, scale, see, usage

KEY = Key("shop", "web")
RULE = policy(cpu("1200m", "400m"), uid="policy-uid", generation=1)
ROUTE = NotificationRoute(name="oncall", urls=("json://localhost",), default=True, namespaces=("*",))
HEARD = CompanionSettings(notifications=Notifications(routes=(ROUTE,)))
"""Settings with somebody who listens."""


def situation(
    load: str | None = "800m",
    *,
    pods: int | list[Pod] = 4,
    current: int | None = None,
    rule: Policy = RULE,
    now: float = NOW,
    bounds: Bounds | None = None,
    target: Target = TARGET,
    settings: CompanionSettings | None = None,
    samples: Samples | None = None,
    memory: Any = None,
    listed: Any = None,
    **changes: Any,
) -> Context:
    """Pods of the same load, inside the band unless told otherwise; load None: no pod has a sample."""
    those = same(pods, None)[0] if isinstance(pods, int) else pods
    limits = bounds or Bounds(minimum=1, maximum=100)
    replicas = len(those) if current is None else current
    heard = samples or usage({pod.name: load for pod in those}, at=now - 10)
    assessment, decision = see(
        rule, those, heard, current=replicas, bounds=limits, target=target, now=now, memory=memory, listed=listed
    )
    view = PolicyView(policy=rule, target=target, scale=scale(replicas), bounds=limits, assessment=assessment)
    base = Context(
        key=KEY,
        now=now,
        view=view,
        decision=decision,
        hpa=None,
        settings=settings or HEARD,
        past=State(),
    )
    return replace(base, **changes)


class Leader:
    """Looks, plans and acts; every write succeeds unless `outcome` says otherwise."""

    def __init__(self, status: dict[str, Any] | None = None, at: float = NOW) -> None:
        self.past = State(written=Written(status=status or {}, at=at if status else None))
        self.outcome = ActionResult.DONE

    def look(self, case: Context) -> list[Action]:
        """What is done after a look."""
        self.past = observe.observe(replace(case, past=self.past))
        seen = replace(case, past=self.past)
        actions = [*plan.urgent(seen), *plan.steady(seen)]
        for action in actions:
            if self.outcome is ActionResult.DONE:
                self.past = plan.after(self.past, action, case.now)
            else:
                self.past = plan.missed(self.past, action, self.outcome, case.now)
        return actions

    def events(self, case: Context) -> list[str]:
        """The Events that are written after a look: type, reason, note, and the count where it is repeated."""
        return [told(action) for action in self.look(case) if isinstance(action, WriteEvent)]

    def notices(self, case: Context) -> list[Notice]:
        """What people are told after a look."""
        return [notice for action in self.look(case) if isinstance(action, Notify) for notice in action.notices]

    def status(self, case: Context) -> dict[str, Any]:
        """The status that is written after a look."""
        (found,) = [action.status for action in self.look(case) if isinstance(action, WriteStatus)]
        return dict(found)


def told(action: WriteEvent) -> str:
    kind = "Warning" if action.subject.warning else "Normal"
    count = f" x{action.series.count}" if action.series.count > 1 else ""
    return f"{kind} {action.subject.reason}: {action.series.note}{count}"


def topics(notices: list[Notice]) -> list[str]:
    return [notice.topic.value for notice in notices]
