"""The layers of a check, causes first: the first layer with an error marks those below it as waiting."""

import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from fractions import Fraction
from typing import Any

from adapter.commands.check.installation import (
    check_api_server,
    check_api_services,
    check_deployments,
    check_servers,
    find_installation,
    installed_settings,
)
from adapter.commands.check.links import check_links, followers, wanted_policies
from adapter.commands.check.registries import Probes, check_registries, check_service
from adapter.commands.check.report import Finding, error, has_errors, ok, reason, skipped, warning
from adapter.commands.check.rights import check_rights
from adapter.commands.check.sources import check_prometheus, check_usage, remedy_of
from adapter.commands.check.world import World, read_cluster, read_manifests
from adapter.commands.cluster import Cluster
from adapter.commands.decide.reader import DocumentError, read_document
from adapter.commands.decisions import Answer, ask, refusal_of
from adapter.commands.files import read_files
from adapter.kube.errors import KubeError, Unreachable
from adapter.kube.session import Session
from adapter.load.explanation import Finding as Condition
from adapter.load.spec import Policy
from adapter.policy.conditions import ConditionType
from adapter.runtime.faults import first_names
from adapter.runtime.times import parse_time
from adapter.settings import Settings

STALE_STATUS_SECONDS = 180.0
"""The companion writes every status at least every two minutes, so one older than this is no longer written."""
_NAMED = 5
_LAYERS = ("API server", "rights", "installation", "sources", "registries", "policies and HPAs")


def check_files(path: str, settings: Settings | None) -> list[Finding]:
    """Check the files of a folder, one file, or standard input (`-`). Raises FaultyDocument for a missing path."""
    objects, faults = read_files([path])
    world = read_manifests(objects, settings)
    unreadable = [error(f"file {fault.place.file}", fault.text, place=fault.place) for fault in faults]
    found = [*unreadable, *world.findings, *check_links(world)]
    if not world.policies and not faults:
        found.append(warning(f"file {path}", "there is no WatermarkPolicy in it"))
    return found


async def check_cluster(settings: Settings | None, policy: str, kubeconfig: str | None) -> list[Finding]:
    """Check a cluster layer by layer, or only what one `policy` (NAMESPACE/NAME) needs.

    `settings`: None for those of the installation.
    """
    found, layers = list[Finding](), iter(_LAYERS)
    async for findings in _layers(settings, policy, kubeconfig):
        layer = next(layers)
        found += findings
        if has_errors(findings):
            if waiting := ", ".join(layers):
                found.append(skipped("not checked yet", waiting, f"fix the errors of {layer} first"))
            break
    return found


async def _layers(given: Settings | None, only: str, kubeconfig: str | None) -> AsyncIterator[list[Finding]]:
    """The findings of each layer, in the order of _LAYERS; each is read only once it is asked for."""
    async with AsyncExitStack() as stack:
        session, trouble = None, ""
        try:
            session = await stack.enter_async_context(await Session.open(kubeconfig))
            # Without its storage it answers these paths and nothing else: every request would be waited for.
            for path in ("/version", "/readyz"):
                await session.get(path)
        except KubeError as fault:
            etcd = "[-]etcd failed" in str(fault)
            if session is None or etcd or isinstance(fault, Unreachable):
                trouble = "its etcd fails (kubectl get --raw /readyz)" if etcd else str(fault)
        if session is None or trouble:
            is_needed = kubeconfig or only or given is None or not (given.registries or given.prometheus.servers)
            text = f"no cluster answers: {trouble}"
            if is_needed:
                yield [error("API server", text, "name a kubeconfig by --kubeconfig or $KUBECONFIG")]
            yield [warning("API server", text, "only what --settings names is checked")]
            yield []
            yield []
            settings = given or Settings()
            yield await check_prometheus(settings.prometheus.servers, time.time(), may_contact=True)
            yield (await check_registries(settings.registries, [], may_contact=True))[0]
            return
        found, has_tolerance = await check_api_server(session)
        yield found
        installation = await find_installation(session, given or Settings())
        settings_found = list[Finding]()
        known = given
        if given is None:
            known, settings_found = await installed_settings(session, installation)
        settings = known or Settings()
        yield [
            finding
            for component, account in installation.accounts.items()
            for finding in await check_rights(session, settings, component, installation.namespace, account)
        ]
        cluster = Cluster(session, Fraction(settings.kubernetes.hpa_tolerance))
        yield [
            *settings_found,
            *check_deployments(installation),
            *check_api_services(installation, known, session.now()),
            *await check_servers(cluster, installation.namespace, settings),
        ]
        world = await read_cluster(cluster, settings.kubernetes.namespaces, has_tolerance, only)
        world.settings = [known] if known is not None else []
        policies = [one.value for one in wanted_policies(world, only).values() if one.value is not None]
        may_contact = given is not None
        yield [
            *await check_usage(session, settings, policies),
            *await check_prometheus(settings.prometheus.servers, session.now(), may_contact=may_contact),
        ]
        found, probes = await check_registries(settings.registries, policies, may_contact=may_contact)
        yield found
        found = [*world.findings, *check_links(world, only)]
        if settings.companion.features.status:
            found += _check_statuses(world, only, session.now())
        found += await _check_decisions(session, world, only, found, probes)
        yield [*found, *_inactive(world, only, found)]


