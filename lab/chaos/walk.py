"""A walk on the real control plane: `python -m lab.chaos.walk --services 200 --minutes 60 --seed 1`.

People and a GitOps tool set counts, loads change, metrics vanish and come back, nodes are drained, Deployments roll
out. Afterwards each Event, condition and notification is held against what was done and what the API server's watches
showed; and no policy may have had more than one status a minute without news. Ends with 1 if anything was untrue.
"""

import argparse
import contextlib
import http.client
import itertools
import json
import random
import re
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler

from adapter.companion.status import _news
from lab.harness.adapter import AdapterProcess, account_kubeconfig, install_crds
from lab.harness.client import Object
from lab.harness.companion import CompanionProcess, companion_kubeconfig, reset_lease
from lab.harness.control_plane import ControlPlane
from lab.harness.prometheus import Exporter, HttpThread, Prometheus
from lab.harness.workloads import Workloads

NAMESPACE, HIGH, LOW, LEAST, MOST, NODES = "walk", 100, 40, 2, 10, 4
DRAINS_APART, EVERY_SECONDS, SETTLED_SECONDS = 180, 120, 60  # EVERY: between two things that happen to one service
LATE_SECONDS = 150.0  # after an outage, until its end shows: the age of samples, a poll, a wait and a status
LIMIT = 20  # the most Events about scalings of a policy in an hour
AUTHORS = {"kube-controller-manager": "the HPA", "kubectl": "hand (kubectl)"}
NOTE = re.compile(r"from (\d+) to (\d+) by ([^:]+)")
ALWAYS_TRUE = ("Accepted", "Active", "HPAConformant", "RegistryDataValid", "VersionsConsistent")
NEVER = ("MassPullOut", "ZeroUsageIgnored", "FloorMissing", "WatermarkAtLimit")


class Journal:
    """What was done and seen, by service. Times are epoch seconds."""

    def __init__(self) -> None:
        # Times, counts and who set them; statuses; messages of HPAs that did not act; notes of Events; times without a
        # metric, from and to. And of each notification time, event, service and text.
        self.counts: defaultdict[str, list[tuple[float, int, str]]] = defaultdict(list)
        self.statuses: defaultdict[str, list[tuple[float, Object]]] = defaultdict(list)
        self.inactive: defaultdict[str, set[str]] = defaultdict(set)
        self.scaled: defaultdict[str, list[str]] = defaultdict(list)
        self.outages: defaultdict[str, list[list[float]]] = defaultdict(list)
        self.messages: list[tuple[float, str, str, str]] = []

    def saw_deployment(self, one: Object) -> None:
        known, count = self.counts[one["metadata"]["name"]], one["spec"]["replicas"]
        if not known or known[-1][1] != count:
            fields = one["metadata"]["managedFields"]
            owners = [entry for entry in fields if "f:replicas" in entry["fieldsV1"].get("f:spec", {})]
            known.append((time.time(), count, max(owners, key=lambda entry: str(entry.get("time")))["manager"]))

    def saw_policy(self, one: Object) -> None:
        known, status = self.statuses[one["metadata"]["name"]], one.get("status") or {}
        if status and (not known or known[-1][1] != status):
            known.append((time.time(), status))

    def saw_hpa(self, one: Object) -> None:
        conditions = one.get("status", {}).get("conditions") or ()
        self.inactive[one["metadata"]["name"]] |= {
            each["message"] for each in conditions if each["message"] and each["status"] == "False"
        }

    def saw_event(self, one: Object) -> None:
        if one["regarding"]["kind"] == "WatermarkPolicy" and one["reason"] == "Scaled":
            self.scaled[one["regarding"]["name"]].append(one["note"])

    def is_out(self, service: str, at: float, *, least: float = 0.0) -> bool:
        """Whether the metric was missing then for so many seconds, or until shortly before."""
        return any(begin + least <= at <= end + LATE_SECONDS for begin, end in self.outages[service])


class Hook(HttpThread):
    """A web hook that notes the notifications that it is sent."""

    def __init__(self, journal: Journal) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                journal.messages.append((time.time(), *sent["title"].split(" "), sent["message"]))
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
        name, outages = self.order.choice(self.services), self.journal.outages
        self.done[act] += 1
        if act == "rollout":
            self.workloads.rollout(name)
        elif act == "outage" and self.loads[name] is not None:
            self.loads[name] = None
            outages[name].append([time.time(), float("inf")])
        elif act == "outage":
            self.loads[name] = self.order.uniform(150, 600)
            outages[name][-1][1] = time.time()
        elif act == "load":
            self.loads[name] = self.loads[name] and self.order.uniform(50, 1300)
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
        self.done["drain"] += 1


