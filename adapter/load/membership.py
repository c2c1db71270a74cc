"""Who serves: the state of each pod of a target, and the doubt that keeps a registry's lie from shrinking a service.

Of a pod that might serve, either nothing says otherwise (in), or evidence does (out), or the evidence does not suffice
(doubtful). It is *explicit* where the registry itself says that the pod takes no traffic; absence from a roster is
evidence only when it is confirmed, recent and not too common.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from adapter.load.matching import Records, records
from adapter.load.memory import Memory, PodMemory
from adapter.load.pods import FINISHED_PHASES, Pod, PodState
from adapter.load.roster import Instance, Roster
from adapter.load.spec import Policy, Registry

NEVER_READY_SECONDS = 30.0
"""A pod that turned not Ready so soon after its start never was Ready (the HPA's own initial readiness delay)."""
CONFIRMING_ROSTERS = 3
ABSENCE_TRUSTED_SECONDS = 300.0
EVIDENCE_TRUSTED_SECONDS = 1800.0
NEWLY_OUT_SECONDS = 60.0
NEWLY_OUT_AT_LEAST = 2
NEWLY_OUT_PERCENT = 30
EMPTY_CONFIRMED_SECONDS = 120.0

KUBERNETES = "kubernetes"
"""The registry that needs no service name: readiness gates, EndpointSlices and the annotation."""
_STARTING = "STARTING"
"""Eureka's word for a registration that takes no traffic yet."""
_NOT_GUARDED = {PodState.STARTING, PodState.FINISHED, PodState.TERMINATING}
_OUT_STATUSES = {"OUT_OF_SERVICE", "DOWN", "MAINTENANCE", "CRITICAL"}
_NOTHING = PodMemory()


@dataclass(frozen=True, slots=True)
class Standing:
    """A pod's state, why, and what that rests on.

    `by_absence`: it is out because the registry no longer lists it. `guarded`: the evidence says out, and a guard keeps
    it doubtful, since believing it would take out too many pods.
    """

    state: PodState
    reason: str
    evidence: str = ""
    by_absence: bool = False
    guarded: bool = False


_READY = Standing(PodState.SERVING, "Ready")


@dataclass(frozen=True, slots=True)
class Membership:
    """The standing of every pod, by UID. `set_aside`: the registry never listed one, so it is not asked any more."""

    standings: Mapping[str, Standing]
    set_aside: bool = False


def uses_registry(policy: Policy) -> Registry | None:
    """The service registry to ask, None where Kubernetes' own facts are the registry."""
    return policy.registry if policy.registry is not None and policy.registry.name != KUBERNETES else None


def classify(
    policy: Policy, pods: Sequence[Pod], memory: Memory, now: float, found: Records | None = None
) -> Membership:
    """The state of each pod, from facts about the pod and a memory that already knows the latest roster.

    `found`: the registrations of each pod in the latest valid roster, where they have been looked up already.
    """
    registry = uses_registry(policy)
    if found is None:
        found = records(pods, memory.last_valid, registry) if registry and memory.last_valid else {}
    view = _RegistryView(registry, memory, found, now) if registry else None
    standings = {pod.uid: _standing(pod, view) for pod in pods}
    if view is not None:
        _guard_absence(policy, view, pods, standings)
    _believe_while_some_stay(standings)
    return Membership(
        standings,
        set_aside=view is not None and view.set_aside,
    )


def turning_points(policy: Policy, pods: Iterable[Pod], memory: Memory, found: Records) -> Iterator[float]:
    """Every time at which `classify` may begin to answer otherwise though pods and memory stay as they are."""
    registry = uses_registry(policy)
    if registry is None:
        return
    if memory.last_valid is not None:
        yield memory.last_valid.at + ABSENCE_TRUSTED_SECONDS
        yield memory.last_valid.at + EVIDENCE_TRUSTED_SECONDS
    if memory.hold_until is not None:
        yield memory.hold_until
    yield from (_ready_at(pod) + registry.grace for pod in pods)
    yield from (known.out_since + NEWLY_OUT_SECONDS for known in memory.pods.values() if known.out_since is not None)
    for instances in found.values():
        yield from (one.doubtful_until for one in instances if one.doubtful_until is not None)


def trouble(policy: Policy, memory: Memory, now: float) -> str:
    """What is wrong with the policy's registry, in a sentence; empty where nothing is."""
    registry, roster = uses_registry(policy), memory.last_valid
    if registry is None:
        return ""
    name, service = registry.name, registry.service
    if roster is None:
        return f"registry {name} has not given a valid answer for {service!r} yet"
    if _set_aside(memory, registry):
        return f"registry {name} never listed a pod of this target: check the service name {service!r}"
    if now - roster.at > ABSENCE_TRUSTED_SECONDS:
        return f"registry {name} gave its last valid answer {now - roster.at:.0f} s ago"
    return ""


def _standing(pod: Pod, view: "_RegistryView | None") -> Standing:
    gone = _gone(pod)
    if gone is not None:
        return gone
    if not pod.is_ready or pod.started_at is None:
        return _not_ready(pod)
    if pod.pulled_out_annotation:
        return Standing(PodState.PULLED_OUT, "pulled out by hand", "annotation effective-load.io/pulled-out")
    return view.standing(pod) if view is not None else _by_endpoints(pod)


def _by_endpoints(pod: Pod) -> Standing:
    if pod.endpoint_serving is False:
        return Standing(PodState.PULLED_OUT, "Ready, but its endpoints do not serve", "EndpointSlice conditions")
    return _READY


def _gone(pod: Pod) -> Standing | None:
    if pod.deleting:
        return Standing(PodState.TERMINATING, "it is being deleted")
    if pod.phase in FINISHED_PHASES:
        return Standing(PodState.FINISHED, f"its phase is {pod.phase}")
    return None


def _not_ready(pod: Pod) -> Standing:
    if any(container.crash_looping for container in pod.containers):
        return Standing(PodState.UNREADY, "a container crash-loops")
    if pod.phase == "Pending" or pod.started_at is None or pod.ready is None:
        return Standing(PodState.STARTING, "it has not started yet")
    if _never_was_ready(pod.ready.since, pod.started_at, pod.created_at):
        return Standing(PodState.STARTING, "it has not been Ready yet")
    shut = [gate for gate, is_open in pod.gates.items() if not is_open]
    if shut and pod.containers_ready:
        return Standing(PodState.PULLED_OUT, "a readiness gate is shut", f"readiness gate {shut[0]}")
    return Standing(PodState.UNREADY, "not Ready any more")


def _ready_at(pod: Pod) -> float:
    return pod.ready.since if pod.ready is not None and pod.ready.since is not None else pod.created_at


def _never_was_ready(since: float | None, started_at: float, created_at: float) -> bool:
    return since is None or since <= created_at or since - started_at <= NEVER_READY_SECONDS


def _guard_absence(policy: Policy, view: "_RegistryView", pods: Sequence[Pod], standings: dict[str, Standing]) -> None:
    """Let absence turn out only so many pods at all, and only so many of them at once; the rest stays doubtful."""
    ready = [p for p in pods if p.is_ready and standings[p.uid].state not in _NOT_GUARDED]
    absent = [p for p in ready if standings[p.uid].by_absence]
    already = {p.uid for p in absent if view.remembered(p).by_absence}
    budget = math.floor(len(ready) * policy.pulled_out.max_percent / 100)
    fresh_budget = max(NEWLY_OUT_AT_LEAST, len(ready) * NEWLY_OUT_PERCENT // 100)
    fresh_budget -= sum(1 for p in absent if p.uid in already and view.turned_out_lately(p))
    for pod in sorted(absent, key=lambda p: (p.uid not in already, view.remembered(p).absent_since or 0.0, p.name)):
        known = pod.uid in already
        if budget > 0 and (known or fresh_budget > 0):
            budget -= 1
            fresh_budget -= not known
        else:
            reason = "too many pods vanished from the registry at once"
            standings[pod.uid] = Standing(PodState.DOUBTFUL, reason, "guarded absence", guarded=True)


def _believe_while_some_stay(standings: dict[str, Standing]) -> None:
    """Doubt all explicit evidence of being out where believing it would leave nobody; absence has guards of its own."""
    states = {standing.state for standing in standings.values()}
    if PodState.PULLED_OUT not in states or states & {PodState.SERVING, PodState.DOUBTFUL}:
        return
    for uid, standing in standings.items():
        if standing.state is PodState.PULLED_OUT and not standing.by_absence:
            reason = f"every pod would be out ({standing.reason})"
            standings[uid] = Standing(PodState.DOUBTFUL, reason, standing.evidence, guarded=True)


class _RegistryView:
    """The latest valid roster held against the pods of one target, with what is remembered of them."""

    def __init__(self, registry: Registry, memory: Memory, found: Records, now: float) -> None:
        self._registry = registry
        self._memory = memory
        self._now = now
        self._roster: Roster | None = memory.last_valid
        self._records = found
        self._registered_here = Standing(PodState.SERVING, "registered", f"registry {registry.name}")
        self._age = now - self._roster.at if self._roster else math.inf
        self.set_aside = _set_aside(memory, registry)

    def remembered(self, pod: Pod) -> PodMemory:
        return self._memory.pods.get(pod.uid, _NOTHING)

    def turned_out_lately(self, pod: Pod) -> bool:
        since = self.remembered(pod).out_since
        return since is not None and self._now - since < NEWLY_OUT_SECONDS

    def standing(self, pod: Pod) -> Standing:
        """The standing of a Ready pod, by this registry."""
        name = self._registry.name
        if self._roster is None:
            return Standing(PodState.DOUBTFUL, f"registry {name} has not given a valid answer yet")
        if self.set_aside:
            return Standing(PodState.SERVING, f"registry {name} is set aside: it never listed a pod of this target")
        found = self._records.get(pod.uid, ())
        if found:
            return self._registered(pod, found)
        if not self._roster.absence_counts:
            return Standing(PodState.SERVING, f"Ready, and registry {name} says nothing of it")
        if self.remembered(pod).seen is None:
            return self._never_registered(pod, self._roster)
        return self._absent(pod, self._roster)

    def _registered(self, pod: Pod, found: tuple[Instance, ...]) -> Standing:
        word = out_word_of(found, self._registry, protected=self._roster is not None and self._roster.protected)
        if not word:
            starting = all(instance.status.upper() == _STARTING for instance in found)
            if starting and self._now - _ready_at(pod) < self._registry.grace:
                return Standing(PodState.STARTING, "Ready, but registered as STARTING", self._registered_here.evidence)
            return self._registered_here
        evidence = f"registry {self._registry.name}: {word}"
        if self._age > EVIDENCE_TRUSTED_SECONDS:
            return Standing(PodState.DOUBTFUL, "out, by an answer older than 30 min", evidence)
        if not self._suffices(found):
            return Standing(PodState.DOUBTFUL, f"the registry says {word}, but has just been restarted", evidence)
        return Standing(PodState.PULLED_OUT, f"the registry says {word}", evidence)

    def _suffices(self, found: tuple[Instance, ...]) -> bool:
        """Whether registrations that say out are out without those whose word is doubtful for now."""
        sure = tuple(one for one in found if one.doubtful_until is None or one.doubtful_until <= self._now)
        if len(sure) == len(found):
            return True
        protected = self._roster is not None and self._roster.protected
        return self._registry.any_out and bool(out_word_of(sure, self._registry, protected=protected))

    def _never_registered(self, pod: Pod, roster: Roster) -> Standing:
        ready_at = _ready_at(pod)
        if roster.at < ready_at:
            return Standing(PodState.DOUBTFUL, "Ready only after the registry's last answer")
        if self._now - ready_at < self._registry.grace:
            return Standing(PodState.STARTING, "Ready, but not registered yet")
        if self._memory.ever_in_roster:
            return Standing(PodState.DOUBTFUL, "never registered, though other pods are", "absence")
        return Standing(PodState.DOUBTFUL, "no pod of this target was ever registered", "absence")

    def _absent(self, pod: Pod, roster: Roster) -> Standing:
        memory = self.remembered(pod)
        since = memory.absent_since if memory.absent_since is not None else roster.at
        doubt = self._doubt_of_absence(memory, since, roster, _ready_at(pod))
        if doubt:
            return Standing(PodState.DOUBTFUL, f"no longer registered, {doubt}", "absence")
        return Standing(PodState.PULLED_OUT, "no longer registered", "confirmed absence", by_absence=True)

    def _doubt_of_absence(self, memory: PodMemory, since: float, roster: Roster, ready_at: float) -> str:
        """Why absence is no evidence yet, empty where it is."""
        if roster.at < ready_at:
            return "by an answer from before it was Ready"
        if self._age > ABSENCE_TRUSTED_SECONDS:
            return "by an answer older than 5 min"
        if memory.absent_count < CONFIRMING_ROSTERS or roster.at - since < self._registry.absent:
            return "not confirmed yet"
        if self._memory.hold_until is not None and self._now < self._memory.hold_until:
            return "while the registry recovers"
        if not roster.instances and not self._empty_confirmed(roster):
            return "in an empty answer"
        return ""

    def _empty_confirmed(self, roster: Roster) -> bool:
        since = self._memory.empty_since
        return roster.alive and since is not None and roster.at - since >= EMPTY_CONFIRMED_SECONDS


def out_word_of(found: Iterable[Instance], registry: Registry, *, protected: bool) -> str:
    """Why a pod with these registrations takes no traffic; empty where it does.

    `protected`: the registry calls unhealthy instances healthy just now, so health says nothing.
    """
    health_counts = registry.unhealthy_is_out and not protected
    words = [out_word(one) or ("unhealthy" if health_counts and not one.healthy else "") for one in found]
    out = any(words) if registry.any_out else all(words)
    return next(word for word in words if word) if out else ""


def out_word(instance: Instance) -> str:
    """Why a registration takes no traffic by its registry's own word, its health aside; empty where it does."""
    if not instance.enabled:
        return "disabled"
    if instance.isolated:
        return "isolated"
    if instance.weight is not None and instance.weight <= 0:
        return "weight 0"
    return instance.status if instance.status.upper() in _OUT_STATUSES else ""


def _set_aside(memory: Memory, registry: Registry) -> bool:
    """Whether enough answers over enough time named no pod of the target: then the service name matches nothing."""
    if memory.ever_in_roster or memory.last_valid is None or memory.rosters_since is None:
        return False
    if not memory.last_valid.absence_counts:
        return False
    return memory.rosters >= CONFIRMING_ROSTERS and memory.last_valid.at - memory.rosters_since >= registry.grace
