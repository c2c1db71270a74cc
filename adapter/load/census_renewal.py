"""The current census: the last one, the last one with a few pods classified anew, or one of all pods.

Nearly every change concerns a few pods of a target: the state of each other one follows from the same objects as
before. A new answer of the registry that lists the same registrations concerns those pods that it does not list.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from adapter.load.assessment import AssessmentInputs, PodAssessment
from adapter.load.census import (
    CLOSE_SECONDS,
    Census,
    census_of,
    classified,
    is_matched_alike,
    lists_the_same,
    take_census,
)
from adapter.load.departures import after_departures, after_leaving, after_pull_outs
from adapter.load.matching import Registrations, registrations_in_steps
from adapter.load.membership import (
    ABSENCE_TRUSTED_SECONDS,
    Classification,
    classify_each,
    decides_otherwise,
    service_registry,
    turning_points_of_pods,
)
from adapter.load.memory import Memory, PodMemory
from adapter.load.memory_updates import (
    after_roster_in_steps,
    after_roster_of_some,
    after_some_states,
    after_states_in_steps,
    is_new_roster,
    is_registered,
    without_future_times,
)
from adapter.load.pods import FINISHED_PHASES, Pod, PodState
from adapter.load.roster import Roster
from adapter.load.steps import AT_ONCE, Steps, collected, selected

_NO_MEMORY = PodMemory()
_SHARE = 8
"""If more than one in so many pods changed, all are classified."""


def current_census(inputs: AssessmentInputs) -> Steps[tuple[Memory, Census]]:
    """The memory after this roster and these pods, and their census; the previous ones where nothing has changed."""
    policy, pods, roster, now = inputs.policy, inputs.pods, inputs.roster, inputs.now
    memory = without_future_times(inputs.memory, now)
    previous = memory.census if isinstance(memory.census, Census) else None
    new = roster if is_new_roster(roster, memory, policy, now) else None
    if previous is not None and new is None and previous.holds(policy, pods, memory, now):
        return memory, previous
    yield
    if previous is not None and _may_renew(previous, inputs, memory, new):
        renewed = yield from _renewed(previous, inputs, memory, new)
        if renewed is not None:
            return renewed
    return (yield from _of_all_pods(inputs, memory, previous, new))


def _of_all_pods(
    inputs: AssessmentInputs, memory: Memory, previous: Census | None, new: Roster | None
) -> Steps[tuple[Memory, Census]]:
    policy, pods, now = inputs.policy, inputs.pods, inputs.now
    latest, registry = new or memory.last_valid, service_registry(policy)
    registered = previous.registrations_in(latest, policy, pods) if previous is not None else None
    if registered is None:
        registered = {}
        if registry is not None and latest is not None:
            registered = yield from registrations_in_steps(pods, latest, registry)
    memory = yield from after_departures(memory, pods, now)
    memory = yield from after_roster_in_steps(memory, policy, pods, inputs.roster, now, registered)
    census = yield from take_census(policy, pods, memory, registered, now)
    if previous is not None and previous.policy == policy:
        census.last_rows = dict(previous.rows)
    memory = yield from after_pull_outs(memory, census.states, now)
    memory = yield from after_states_in_steps(memory, census.states, now)
    known, before = memory.pods, census.remembered
    moved = () if known is before else (yield from selected(lambda uid: _moved(before, known, uid), known))
    _settle(census, known, moved)
    if registry is not None:
        unregistered = yield from selected(lambda uid: _is_unregistered(uid, registered, known), known)
        census.unregistered = frozenset(unregistered)
    return replace(memory, census=census), census


def _moved(before: Mapping[str, PodMemory], after: Mapping[str, PodMemory], uid: str) -> bool:
    """Whether the memory of a pod changed in a way that may change its state."""
    one, other = before.get(uid, _NO_MEMORY), after.get(uid, _NO_MEMORY)
    return one is not other and decides_otherwise(one, other)


def _settle(census: Census, known: Mapping[str, PodMemory], moved: Sequence[str]) -> None:
    """Note the memory of the pods after a census; if it changes no state, the census holds for it too."""
    census.settled = known
    if moved:
        census.moved = frozenset(moved)
    else:
        census.remembered = known


def _is_unregistered(uid: str, registered: Registrations, known: Mapping[str, PodMemory]) -> bool:
    """Whether a further roster may change the pod, though it lists the same."""
    return uid not in registered or not is_registered(known.get(uid))


def _may_renew(previous: Census, inputs: AssessmentInputs, memory: Memory, new: Roster | None) -> bool:
    """Whether the states of all pods that did not change themselves, and that the roster lists, are as before."""
    now = inputs.now
    if not (previous.at <= now < previous.pods_until and memory.pods is previous.settled):
        return False
    if previous.is_guarded or memory.last_valid is not previous.roster or not previous.is_of(inputs.policy):
        return False
    if new is None:
        return now < previous.until
    last = previous.roster
    return (
        last is not None
        and memory.ever_in_roster
        and previous.at - last.at < ABSENCE_TRUSTED_SECONDS
        and now - new.at < ABSENCE_TRUSTED_SECONDS
        and lists_the_same(new, last)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Difference:
    """How the pods differ from those of the last census.

    `kept` are the pods in their new order, None for those of `anew`, which changed or have to be classified anew.
    `gone` are the earlier pods that are not there any more, as the objects that they were.
    """

    kept: Sequence[PodAssessment | None]
    anew: Sequence[Pod]
    gone: Sequence[Pod]


def _difference(previous: Census, pods: Sequence[Pod], again: Collection[str]) -> Steps[_Difference]:
    """`again`: the UIDs of pods to classify anew although they are the same."""
    kept = dict(zip(map(id, previous.pods), previous.assessed, strict=True))
    yield
    repeated = set()
    if again:
        repeated = set(map(id, (yield from selected(lambda pod: pod.uid in again, previous.pods))))
        for each in repeated:
            del kept[each]
    found = yield from collected(map(kept.get, map(id, pods)))
    anew = [pod for pod, one in zip(pods, found, strict=True) if one is None]
    yield
    gone: Sequence[Pod] = ()
    if len(found) - len(anew) < len(kept) or repeated:
        there = set(map(id, pods))
        yield
        gone = yield from selected(lambda pod: id(pod) not in there, previous.pods)
    return _Difference(kept=found, anew=anew, gone=gone)


def _renewed(
    previous: Census, inputs: AssessmentInputs, memory: Memory, new: Roster | None
) -> Steps[tuple[Memory, Census] | None]:
    """The last census with a few pods classified anew; None where that is not enough."""
    policy, pods, now = inputs.policy, inputs.pods, inputs.now
    again = previous.moved | previous.unregistered if new is not None else previous.moved
    most = max(AT_ONCE, len(pods) // _SHARE)
    if len(again) > most:
        return None
    difference = yield from _difference(previous, pods, again)
    if len(difference.anew) + len(difference.gone) > most or not _are_registered_alike(previous, difference):
        return None
    anew, registered = difference.anew, previous.registrations
    memory = yield from after_leaving(memory, _left(memory, difference), now)
    if new is not None:
        memory = after_roster_of_some(memory, anew, new, now, registered)
    states = yield from classify_each(policy, anew, memory, now, registered)
    if any(one.by_absence for one in states.values()):
        return None  # guards look at all pods
    gone = {pod.uid for pod in difference.gone} - states.keys()
    census = yield from _census(previous, memory, difference, states, gone, now)
    if PodState.PULLED_OUT in census.counts and not {PodState.SERVING, PodState.DOUBTFUL} & census.counts.keys():
        return None
    memory = yield from after_pull_outs(memory, census.states, now, states)
    memory = after_some_states(memory, states, gone, now)
    known, before = memory.pods, census.remembered
    _settle(census, known, [uid for uid in states if _moved(before, known, uid)])
    if service_registry(policy) is not None:
        others = previous.unregistered - states.keys() - gone
        census.unregistered = others.union(uid for uid in states if _is_unregistered(uid, registered, known))
    return replace(memory, census=census), census


def _are_registered_alike(previous: Census, difference: _Difference) -> bool:
    """Whether the known registrations are those of the pods now."""
    if service_registry(previous.policy) is None or previous.roster is None:
        return True
    before = {pod.uid: pod for pod in difference.gone}
    for pod in difference.anew:
        known = before.pop(pod.uid, None)
        if known is not None and not is_matched_alike(pod, known):
            return False
        if known is None and pod.uid not in previous.states:
            return False
    return not before


def _left(memory: Memory, difference: _Difference) -> dict[str, PodMemory]:
    """The pods that served and are gone, terminating or finished."""
    present = {pod.uid for pod in difference.anew if not pod.deleting and pod.phase not in FINISHED_PHASES}
    known = ((pod.uid, memory.pods.get(pod.uid)) for pod in difference.gone if pod.uid not in present)
    return {uid: one for uid, one in known if one is not None and one.served}


def _census(
    previous: Census,
    memory: Memory,
    difference: _Difference,
    states: Mapping[str, Classification],
    gone: Collection[str],
    now: float,
) -> Steps[Census]:
    policy, registered = previous.policy, previous.registrations
    anew = iter([classified(pod, states[pod.uid]) for pod in difference.anew])
    assessed = [next(anew) if one is None else one for one in difference.kept]
    yield
    by_uid = {**previous.states, **states}
    for uid in gone:
        del by_uid[uid]
    yield
    points = turning_points_of_pods(
        policy,
        difference.anew,
        (memory.pods[uid] for uid in states if uid in memory.pods),
        (registered[uid] for uid in states if uid in registered),
    )
    turns = (at - CLOSE_SECONDS for at in points if at > now - CLOSE_SECONDS)
    census = yield from census_of(
        policy,
        memory,
        assessed=assessed,
        states=by_uid,
        registrations=registered,
        now=now,
        pods_until=min([previous.pods_until, *turns]),
    )
    census.changed = frozenset({*states, *gone})
    census.anew = [one for one, known in zip(assessed, difference.kept, strict=True) if known is None]
    census.last_rows = dict(previous.rows)
    census.bands = previous.bands
    return census
