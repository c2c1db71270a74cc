"""Defects that are planted in the adapter, one for each invariant, and the steps that must show them.

`python -m lab.soak --planted` plants one after the other; each has to be found as what it is.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from lab.soak.plan import Group, Invariant, Step


@dataclass(frozen=True)
class Defect:
    """A defect, the invariant that it breaks, and the steps under which it shows within seconds."""

    name: str
    what: str
    invariant: Invariant
    plant: Callable[[], None]
    steps: tuple[Step, ...]
    seconds: float = 12.0

    @property
    def group(self) -> Group:
        return Group(0, self.steps, self.seconds)


def _deciding(change: Callable[[Any], Any]) -> None:
    """Every decision that asks for a count is changed."""
    from adapter.apiserver.provider import MetricsProvider

    decide = MetricsProvider._decision

    async def changed(self: Any, view: Any) -> Any:
        live = await decide(self, view)
        return live if live.decision.desired is None else live._replace(decision=change(live.decision))

    MetricsProvider._decision = changed  # type: ignore[method-assign]


def _one_more() -> None:
    """Every decision asks for one pod more than its document."""
    _deciding(lambda decision: replace(decision, desired=decision.desired + 1))


def _exaggerates() -> None:
    """Every rise asks for eight pods more."""

    def exaggerated(decision: Any) -> Any:
        wanted = decision.desired + 8
        return replace(decision, desired=wanted, served=wanted * 1000) if wanted - 8 > decision.current else decision

    _deciding(exaggerated)


def _other_value() -> None:
    """The value in the answer is one more than the decision."""
    from adapter.apiserver import provider

    desired = vars(provider)["desired_replicas"]

    def more(view: Any, decision: Any, **named: Any) -> Any:
        return desired(view, replace(decision, served=decision.served and decision.served + 1000), **named)

    vars(provider)["desired_replicas"] = more


def _believes_zeros() -> None:
    """A sample that fell to exactly 0 counts at once."""
    from adapter.load.pod_samples import MetricReader

    begin = MetricReader.__init__

    def believing(self: Any, *given: Any, **named: Any) -> None:
        begin(self, *given, **{**named, "believes_zero": True})

    MetricReader.__init__ = believing  # type: ignore[method-assign]


def _forgets_departed() -> None:
    """The load of pods that have left counts for nobody."""
    from adapter.load.remembering import NO_DEPARTURES

    from adapter.load import metric

    vars(metric)["departed_load"] = lambda *_: NO_DEPARTURES


def _answering(change: Callable[[int, Any], Awaitable[None]]) -> None:
    """Every answer is changed before it is sent; `change` is given its number and the answer."""
    from adapter.apiserver.handler import Handler

    answer, numbers = Handler.__call__, itertools.count(1)

    async def changed(self: Any, request: Any) -> Any:
        made = await answer(self, request)
        await change(next(numbers), made)
        return made

    Handler.__call__ = changed  # type: ignore[method-assign]


def _slow() -> None:
    """Every tenth answer takes 4 s."""

    async def late(number: int, _answer: Any) -> None:
        await asyncio.sleep(0 if number % 10 else 4)

    _answering(late)


def _tells_to_wait() -> None:
    """Errors have the header Retry-After."""

    async def waiting(_number: int, answer: Any) -> None:
        if answer.status >= 500:
            answer.headers["Retry-After"] = "1"

    _answering(waiting)


def _leaks() -> None:
    """Every answer keeps half a mebibyte."""
    kept = []

    async def leaking(_number: int, _answer: Any) -> None:
        kept.append(b"x" * 524_288)

    _answering(leaking)


def _one_for_all() -> None:
    """A query that fails takes the samples of metrics.k8s.io with it."""
    from adapter.evaluation.evaluator import Evaluator
    from adapter.load.samples import ResourceSamples

    samples, failing = Evaluator._samples, [False]

    def shared(self: Any, link: Any) -> Any:
        made = samples(self, link)
        if made.queries:
            failing[0] = any(one.error for one in made.queries.values())
        return replace(made, resources=ResourceSamples(error="a query fails")) if failing[0] else made

    Evaluator._samples = shared  # type: ignore[method-assign]


def _loads(x: float, *services: str) -> tuple[Step, ...]:
    return tuple(Step("load", service, {"x": x}) for service in services)


def _fault(name: str) -> Step:
    return Step("fault", "", {"name": name})


REST = Step("rest")
_RISING = ("load-band", "roster-ratio")
DEFECTS = (
    Defect("one-more", "decisions ask for one more than their documents", Invariant.ANSWER, _one_more, (REST,)),
    Defect("other-value", "the answer is one more than the decision", Invariant.SETS, _other_value, (REST,)),
    Defect(
        "believes-zeros",
        "half of the samples are 0 and count",
        Invariant.SHRINKS,
        _believes_zeros,
        (_fault("prometheus-zeros"),),
    ),
    Defect(
        "exaggerates",
        "every rise asks for eight pods more",
        Invariant.RISES,
        _exaggerates,
        # From few pods, whatever the defect before has left; then a rise that ends below the HPA's maximum.
        (*_loads(1.2, *_RISING), *[REST] * 5, *_loads(3.0, *_RISING), *[REST] * 2),
        48.0,
    ),
    Defect(
        "forgets-departed",
        "the load of pods that left counts for nobody",
        Invariant.ONCE,
        _forgets_departed,
        (Step("reload", "", {"seconds": 8}), *_loads(3.0, "roster-ratio"), *_loads(2.2, "load-band"), REST),
        32.0,
    ),
    Defect("slow", "every tenth answer takes 4 s", Invariant.IN_TIME, _slow, (REST,)),
    Defect(
        "tells-to-wait",
        "errors have Retry-After",
        Invariant.IN_TIME,
        _tells_to_wait,
        (_fault("prometheus-empty"),),
        15.0,
    ),
    Defect("leaks", "every answer keeps memory", Invariant.GROWS, _leaks, (REST, REST), 16.0),
    Defect(
        "one-for-all",
        "a query that fails takes metrics.k8s.io with it",
        Invariant.OTHERS,
        _one_for_all,
        (_fault("prometheus-gone"),),
    ),
)


def plant(name: str) -> None:
    """Changes the adapter of this process."""
    next(one for one in DEFECTS if one.name == name).plant()