async def _check_decisions(
    session: Session, world: World, only: str, found: Sequence[Finding], probes: Probes
) -> list[Finding]:
    """What the server decides on each policy whose own links, and whose HPA's, have no error."""
    wrong, result = {one.about for one in found if has_errors([one])}, list[Finding]()
    for (namespace, name), read in wanted_policies(world, only).items():
        if read.value is None or not wrong.isdisjoint({read.about, f"HPA {namespace}/{read.value.hpa}"}):
            continue
        answer = await ask(session, namespace, name)
        if isinstance(answer, Answer):
            result += list(_check_decision(read.about, read.value, answer, probes)) or [ok(read.about, "it decides")]
        elif refusal := refusal_of(answer):
            result.append(error(read.about, f"HPAs get an error instead of a count: {refusal}"))
        else:
            result.append(skipped(read.about, f"the server's decision, for {reason(answer)}"))
            ready = next((one for one in read.status.conditions if one.type == ConditionType.READY), None)
            if ready is not None and ready.status == "False":
                text = f"its status reports that it is not ready ({ready.reason}): {ready.message}"
                result.append(error(read.about, text))
    return result


def _check_decision(about: str, policy: Policy, answer: Answer, probes: Probes) -> Iterator[Finding]:
    """The troubles that the server's decision names, and the pods concerned."""
    decision: Mapping[str, Any] = answer.decision
    conditions, of_service = dict(decision["conditions"]), list[Finding]()
    if policy.registry is not None:
        try:
            inputs = read_document(bytes(answer.document).decode()).inputs
            of_service += check_service(about, policy, inputs.pods, inputs.roster, probes)
        except DocumentError:  # of a server of another version
            pass
    yield from of_service
    if has_errors(of_service):  # which explain the rest
        return
    registry, inputs_fresh = (
        conditions.pop(one, "") for one in (Condition.REGISTRY_DATA_VALID, Condition.INPUTS_FRESH)
    )
    if registry:
        yield error(about, registry)
    if text := decision["error"] or inputs_fresh:
        without = [pod["name"] for pod in decision["pods"] if pod.get("missing")]
        named = f" ({first_names(sorted(without), _NAMED)})" if without else ""
        get = "HPAs get an error: " if decision["error"] else ""
        yield error(about, f"{get}{text}{named}", remedy_of(text))
    yield from (warning(about, text) for text in conditions.values())
    if decision["current"] == 0:
        yield from (warning(about, line) for line in decision["explanation"][-1:])


def _check_statuses(world: World, only: str, now: float) -> Iterator[Finding]:
    """The statuses that the companion no longer writes, or has not written yet."""
    about, times = "companion", dict[str, float | None]()
    for key, read in wanted_policies(world, only).items():
        times["/".join(key)] = parse_time(read.status.assessed_at)
    ages = {name: now - at for name, at in times.items() if at is not None and now - at > STALE_STATUS_SECONDS}
    unwritten = [name for name, at in times.items() if at is None]
    if ages:
        text = f"it writes each status within two minutes, and these are older, up to {max(ages.values()):.0f} s"
        yield error(about, f"{text}: {first_names(list(ages), _NAMED)}", "check that it runs, and its log")
    if unwritten:
        yield warning(about, f"no status is written yet for {first_names(unwritten, _NAMED)}")


def _inactive(world: World, only: str, found: Sequence[Finding]) -> Iterator[Finding]:
    """The HPAs that do not act, unless an error of theirs or of a policy explains that."""
    wrong = {one.about for one in found if has_errors([one])}
    for read in world.hpas.values():
        policies = followers(world, read, only)
        explained = read.about in wrong or any(one.about in wrong for one, _ in policies)
        if read.value is not None and read.value.inactive and policies and not explained:
            yield error(read.about, read.value.inactive)
