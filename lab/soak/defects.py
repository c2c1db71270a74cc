"""Defects that are planted in the adapter, one for each invariant, and the steps that must show them.

`python -m lab.soak --planted` plants one after the other; each has to be found as what it is.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from lab.soak.plan import Group, Step


@dataclass(frozen=True)
class Defect:
    """A defect, the invariant that it breaks, and the steps under which it shows within seconds."""

    name: str
    what: str
    invariant: str
    plant: Callable[[], None]
    steps: tuple[Step, ...]
    seconds: float = 12.0

    @property
    def group(self) -> Group:
        return Group(0, self.steps, self.seconds)


def _one_more() -> None:
    """Every decision asks for one pod more than its document."""
    from adapter.apiserver.provider import MetricsProvider

    decide = MetricsProvider._decision

    async def more(self: Any, view: Any) -> Any:
        live = await decide(self, view)
        wanted = live.decision.desired
        changed = live.decision if wanted is None else replace(live.decision, desired=wanted + 1)
        return live._replace(decision=changed)

    MetricsProvider._decision = more  # type: ignore[method-assign]


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


def _exaggerates() -> None:
    """Every rise asks for eight pods more."""
    from adapter.apiserver.provider import MetricsProvider

    decide = MetricsProvider._decision

    async def exaggerated(self: Any, view: Any) -> Any:
        live = await decide(self, view)
        wanted = live.decision.desired
        if wanted is None or wanted <= live.decision.current:
            return live
        more = replace(live.decision, desired=wanted + 8, served=(wanted + 8) * 1000)
        return live._replace(decision=more)

    MetricsProvider._decision = exaggerated  # type: ignore[method-assign]


def _forgets_departed() -> None:
    """The load of pods that have left counts for nobody."""
    from adapter.load import metric
    from adapter.load.remembering import NO_DEPARTURES

    vars(metric)["departed_load"] = lambda *_: NO_DEPARTURES


def _slow() -> None:
    """Every tenth answer takes 4 s."""
    from adapter.apiserver.handler import Handler

    answer, count = Handler.__call__, [0]

    async def late(self: Any, request: Any) -> Any:
        count[0] += 1
        if not count[0] % 10:
            await asyncio.sleep(4)
        return await answer(self, request)

    Handler.__call__ = late  # type: ignore[method-assign]


def _tells_to_wait() -> None:
    """Errors have the header Retry-After."""
    from adapter.apiserver.handler import Handler

    answer = Handler.__call__

    async def waiting(self: Any, request: Any) -> Any:
        made = await answer(self, request)
        if made.status >= 500:
            made.headers["Retry-After"] = "1"
        return made

    Handler.__call__ = waiting  # type: ignore[method-assign]


def _leaks() -> None:
    """Every answer keeps half a mebibyte."""
    from adapter.apiserver.handler import Handler

    answer, kept = Handler.__call__, []

    async def leaking(self: Any, request: Any) -> Any:
        kept.append(b"x" * 524_288)
        return await answer(self, request)

    Handler.__call__ = leaking  # type: ignore[method-assign]


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


def _load(service: str, x: float) -> Step:
    return Step("load", service, {"x": x})


def _fault(name: str) -> Step:
    return Step("fault", "", {"name": name})


REST = Step("rest")
_RISING = ("load-band", "roster-ratio")
DEFECTS = (
    Defect(
        "one-more", "decisions ask for one more than their documents", "the answer is the model's", _one_more, (REST,)
    ),
    Defect(
        "other-value",
        "the answer is one more than the decision",
        "the controller sets the answer",
        _other_value,
        (REST,),
    ),
    Defect(
        "believes-zeros",
        "half of the samples are 0 and count",
        "no count shrinks below its need",
        _believes_zeros,
        (_fault("prometheus-zeros"),),
    ),
    Defect(
        "exaggerates",
        "every rise asks for eight pods more",
        "no count rises beyond its load",
        _exaggerates,
        # From few pods, whatever the defect before has left; then a rise that ends below the HPA's maximum.
        (
            *(_load(name, 1.2) for name in _RISING),
            *[REST] * 5,
            *(_load(name, 3.0) for name in _RISING),
            *[REST] * 2,
        ),
        48.0,
    ),
    Defect(
        "forgets-departed",
        "the load of pods that left counts for nobody",
        "the same samples shrink once",
        _forgets_departed,
        (Step("reload", "", {"seconds": 8}), _load("roster-ratio", 3.0), _load("load-band", 2.2), REST),
        32.0,
    ),
    Defect("slow", "every tenth answer takes 4 s", "answers in time", _slow, (REST,)),
    Defect(
        "tells-to-wait",
        "errors have Retry-After",
        "answers in time",
        _tells_to_wait,
        (_fault("prometheus-empty"),),
        15.0,
    ),
    Defect("leaks", "every answer keeps memory", "the process does not grow", _leaks, (REST, REST), 16.0),
    Defect(
        "one-for-all",
        "a query that fails takes metrics.k8s.io with it",
        "a fault of one input is an error of those who use it",
        _one_for_all,
        (_fault("prometheus-gone"),),
    ),
)


def plant(name: str) -> None:
    """Changes the adapter of this process."""
    next(one for one in DEFECTS if one.name == name).plant()