def faults(journal: Journal, began: float) -> Iterator[str]:
    """What was untrue, or written too often."""
    for name, counts in journal.counts.items():
        notes, told = journal.scaled[name], [one[3] for one in journal.messages if one[1:3] == ("scaled", name)]
        yield from (f"{name}: {text}" for text in wrong_scalings(notes, counts))
        yield from (f"{name}: an Event, and no message: {note}" for note in set(notes) - set(told))
        untold = set(told) - set(notes) if len(notes) < LIMIT else ()
        yield from (f"{name}: a message, and no Event: {text}" for text in untold)
    for at, event, name, text in journal.messages:
        is_right = {
            "scaled": True,
            "dataLost": journal.is_out(name, at, least=60),
            "dataRecovered": any(end <= at for _, end in journal.outages[name]),
            "atMaximum": any(status.get("desired") == MOST for _, status in journal.statuses[name]),
        }
        if not is_right.get(event):
            yield f"{name}: {event} at {at - began:.0f} s: {text}"
    for name, statuses in journal.statuses.items():
        for at, status in statuses:
            yield from (f"{name} at {at - began:.0f} s: {text}" for text in untrue(journal, name, at, status))
        for (before, first), (after, second) in itertools.pairwise(statuses):
            if _news(first) == _news(second) and after - before < 59:
                yield f"{name}: a status {after - before:.1f} s after the last one without news"


def wrong_scalings(notes: list[str], counts: list[tuple[float, int, str]]) -> Iterator[str]:
    """What is wrong with the Events: each has to be a step, or several, that the watch showed, in order."""
    place = 0
    for note in notes:
        before, after, author = match.groups() if (match := NOTE.match(note)) else ("", "", "")
        ends = (end for end in range(place + 1, len(counts)) if str(counts[end][1]) == after)
        end = next((end for end in ends if before in {str(count) for _, count, _ in counts[place:end]}), None)
        if end is None:
            yield f"no such step in {[count for _, count, _ in counts[place:]]}: {note}"
            continue
        managers = {AUTHORS.get(manager, manager) for _, _, manager in counts[place + 1 : end + 1]}
        if author not in managers and not (author == "another client" and len(managers) > 1):
            yield f"by {sorted(managers)}: {note}"
        place = end
    if len(notes) < LIMIT and counts[place][1] != counts[-1][1]:
        yield f"nothing tells of {[count for _, count, _ in counts[place:]]}; told: {notes[-3:]}"


def untrue(journal: Journal, name: str, at: float, status: Object) -> Iterator[str]:
    """What a status says that is not so."""
    counts, said = journal.counts[name], {one["type"]: one for one in status["conditions"]}
    possible = {count for moment, count, _ in counts if moment >= at - 30}
    possible |= {count for moment, count, _ in [each for each in counts if each[0] < at - 30][-1:]}
    if status.get("current") not in possible:
        yield f"current {status.get('current')}, of {possible}"
    for kind, one in said.items():
        is_false, is_quoted = one["status"] == "False", any(each in one["message"] for each in journal.inactive[name])
        is_lost = kind in {"Ready", "InputsFresh"} and not (is_quoted or journal.is_out(name, at))
        if kind in NEVER or (is_false and (kind in ALWAYS_TRUE or is_lost)):
            yield f"{one}"
    is_long_out = any(begin + LATE_SECONDS < at < end for begin, end in journal.outages[name])
    if is_long_out and said["Ready"]["status"] == "True":
        yield "Ready is True without a metric"


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
            with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
                connection.request("GET", f"{path}?watch=1&resourceVersion={version}", headers=client.headers)
                for change in map(json.loads, connection.getresponse()):
                    version = change["object"]["metadata"]["resourceVersion"]
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
        time.sleep(SETTLED_SECONDS)
        began, drained = time.time(), 0.0
        journal.messages.clear()
        follow(cluster, "apps/v1/deployments", journal.saw_deployment)
        follow(cluster, "effective-load.io/v1alpha1/watermarkpolicies", journal.saw_policy)
        follow(cluster, "autoscaling/v2/horizontalpodautoscalers", journal.saw_hpa)
        follow(cluster, "events.k8s.io/v1/events", journal.saw_event)
        while time.time() < began + 60 * given.minutes:
            walk.step()
            if time.time() - drained > DRAINS_APART:
                walk.drain()
                drained = time.time()
            time.sleep(EVERY_SECONDS / given.services)
        time.sleep(2 * SETTLED_SECONDS)  # what is under way ends, and policies at rest are written once or twice
        found = list(faults(journal, began))
        writes = [line for line in companion.metrics().splitlines() if "companion_writes_total{" in line]
    sizes = {name: sum(map(len, getattr(journal, name).values())) for name in ("scaled", "statuses", "counts")}
    print(*found, *writes, dict(walk.done), sizes, f"{len(journal.messages)} messages, {len(found)} faults", sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
