"""What registries answered, and how that fits the pods, as findings."""

from collections import Counter
from collections.abc import Sequence

from adapter.check.report import ReportSection, SubjectKind
from adapter.load.matching import Claim, claims
from adapter.load.membership import out_word_of
from adapter.load.pods import Pod
from adapter.load.roster import Instance, Roster
from adapter.load.spec import Registry as PolicyRegistry
from adapter.load.spec import Target
from adapter.load.unmatched import address, why_unmatched
from adapter.registries.probe import ProbeResult
from adapter.registries.roster import ServiceKey
from adapter.registries.roster_cache import Trouble, count_states
from adapter.settings.registries import Registry

PROBE_SERVICE = "effective-load-check"
"""The service that a registry is asked about where nobody names one: that it is not known is an answer too."""
MAX_LISTED = 20
"""Instances without a pod that are listed; of more, the number is told."""

_CREDENTIALS = ("username", "token_file", "access_key_file", "bearer_token_file")


def registry_section(settings: Registry, looks: Sequence[ProbeResult]) -> ReportSection:
    """How far the adapter gets with each server of a registry."""
    section = ReportSection(f"registry {settings.name} ({settings.type})", SubjectKind.REGISTRY)
    if not looks:
        section.note("it asks nobody: the platform tells by PUT")
    for one in looks:
        _server(section, one, has_credentials=any(getattr(settings, key, "") for key in _CREDENTIALS))
    return section


def _server(section: ReportSection, one: ProbeResult, *, has_credentials: bool) -> None:
    """Reachable, authenticated, allowed: a step that fails is the last."""
    server = one.server
    trouble = None if one.rosters else next(iter(one.troubles.values()))
    reason = trouble.reason if trouble else ""
    said = _said(server, trouble) if trouble else ""
    if trouble and reason == "unreachable":
        section.wrong(f"{server} cannot be reached: {said}")
        return
    if trouble and reason == "error":
        section.wrong(f"{server} could not be asked: {said}")
        return
    section.ok(f"{server} can be reached")
    if trouble and reason == "unauthenticated":
        section.wrong(f"{server} does not accept who asks: {said}")
    elif trouble and reason in {"forbidden", "filtered"}:
        section.wrong(f"{server} does not let the adapter read: {said}")
    elif trouble and reason == "unknown" and any(key.service == PROBE_SERVICE for key in one.troubles):
        section.note(f"{server} was asked about a service that does not exist; name one that does: {said}")
    elif trouble:
        section.wrong(f"{server} gives no answer that is of use: {said}")
    else:
        section.ok(_accepted(server, has_credentials=has_credentials))
        section.ok(f"{server} lets the adapter read")


def _said(server: str, trouble: Trouble) -> str:
    """The registry's own sentence without the address that was asked, with which many begin: it is named already."""
    return trouble.sentence.removeprefix(server).removeprefix(": ")


def _accepted(server: str, *, has_credentials: bool) -> str:
    return f"{server} accepts the credentials" if has_credentials else f"{server} asks for no credentials"


def service_section(key: ServiceKey, looks: Sequence[ProbeResult]) -> ReportSection:
    """Whether a registry knows a service, and how many instances it lists."""
    places = [f"namespace {key.namespace}"] * bool(key.namespace) + [f"group {key.group}"] * bool(key.group)
    section = ReportSection(
        " ".join([f"service {key.service} of registry {key.registry}", *places]), SubjectKind.SERVICE
    )
    for one in looks:
        if key in one.troubles and one.rosters:
            section.wrong(f"{one.server}: {_said(one.server, one.troubles[key])}")
    counts = {one.server: _count(one.rosters[key]) for one in looks if key in one.rosters}
    for server, count in counts.items() if len(set(counts.values())) > 1 else ():
        section.note(f"{server} lists {count}: servers differ")
    best = fullest_roster(key, looks)
    if not looks:
        section.note("only a running adapter knows what the platform told of it")
    elif best is None:
        section.wrong("nothing is known of it: no server gave an answer")
    else:
        _instances(section, best)
    return section


def _instances(section: ReportSection, roster: Roster) -> None:
    if roster.instances:
        section.ok(f"it is known: {_count(roster)}")
    elif roster.absence_counts:
        section.wrong("no instance is registered under this name; check service, namespace and group")
    else:
        section.ok("it is known, and no pod is listed, so all of them serve")
    if roster.protected:
        section.note("the registry protects itself: it calls unhealthy instances healthy, so health says nothing")


def fullest_roster(key: ServiceKey, looks: Sequence[ProbeResult]) -> Roster | None:
    """The answer about a service: the fullest, where servers differ; None where none gave one."""
    return max((one.rosters[key] for one in looks if key in one.rosters), key=lambda r: len(r.instances), default=None)


def _count(roster: Roster) -> str:
    states = count_states(roster.instances)
    told = ", ".join(f"{count:.0f} {state}" for state, count in states.items() if count)
    number = len(roster.instances)
    return f"{number} instance{'s' * (number != 1)}" + (f" ({told})" if told else "")


def add_pod_matches(
    section: ReportSection, registry: PolicyRegistry, target: Target, pods: Sequence[Pod], roster: Roster
) -> None:
    """Which pods of a target have a registration that counts, and which have none, and why."""
    found = list(claims(pods, roster, registry))
    by_pod: dict[str, list[Instance]] = {}
    for instance, pod, miss in found:
        if pod is not None and miss is None:
            by_pod.setdefault(pod.uid, []).append(instance)
    living = [pod for pod in pods if not pod.deleting and pod.phase not in {"Failed", "Succeeded"}]
    matched = [pod for pod in living if pod.uid in by_pod]
    told = f"{len(matched)} of {len(living)} pods of {target.kind} {target.name} match an instance"
    (section.ok if matched or not living or not roster.absence_counts else section.wrong)(told)
    for pod in matched:
        word = out_word_of(by_pod[pod.uid], registry, protected=roster.protected)
        if word:
            section.note(f"pod {pod.name} is out: {word}")
    for pod in living:
        if pod.uid not in by_pod:
            tell = section.wrong if pod.is_ready and roster.absence_counts else section.note
            tell(f"pod {pod.name} matches none: {why_unmatched(pod, found, registry)}")
    _leftovers(section, [claim for claim in found if claim.miss is not None])


def _leftovers(section: ReportSection, without_pod: Sequence[Claim]) -> None:
    for claim in without_pod[:MAX_LISTED]:
        section.note(f"instance {address(claim.instance)} counts for no pod: {claim.miss}")
    if len(without_pod) > MAX_LISTED:
        reasons = Counter(str(claim.miss) for claim in without_pod[MAX_LISTED:])
        told = "; ".join(f"{count} because {reason}" for reason, count in sorted(reasons.items()))
        section.note(f"{len(without_pod) - MAX_LISTED} more instances count for no pod: {told}")
