"""§1 of the page: the state of each pod, and the evidence of rosters in memory."""

from fractions import Fraction
from typing import Any

from tests.literal.facts import Facts, Pod, maybe_moment, moment
from tests.literal.memory import Departed, Memory, Past, Sample

TERMINATING, FINISHED, STARTING, UNREADY = "terminating", "finished", "starting", "unready"
PULLED_OUT, DOUBTFUL, SERVING = "pulledOut", "doubtful", "serving"
GONE = (TERMINATING, FINISHED)


def registry_of(facts: Facts) -> dict[str, Any] | None:
    """The registry that the policy names; Kubernetes itself is none."""
    registry: dict[str, Any] | None = facts.spec.get("registry")
    return None if registry is None or registry["name"] == "kubernetes" else registry


def records_of(pod: Pod, roster: dict[str, Any]) -> list[dict[str, Any]]:
    """The records of this pod: by its UID, its name, or its address; those older than its start are no evidence.

    A finished pod has no address any more, although its status keeps one: another pod may have it by now.
    """
    mine = []
    for record in roster.get("instances", []):
        if "podUid" in record:
            matches = record["podUid"] == pod.uid
        elif "podName" in record:
            matches = record["podName"] == pod.name
        else:
            matches = pod.ip != "" and record.get("ip") == pod.ip and pod.phase not in {"Failed", "Succeeded"}
        registered = maybe_moment(record.get("registeredAt"))
        if matches and not (registered is not None and registered < (pod.started or pod.created)):
            mine.append(record)
    return mine


def is_out(record: dict[str, Any], roster: dict[str, Any], registry: dict[str, Any]) -> bool:
    """Explicit evidence of being out in one record."""
    if record.get("enabled", True) is False:
        return True
    if record.get("weight") is not None and record["weight"] <= 0:
        return True
    if record.get("status", "").upper() in {"OUT_OF_SERVICE", "DOWN", "MAINTENANCE", "CRITICAL"}:
        return True
    if record.get("isolated", False):
        return True
    unhealthy = record.get("healthy", True) is False
    return unhealthy and not roster.get("protected", False) and registry.get("unhealthyIsOut", True)


def take_roster(facts: Facts, memory: Memory) -> None:
    """Count this roster once, if it is valid and new."""
    roster = facts.roster
    if registry_of(facts) is None or roster is None:
        return
    at = moment(roster["at"])
    if not roster.get("valid", True):
        return
    if memory.roster_at is not None and at <= memory.roster_at:
        return
    memory.roster_at = at
    memory.last_valid = roster
    memory.rosters += 1
    if memory.rosters_since is None:
        memory.rosters_since = at
    if roster.get("instances"):
        memory.empty_since = None
    elif memory.empty_since is None:
        memory.empty_since = at
    # "90 s after a reconnect or restart was seen, or after the total of its watched instances fell by more than 30 %"
    reconnected = maybe_moment(roster.get("reconnectedAt"))
    if reconnected is not None and reconnected != memory.reconnected_at:
        memory.reconnected_at = reconnected
        memory.hold_until = max(memory.hold_until or 0, min(reconnected, facts.now) + 90)
    total = roster.get("registryTotal")
    if total is not None:
        if memory.roster_total is not None and total * 10 < memory.roster_total * 7:
            memory.hold_until = max(memory.hold_until or 0, facts.now + 90)
        memory.roster_total = total
    for pod in facts.pods:
        past = memory.pods.setdefault(pod.uid, Past())
        if records_of(pod, roster):
            past.registered = True
            past.absent_since = None
            past.absent_count = 0
            memory.ever_in_roster = True
        elif past.registered:
            past.absent_count += 1
            if past.absent_since is None:
                past.absent_since = at


def set_aside(facts: Facts, memory: Memory) -> bool:
    """No pod was ever in the roster, after at least 3 valid rosters over at least graceSeconds."""
    registry = registry_of(facts)
    if registry is None or memory.ever_in_roster or memory.rosters < 3:
        return False
    return memory.roster_at - memory.rosters_since >= registry.get("graceSeconds", 180)


def states(facts: Facts, memory: Memory) -> tuple[dict[str, str], set[str]]:
    """The state of every pod, by UID; and which of them are out by absence."""
    found = {pod.uid: first_match(pod, facts, memory) for pod in facts.pods}
    guard_absence(facts, memory, found)
    believe_explicit(found)
    absent = {uid for uid, state in found.items() if state == "pulledOut absent"}
    return {uid: state.partition(" ")[0] for uid, state in found.items()}, absent


