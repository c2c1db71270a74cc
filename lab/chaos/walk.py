"""A walk on the real control plane: `python -m lab.chaos.walk --services 200 --minutes 60 --seed 1`.

People and a GitOps tool set counts, loads change, metrics vanish and come back, nodes are drained, Deployments roll
out. Afterwards each Event, condition and notification is held against what was done and what the API server's watches
showed. What never was so, or is missing, is untrue; what was so some time ago is late, by so many seconds. No policy
may have more than one status a minute without news. Ends with 1 if anything was untrue.
"""

import argparse
import contextlib
import http.client
import itertools
import json
import math
import random
import re
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

from adapter.policy.conditions import TROUBLE_WHILE_TRUE
from lab.harness.adapter import AdapterProcess, account_kubeconfig, install_crds
from lab.harness.client import ApiError, Object
from lab.harness.companion import CompanionProcess, companion_kubeconfig, reset_lease
from lab.harness.control_plane import ControlPlane
from lab.harness.prometheus import Exporter, HttpThread, Prometheus
from lab.harness.workloads import Workloads

NAMESPACE, HIGH, LOW, LEAST, MOST, NODES = "walk", 100, 40, 2, 10, 4
DRAINS_APART, EVERY_SECONDS, SETTLED_SECONDS = 180, 120, 60  # EVERY: between two things that happen to one service
BUSY_SECONDS = 10.0  # by which what two watches show, or two writes, may be apart on a busy machine
LATE_SECONDS = 50.0 + BUSY_SECONDS  # how old what is said may be: samples of 30 s, polls of 5 s, an HPA's sync of 15 s
STALE_SECONDS = 600.0  # what is later is untrue on whatever machine; and how long a change is not repeated
MOMENT_SECONDS = 2.0  # between two changes of a count of which the former's author may not be known
STANDS_SECONDS = 60.0  # how long what people are notified of has stood
LIMIT = 16  # Events about scalings of a policy are 20 in an hour, and some were before the walk
AUTHORS = {"kube-controller-manager": "the HPA", "kubectl": "hand (kubectl)"}
NOTE = re.compile(r"from (\d+) to (\d+) by ([^:]+)")
LOST, MAXIMUM = "InputsFresh", "AtMaximum"
# What notifications say of which condition.
TOLD = {"dataLost": (LOST, True), "dataRecovered": (LOST, False), "atMaximum": (MAXIMUM, True)}


class Journal:
    """What was done and seen, by service. Times are epoch seconds."""

    def __init__(self) -> None:
        # With times: counts and who set them, statuses, Events, kinds and texts of notifications; until when HPAs said
        # why they do not act; and by condition and service since and until when something was wrong.
        self.counts, self.statuses, self.events, self.messages = (defaultdict[str, list[Any]](list) for _ in range(4))
        self.inactive: defaultdict[str, dict[str, float]] = defaultdict(dict)
        self.drained: defaultdict[str, list[float]] = defaultdict(list)
        self.troubles: defaultdict[tuple[str, str], list[list[float]]] = defaultdict(list)

    def turn(self, kind: str, service: str, *, trouble: bool) -> None:
        """Notes whether something is wrong with a service from now on."""
        known, now = self.troubles[kind, service], time.time()
        if trouble and (not known or known[-1][1] < math.inf):
            known.append([now, math.inf])
        elif known and not trouble:
            known[-1][1] = min(known[-1][1], now)

    def saw_deployment(self, one: Object) -> None:
        known, count = self.counts[one["metadata"]["name"]], one["spec"]["replicas"]
        if not known or known[-1][1] != count:
            fields = one["metadata"]["managedFields"]
            owners = [entry for entry in fields if "f:replicas" in entry["fieldsV1"].get("f:spec", {})]
            known.append((time.time(), count, max(owners, key=lambda entry: str(entry.get("time")))["manager"]))

    def saw_policy(self, one: Object) -> None:
        known, status = self.statuses[one["metadata"]["name"]], one.get("status")
        if status and status not in (former for _, former in known[-1:]):
            known.append((time.time(), status))

    def saw_hpa(self, one: Object) -> None:
        known, conditions = self.inactive[one["metadata"]["name"]], one.get("status", {}).get("conditions") or ()
        said = {each["message"] for each in conditions if each["message"] and each["status"] == "False"}
        known |= {text: time.time() for text, until in known.items() if until == math.inf and text not in said}
        known |= dict.fromkeys(said, math.inf)

    def saw_event(self, one: Object) -> None:
        if one["regarding"]["kind"] == "WatermarkPolicy":
            self.events[one["regarding"]["name"]].append((time.time(), one))


