"""The model's documents in the form that the product reads, with the memory of a process that watched before."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from adapter.commands.decide.reader import DecisionCase, read_data
from adapter.load.memory import Departed, LastSample, Memory, MetricMemory, PodMemory
from adapter.load.pod_samples import OTHERS
from adapter.load.pods import PodState
from adapter.load.quantity import parse_nano
from adapter.runtime.times import parse_time

Json = dict[str, Any]


def case_of(document: Json) -> DecisionCase:
    """The product's inputs of a document."""
    given = dict(document)
    memory = given.pop("memory", None)
    if "instances" in given:
        listed = given["instances"]
        given["instances"] = {
            "at": listed["at"],
            "instances": listed.get("items", []),
            "protected": listed.get("protected", False),
            "absenceCounts": not listed.get("onlyOut", False),
        }
    case = read_data(given)
    if memory is None:
        return case
    return case._replace(inputs=replace(case.inputs, memory=memory_of(memory, case)))


def memory_of(memory: Json, case: DecisionCase) -> Memory:
    """What a process remembers that watched before; every pod that is not away has been serving."""
    now = case.now

    def time(text: Any) -> float:
        return min(parse_time(text) or 0.0, now)

    def at(key: str) -> float | None:
        return None if memory.get(key) is None else time(memory[key])

    here = {pod.uid for pod in case.inputs.pods if not pod.deleting and pod.phase not in {"Failed", "Succeeded"}}
    pods = {}
    for uid in here:
        away = memory.get("away", {}).get(uid)
        is_out = away is not None and away["state"] == "pulledOut"
        absent, back = memory.get("absentSince", {}).get(uid), memory.get("inServiceSince", {}).get(uid)
        pods[uid] = PodMemory(
            state=PodState(away["state"]) if away else PodState.SERVING,
            since=time(away["since"]) if away else 0.0,
            registered=uid in memory.get("registered", ()) or is_out,
            absent_since=None if absent is None else time(absent),
            was_out=is_out,
            turned_at=time(away["since"]) if away else None,
            back_since=None if back is None else time(back),
        )
    lasts = {
        name: {uid: LastSample(time(one["at"]), parse_nano(str(one["bound"]))) for uid, one in by_uid.items()}
        for name, by_uid in memory.get("last", {}).items()
    }
    gone = {uid for by_uid in lasts.values() for uid in by_uid} - here
    departed = {
        uid: Departed(
            max(by_uid[uid].at for by_uid in lasts.values() if uid in by_uid),
            {name: by_uid[uid].bound for name, by_uid in lasts.items() if uid in by_uid},
        )
        for uid in gone
    }
    since: Callable[[str, str], float | None] = lambda name, side: (  # noqa: E731
        time(memory["beyondSince"][name][side]) if memory.get("beyondSince", {}).get(name, {}).get(side) else None
    )
    names = {*lasts, *memory.get("medians", {}), *memory.get("beyondSince", {}), *memory.get("targets", {})}
    metrics = {
        name: MetricMemory(
            last={uid: last for uid, last in lasts.get(name, {}).items() if uid in here},
            medians=tuple((time(when), int(median)) for when, median in memory.get("medians", {}).get(name, ())),
            targets={OTHERS: tuple((time(when), number) for when, number in memory.get("targets", {}).get(name, ()))},
            above_since=since(name, "up"),
            below_since=since(name, "down"),
        )
        for name in names
    }
    return Memory(
        pods=pods,
        departed=departed,
        metrics=metrics,
        started_at=at("startedAt"),
        last_replicas=memory.get("lastReplicas"),
        changed_at=max((each for each in (at("changedAt"), at("roseAt")) if each is not None), default=None),
        rose_at=at("roseAt"),
        error_since=at("errorSince"),
    )
