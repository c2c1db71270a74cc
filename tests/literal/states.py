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


def records_of(pod: Pod, roster: dict[str, Any], port: int | None) -> list[dict[str, Any]]:
    """The records of this pod: by its UID or name, if the address fits, or by its address; and at the policy's port.

    Those older than its start are no evidence, nor those older than a container's start where there is a newer one. A
    finished pod has no address any more, although its status keeps one: another pod may have it by now.
    """
    mine = []
    for record in roster.get("instances", []):
        fits = "ip" not in record or record["ip"] == pod.ip
        if "podUid" in record:
            matches = fits and record["podUid"] == pod.uid
        elif "podName" in record:
            matches = fits and record["podName"] == pod.name
        else:
            matches = pod.ip != "" and record.get("ip") == pod.ip and pod.phase not in {"Failed", "Succeeded"}
        if port is not None and record.get("port", port) != port:
            matches = False
        registered = maybe_moment(record.get("registeredAt"))
        if matches and not (registered is not None and registered < (pod.started or pod.created)):
            mine.append(record)
    times = [maybe_moment(record.get("registeredAt")) for record in mine]
    if pod.restarted is not None and any(at is not None and at >= pod.restarted for at in times):
        mine = [one for one, at in zip(mine, times, strict=True) if at is None or at >= pod.restarted]
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
    roster, registry = facts.roster, registry_of(facts)
    if registry is None or roster is None:
        return
    at = moment(roster["at"])
    if not roster.get("valid", True):
        return
    if memory.roster_at is not None and at <= memory.roster_at:
        return
    answered_before, others_before = memory.roster_at, memory.ever_in_roster
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
    held_before = memory.hold_until
    reconnected = maybe_moment(roster.get("reconnectedAt"))
    if reconnected is not None and reconnected != memory.reconnected_at:
        memory.reconnected_at = reconnected
        memory.hold_until = max(memory.hold_until or 0, min(reconnected, facts.now) + 90)
    total = roster.get("registryTotal")
    if total is not None:
        # and by more than two: one of three that leaves is no loss
        if memory.roster_total is not None and total * 10 < memory.roster_total * 7 and total < memory.roster_total - 2:
            memory.hold_until = max(memory.hold_until or 0, facts.now + 90)
        if memory.roster_total is None and answered_before is not None:
            # the first total of a process: the pods of the target stand in for the one before
            ready = [pod for pod in facts.pods if pod.ready is True and pod.ready_changed <= answered_before]
            own = [pod for pod in ready if not pod.deleting and listed_last(memory.pods.get(pod.uid))]
            left = len([pod for pod in own if records_of(pod, roster, registry.get("port"))])
            if left * 10 < len(own) * 7 and left < len(own) - 2:
                memory.hold_until = max(memory.hold_until or 0, facts.now + 90)
        memory.roster_total = total
    # "Each of these is a loss: what was registered before it is no evidence after it"; what goes while it recovers, too
    loss = memory.hold_until != held_before or (memory.hold_until is not None and at < memory.hold_until)
    for pod in facts.pods:
        was_known = pod.uid in memory.pods
        past = memory.pods.setdefault(pod.uid, Past())
        if records_of(pod, roster, registry.get("port")):
            # It was Ready and not registered: it comes into service now.
            was_ready = pod.ready is True and answered_before is not None and pod.ready_changed <= answered_before
            if not past.registered and was_known and was_ready and others_before:
                past.back_since = at
            past.registered, past.lost = True, False
            past.absent_since, past.absent_count = None, 0
            memory.ever_in_roster = True
        elif past.registered:
            past.lost = past.lost or loss
            # "absent while Ready"
            if pod.ready is not True or at < pod.ready_changed:
                past.absent_since, past.absent_count = None, 0
            elif past.absent_since is None or past.absent_since < pod.ready_changed:
                past.absent_since, past.absent_count = at, 1
            else:
                past.absent_count += 1


def listed_last(past: Past | None) -> bool:
    """The pod was in the roster before this one, if it was Ready then."""
    return past is not None and past.registered and past.absent_since is None


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
        # "evidence of an EndpointSlice whose watch has been silent for 90 s (doubt, never an error)"; after a restart
        # only memory knows what it said
        was_away = past.out_since is not None or past.doubt_since is not None
        if pod.endpoint_silent and (pod.endpoint_out or was_away):
            return DOUBTFUL
        return "pulledOut explicit" if pod.endpoint_out else SERVING
    aside = set_aside(facts, memory)
    ready_for = now - pod.ready_changed
    newer = roster_at is not None and roster_at >= pod.ready_changed
    # A pod may be seen only after the roster that has it was counted: it is registered all the same.
    records = records_of(pod, roster, registry.get("port")) if roster is not None else []
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
    # registered only before the registry's last loss
    if past.lost:
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
    empty = memory.empty_since is not None and (now - memory.empty_since < 120 or not roster.get("alive", False))
    if too_old or empty:
        for pod in absent:
            found[pod.uid] = DOUBTFUL
        return
    base = [pod for pod in facts.pods if pod.ready is True and found[pod.uid] not in (STARTING, FINISHED, TERMINATING)]
    most = len(base) * facts.spec.get("pulledOut", {}).get("maxPercent", 50) // 100
    most_new = max(Fraction(2), Fraction(len(base) * 30, 100))

    def place(pod: Pod) -> tuple[bool, float, str]:
        past = memory.pods[pod.uid]
        already = past.out_since is not None
        return (not already, past.absent_since, pod.name)

    out, new = 0, 0
    for pod in sorted(absent, key=place):
        past = memory.pods[pod.uid]
        already = past.out_since is not None
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
        # Seen back from pulledOut. A doubt that begins there leaves open whether it is: then it is back when that ends.
        if (past.out_since is not None and state != PULLED_OUT) or (
            past.back_since is not None
            and past.back_since == past.doubt_since
            and state in (SERVING, STARTING, UNREADY)
        ):
            past.back_since = now
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