class Hook(HttpThread):
    """A web hook that notes the notifications that it is sent."""

    def __init__(self, journal: Journal) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                event, name = sent["title"].split(" ")
                journal.messages[name].append((time.time(), event, sent["message"]))
                self.send_response(200)
                self.end_headers()

            log_message = staticmethod(lambda *_: None)  # type: ignore[assignment]

        super().__init__(Handler)


class Walk:
    """The services, and what happens to them."""

    def __init__(self, workloads: Workloads, journal: Journal, services: int, seed: int) -> None:
        self.workloads, self.client, self.journal = workloads, workloads.client, journal
        self.order, self.done = random.Random(seed), Counter[str]()
        self.services = [f"svc-{number:03}" for number in range(services)]
        self.loads: dict[str, float | None] = {name: self.order.uniform(150, 390) for name in self.services}
        for name in self.services:
            self.workloads.deployment(name, 4, wait=False)
            metric = {"name": "queue", "query": {"name": "queue"}, "highWatermark": f"{HIGH}", "lowWatermark": f"{LOW}"}
            self.workloads.policy(name, [metric])
            self.workloads.hpa(name, minimum=LEAST, maximum=MOST, down_window=60)

    def step(self) -> None:
        """One thing that happens to one service: a count is set, its load changes or vanishes or is back, a rollout."""
        (act,) = self.order.choices(("kubectl", "argocd-controller", "load", "outage", "rollout"), (4, 4, 16, 2, 2))
        name, self.done[act] = self.order.choice(self.services), self.done[act] + 1
        if act == "rollout":
            self.workloads.rollout(name)
        elif act in {"load", "outage"}:
            is_out = (self.loads[name] is None) is not (act == "outage")
            load = self.order.uniform(50, 1100)  # none where more or fewer pods for seconds decide about the maximum
            self.loads[name] = load = None if is_out else load + 550 * (load > 0.8 * HIGH * MOST)
            self.journal.turn(LOST, name, trouble=load is None)
            self.journal.turn(MAXIMUM, name, trouble=load is not None and load > HIGH * MOST)
        else:
            body = {"spec": {"replicas": self.order.randint(LEAST, MOST)}}
            self.client.patch(f"{self.workloads.path(name)}?fieldManager={act}", body)

    def drain(self) -> None:
        """A node takes no new pods, and its pods move to the others; the node before it takes pods again."""
        node = self.order.randrange(NODES)
        for number in range(NODES):
            self.client.patch(f"/api/v1/nodes/node-{number}", {"spec": {"unschedulable": number == node}})
        for pod in self.client.list(self.workloads.pods_path, fields=f"spec.nodeName=node-{node}"):
            self.client.delete(f"{self.workloads.pods_path}/{pod['metadata']['name']}")
            self.journal.drained[pod["metadata"]["labels"]["app"]].append(time.time())
        self.done["drain"] += 1


def faults(journal: Journal) -> Iterator[tuple[float, str]]:
    """All that was said, or should have been, with the seconds by which it was late; infinite if it is untrue."""
    for name, counts in journal.counts.items():
        yield from wrong_scalings(journal, name)
        for kind, event in ((LOST, "dataLost"), (MAXIMUM, "atMaximum")):
            messages = journal.messages[name]
            told = [at for at, what, _ in messages if what == event]
            for before, (begin, end) in itertools.pairwise([[0.0, 0.0], *journal.troubles[kind, name]]):
                since = begin + STANDS_SECONDS
                over = [at for at, what, _ in messages if TOLD.get(what) == (kind, False) and at > before[1]]
                if begin < before[1] + STANDS_SECONDS + LATE_SECONDS and min(over, default=math.inf) > since:
                    continue  # it may not have been over for long enough to be told of as over
                due = max([since, *(at + STALE_SECONDS for at in told if at < since)])
                if min(end, time.time()) > due + LATE_SECONDS:
                    late = min((at for at in told if at >= since), default=math.inf) - due
                    yield late, f"{name}: no {event} by {due + LATE_SECONDS:.0f}"
        for at, status in journal.statuses[name]:
            said, known = status.get("current"), [one for one in counts if one[0] < at + BUSY_SECONDS]
            ends = [*(moment for moment, _, _ in known[1:]), at]
            delays = [at - end for (_, count, _), end in zip(known, ends, strict=True) if count == said]
            yield max(0.0, min(delays, default=math.inf)), f"{name}: current {said} at {at:.0f}"
        for at, kind, trouble, text in said_of(journal, name):
            late = lateness(journal, name, at, kind, trouble=trouble, text=text)
            yield late, f"{name}: {kind} in trouble: {trouble} at {at:.0f}: {text}"
        for (before, first), (after, second) in itertools.pairwise(journal.statuses[name]):
            if news(first) == news(second) and after - before < 60 - BUSY_SECONDS:
                yield math.inf, f"{name}: a status at {after:.0f} without news, {after - before:.1f} s after the last"