def first_match(pod: Pod, facts: Facts, memory: Memory) -> str:
    """The table, row by row. A pod that is out says by what: `pulledOut explicit`, `pulledOut absent`."""
    now, registry = facts.now, registry_of(facts)
    past = memory.pods.get(pod.uid, Past())
    roster = memory.last_valid if registry is not None else None
    roster_at = moment(roster["at"]) if roster is not None else None
    # terminating, finished
    if pod.deleting:
        return TERMINATING
    if pod.phase in {"Failed", "Succeeded"}:
        return FINISHED
    # unready, before starting: not Ready and crash-looping, also where it never was Ready
    if pod.ready is not True and pod.crash_looping:
        return UNREADY
    # starting
    if pod.phase == "Pending" or pod.started is None or pod.ready is None:
        return STARTING
    if not pod.ready:
        no_transition = pod.ready_changed is None or pod.ready_changed <= pod.created
        if no_transition or pod.ready_changed - pod.started <= 30:
            return STARTING
        # unready, but for a readiness gate
        if pod.containers_ready and pod.gate_is_false:
            return "pulledOut explicit"
        return UNREADY
    # the annotation, before `starting` by registration grace
    if pod.annotated_out:
        return "pulledOut explicit"
    if registry is None:
        return "pulledOut explicit" if pod.endpoint_out else SERVING
    aside = set_aside(facts, memory)
    ready_for = now - pod.ready_changed
    newer = roster_at is not None and roster_at >= pod.ready_changed
    # A pod may be seen only after the roster that has it was counted: it is registered all the same.
    records = records_of(pod, roster) if roster is not None else []
    if not past.registered and not records and ready_for < registry.get("graceSeconds", 180) and newer and not aside:
        return STARTING
    # a registry is named and no valid roster was ever seen
    if roster is None:
        return DOUBTFUL
    if records:
        outs = [is_out(record, roster, registry) for record in records]
        if any(outs) if registry.get("anyOut", False) else all(outs):
            return DOUBTFUL if now - roster_at > 1800 else "pulledOut explicit"
        return SERVING
    if aside:
        return SERVING
    if not past.registered:
        return DOUBTFUL
    # a roster older than the pod's Ready transition, in which the pod is not
    if roster_at < pod.ready_changed:
        return DOUBTFUL
    # registered earlier and absent now
    if past.absent_count >= 3 and roster_at - past.absent_since >= registry.get("absentSeconds", 45):
        return "pulledOut absent"
    return DOUBTFUL


def guard_absence(facts: Facts, memory: Memory, found: dict[str, str]) -> None:
    """Absence that is too much at once, too old, or seen by a registry that is ill, stays doubtful."""
    now, roster = facts.now, memory.last_valid
    absent = [pod for pod in facts.pods if found[pod.uid] == "pulledOut absent"]
    if not absent or roster is None:
        return
    too_old = now - moment(roster["at"]) > 300
    held = memory.hold_until is not None and now < memory.hold_until
    empty = memory.empty_since is not None and (now - memory.empty_since < 120 or not roster.get("alive", False))
    if too_old or held or empty:
        for pod in absent:
            found[pod.uid] = DOUBTFUL
        return
    base = [pod for pod in facts.pods if pod.ready is True and found[pod.uid] not in (STARTING, FINISHED, TERMINATING)]
    most = len(base) * facts.spec.get("pulledOut", {}).get("maxPercent", 50) // 100
    most_new = max(Fraction(2), Fraction(len(base) * 30, 100))

    def place(pod: Pod) -> tuple[bool, float, str]:
        past = memory.pods[pod.uid]
        already = past.out_since is not None and past.by_absence
        return (not already, past.absent_since, pod.name)

    out, new = 0, 0
    for pod in sorted(absent, key=place):
        past = memory.pods[pod.uid]
        already = past.out_since is not None and past.by_absence
        is_new = not already or now - past.out_since < 60
        fits = out + 1 <= most and (already or new + 1 <= most_new)
        if fits:
            out += 1
            new += 1 if is_new else 0
        else:
            found[pod.uid] = DOUBTFUL


def believe_explicit(found: dict[str, str]) -> None:
    """Explicit evidence is believed while at least one pod stays serving or doubtful; else all of it is doubtful."""
    if any(state in (SERVING, DOUBTFUL) for state in found.values()):
        return
    for uid, state in found.items():
        if state == "pulledOut explicit":
            found[uid] = DOUBTFUL


def recent(samples: dict[str, Sample], now: float) -> dict[str, Sample]:
    """The last samples of the past 5 minutes."""
    return {metric: sample for metric, sample in samples.items() if now - sample.at <= 300}


def remember_states(facts: Facts, memory: Memory, found: dict[str, str], absent: set[str]) -> None:
    """Since when each pod is out or doubtful, and who served and has left."""
    now = facts.now
    here = {pod.uid for pod in facts.pods if found[pod.uid] not in GONE}
    for uid in list(memory.pods):
        past = memory.pods[uid]
        if uid not in here:
            del memory.pods[uid]
            if past.served and past.out_since is None:
                memory.departed[uid] = Departed(left=now, samples=recent(past.samples, now))
    went: dict[str, Departed] = {}
    for uid in here:
        if found[uid] != PULLED_OUT:
            memory.departed.pop(uid, None)
        past = memory.pods.setdefault(uid, Past())
        state = found[uid]
        if state == PULLED_OUT and past.served and past.out_since is None:
            # It went out: the others have its load now, as if it had left.
            went[uid] = Departed(left=now, samples=recent(past.samples, now))
        if state == PULLED_OUT:
            past.out_since = now if past.out_since is None else past.out_since
            past.by_absence = uid in absent
        else:
            past.out_since, past.by_absence = None, False
        if state == DOUBTFUL:
            past.doubt_since = now if past.doubt_since is None else past.doubt_since
        else:
            past.doubt_since = None
        if state in (SERVING, DOUBTFUL):
            past.served = True
    memory.departed |= went