def wrong_scalings(journal: Journal, name: str) -> Iterator[tuple[float, str]]:
    """What is wrong with the Events: each has to be a step, or several, that the watch showed, in order."""
    place, counts = 0, journal.counts[name]
    events = [(at, one["note"]) for at, one in journal.events[name] if one["reason"] == "Scaled"]
    for at, note in events:
        before, after, author = match.groups() if (match := NOTE.match(note)) else ("", "", "")
        ends = (end for end in range(place + 1, len(counts)) if str(counts[end][1]) == after)
        end = next((end for end in ends if before in {str(count) for _, count, _ in counts[place:end]}), None)
        if end is None:
            yield math.inf, f"{name}: no such step in {[count for _, count, _ in counts[place:]]}: {note}"
            continue
        managers = {AUTHORS.get(manager, manager) for _, _, manager in counts[place + 1 : end + 1]}
        next_at = counts[end + 1][0] if counts[end + 1 :] else math.inf
        is_unnamed = len(managers) > 1 or (managers != {"the HPA"} and next_at < counts[end][0] + MOMENT_SECONDS)
        is_right = author in managers or (author == "an unknown client" and is_unnamed)
        yield at - counts[end][0] if is_right else math.inf, f"{name}: by {sorted(managers)}: {note}"
        place = end
    if len(events) < LIMIT and counts[place][1] != counts[-1][1]:
        yield math.inf, f"{name}: nothing tells of {[count for _, count, _ in counts[place:]]}; told: {events[-3:]}"
    notes, told = {note for _, note in events}, {text for _, event, text in journal.messages[name] if event == "scaled"}
    for note in notes ^ told if len(events) < LIMIT else notes - told:
        yield math.inf, f"{name}: an Event without a message, or the reverse: {note}"


def said_of(journal: Journal, name: str) -> Iterator[tuple[float, str, bool, str]]:
    """What was said of a policy's conditions: when, of which, whether it is in trouble, and the sentence."""
    for at, status in journal.statuses[name]:
        said = {one["type"]: one for one in status["conditions"]}
        for kind, one in said.items():
            yield at, kind, (one["status"] == "True") is (kind in TROUBLE_WHILE_TRUE), one["message"]
        if said["Ready"]["status"] == "True" and MAXIMUM not in said:
            yield at, MAXIMUM, False, "not shown"
    for at, one in journal.events[name]:
        kind, _, text = one["note"].partition(": ")
        if one["reason"] != "Scaled":  # the mode never changes here, which would be no warning
            yield at, kind, one["type"] == "Warning" or (kind == "Active" and one["reason"] != "Deciding"), text
    for at, event, text in journal.messages[name]:
        if event != "scaled":
            kind, trouble = TOLD.get(event, (event, True))
            yield at, kind, trouble, text
            yield at - STANDS_SECONDS + 1, kind, trouble, f"{text} (a minute before)"


def lateness(journal: Journal, name: str, at: float, kind: str, *, trouble: bool, text: str) -> float:
    """For how many seconds a sentence was not so any more; infinite if it never was."""
    if kind in {"Ready", LOST} and "no pod serves" in text:
        known = (at - drain for drain in journal.drained[name] if drain < at + BUSY_SECONDS)
        return max(0.0, min(known, default=math.inf))
    if kind == "Ready" and (quoted := [until for why, until in journal.inactive[name].items() if why in text]):
        return max(0.0, at - max(quoted))
    times = [each for each in journal.troubles[LOST if kind == "Ready" else kind, name] if each[0] <= at]
    if trouble:
        return min((max(0.0, at - end) for _, end in times), default=math.inf)
    return max((at - begin for begin, end in times if at < end), default=0.0)


def news(status: Object) -> list[Any]:
    """The part of a status whose change may be written at once; without a sample also the sentence."""
    conditions = [(one["type"], one["status"]) for one in status["conditions"] if one["type"] != MAXIMUM]
    return [conditions, status.get("current"), status.get("pods"), "metrics" not in status and status["decision"]]


def follow(cluster: ControlPlane, resource: str, saw: Callable[[Object], None]) -> None:
    """Watches a collection in a thread of its own, from now on, until the process ends."""
    group, _, plural = resource.rpartition("/")
    client, path = cluster.client, f"/apis/{group}/namespaces/{NAMESPACE}/{plural}"
    found = client.get(path)
    for one in found["items"] if plural not in {"events", "watermarkpolicies"} else ():  # when was that written?
        saw(one)

    def read() -> None:
        version = found["metadata"]["resourceVersion"]
        while True:
            connection = http.client.HTTPSConnection(client.host, client.port, context=client.context)
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException), contextlib.closing(connection):
                connection.request("GET", f"{path}?watch=1&resourceVersion={version}", headers=client.headers)
                for change in map(json.loads, connection.getresponse()):
                    version = change["object"]["metadata"]["resourceVersion"]
                    if change["type"] != "DELETED":  # as Events are after an hour
                        saw(change["object"])

    threading.Thread(target=read, daemon=True).start()


def main() -> int:
    parser = argparse.ArgumentParser()
    for option, kind, default in (("services", int, 200), ("minutes", float, 60), ("seed", int, 1)):
        parser.add_argument(f"--{option}", type=kind, default=default)
    given, journal = parser.parse_args(), Journal()
    with contextlib.ExitStack() as stack:
        plane = ControlPlane(nodes=NODES, hpa_sync=15, metrics_server=False, prepared=install_crds)
        cluster, exporter = stack.enter_context(plane), stack.enter_context(Exporter())
        prometheus, hook = stack.enter_context(Prometheus([exporter])), stack.enter_context(Hook(journal))
        workloads = Workloads(cluster, NAMESPACE)
        workloads.make_namespace()
        walk = Walk(workloads, journal, given.services, given.seed)
        series = f'queue{{namespace="{NAMESPACE}",workload="%s"}} %s\n'
        exporter.set_page(lambda: "".join(series % each for each in walk.loads.items() if each[1] is not None))
        query = {"query": 'sum(queue{namespace="$namespace", workload="$workload"})', "scope": "Service"}
        timed = {"name": "queue", "server": "main", "intervalSeconds": 5, "maxAgeSeconds": 30}
        route = {"name": "hook", "urls": [f"json://127.0.0.1:{hook.port}/"], "default": True, "namespaces": ["*"]}
        route |= {"title": "$event $policy", "rateLimit": {"count": 10_000, "seconds": 60}}
        sources = {"servers": [{"name": "main", "url": prometheus.url}], "queries": [query | timed]}
        settings = {"prometheus": sources, "companion": {"notifications": {"routes": [route]}}}
        stack.enter_context(AdapterProcess(cluster, settings, kubeconfig=account_kubeconfig(cluster)))
        reset_lease(cluster)
        companion = CompanionProcess(cluster, settings, kubeconfig=companion_kubeconfig(cluster))
        stack.enter_context(companion).wait_leading()
        time.sleep(3 * SETTLED_SECONDS)  # no step of the first minutes is told of once the walk has begun
        began, drained = time.time(), 0.0
        journal.messages.clear()
        follow(cluster, "apps/v1/deployments", journal.saw_deployment)
        follow(cluster, "effective-load.io/v1alpha1/watermarkpolicies", journal.saw_policy)
        follow(cluster, "autoscaling/v2/horizontalpodautoscalers", journal.saw_hpa)
        follow(cluster, "events.k8s.io/v1/events", journal.saw_event)
        while time.time() < began + 60 * given.minutes:
            with contextlib.suppress(ApiError, OSError):  # of a busy machine; what it did all the same is seen
                walk.step()
                if time.time() - drained > DRAINS_APART:
                    drained = time.time()
                    walk.drain()
            time.sleep(EVERY_SECONDS / given.services)
        time.sleep(2 * SETTLED_SECONDS)  # what is under way ends, and policies at rest are written once or twice
        found = list(faults(journal))
        writes = [line for line in companion.metrics().splitlines() if "_total{" in line and "result=" in line]
        writes.append(f"leader elected {companion.logs(1_000_000).count('leader_elected')} times")
    wrong = sorted((one for one in found if one[0] > LATE_SECONDS), reverse=True)
    untrue = sum(seconds >= STALE_SECONDS for seconds, _ in wrong)
    print(f"began at {began:.0f}", *(f"{seconds:.0f} s late: {text}" for seconds, text in wrong), *writes, sep="\n")
    sizes = {name: sum(map(len, getattr(journal, name).values())) for name in ("counts", "statuses", "events")}
    for name in sorted({text.partition(":")[0] for _, text in wrong}):
        history = [*journal.counts[name], *journal.events[name], *journal.messages[name], *journal.statuses[name]]
        troubles = {kind: found for (kind, of), found in journal.troubles.items() if of == name}
        print(name, troubles, *sorted(history, key=lambda one: one[0]), sep="\n  ")
    print(walk.done, sizes, f"{len(found)} sentences, {untrue} untrue, {len(wrong) - untrue} late", sep="\n")
    return bool(untrue)


if __name__ == "__main__":
    sys.exit(main())
