"""The layers of a check, causes first: the first layer with an error marks those below it as waiting."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack

from adapter.commands.check import installation as installed
from adapter.commands.check import sources
from adapter.commands.check.links import check_links
from adapter.commands.check.report import Finding, error, has_errors, ok, skipped, warning
from adapter.commands.check.rights import check_rights
from adapter.commands.check.world import World, fill_from_cluster, read_manifests
from adapter.commands.cluster import Answer, ask, reason, refusal_of
from adapter.commands.files import read_files
from adapter.kube.errors import KubeError, Unreachable
from adapter.kube.session import Session
from adapter.load.spec import Policy
from adapter.policy.conditions import ConditionType
from adapter.policy.documents import mapping_at
from adapter.runtime.faults import first_names
from adapter.settings import Settings

_NAMED = 5
_LAYERS = ("API server", "rights", "installation", "sources", "registries", "policies and HPAs")


def check_files(path: str, settings: Settings | None) -> list[Finding]:
    """Check the files of a folder, one file, or standard input (`-`). Raises FaultyDocument for a missing path."""
    objects, faults = read_files([path])
    world = read_manifests(objects, settings)
    unreadable = [error(f"file {fault.place.file}", fault.text, place=fault.place) for fault in faults]
    found = [*unreadable, *world.findings, *check_links(world)]
    if not world.policies and not world.settings and not faults:
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
        session = None
        try:
            session = await stack.enter_async_context(await Session.open(kubeconfig))
            # Without its storage it answers these paths and nothing else: every request would be waited for.
            for path in ("/version", "/readyz"):
                await session.get(path)
        except KubeError as fault:
            etcd = "[-]etcd failed" in str(fault)
            if session is None or etcd or isinstance(fault, Unreachable):
                trouble = "its etcd fails (kubectl get --raw /readyz)" if etcd else str(fault)
                remedy = "name a kubeconfig by --kubeconfig or $KUBECONFIG"
                yield [error("API server", f"no cluster answers: {trouble}", remedy)]
                return
        found, has_tolerance = await installed.check_api_server(session)
        yield found
        installation = await installed.find_installation(session, given or Settings())
        known, settings_found = (given, []) if given else await installed.installed_settings(session, installation)
        settings = known or Settings()
        yield [
            finding
            for component, account in installation.accounts.items()
            for finding in await check_rights(session, settings, component, installation.namespace, account)
        ]
        yield [
            *settings_found,
            *installed.check_deployments(installation),
            *installed.check_api_services(installation, known),
            *await installed.check_servers(session, installation.namespace, settings),
        ]
        applied = [known] if known is not None else []
        world = World(is_live=True, only=only, has_tolerance=has_tolerance, settings=applied)
        await fill_from_cluster(world, session, settings.kubernetes.namespaces)
        policies = [policy for _, policy in world.valid]
        found = await sources.check_usage(session, settings, policies)
        named = [one.name for one in (*settings.prometheus.servers, *settings.registries)]
        if given is not None:
            found += await sources.check_prometheus(settings.prometheus.servers, session.now())
        elif named:  # credentials that the cluster's settings name must not be sent from here to where they say
            text = "what the cluster's settings name is asked only where they are made for"
            found.append(skipped(", ".join(named), text, "run the check in a pod of the server, or give --settings"))
        yield found
        of_registries, probes = await sources.check_registries(given.registries if given else (), policies)
        yield of_registries
        found = [*world.findings, *check_links(world)]
        found += await _check_decisions(session, world, found, probes)
        yield [*found, *_inactive(world, found)]


async def _check_decisions(
    session: Session, world: World, found: Sequence[Finding], probes: sources.Probes
) -> list[Finding]:
    """What the server decides on each policy whose own links, and whose HPA's, have no error."""
    wrong, result = {one.about for one in found if has_errors([one])}, list[Finding]()
    for read, policy in world.valid:
        if not wrong.isdisjoint({read.about, f"HPA {policy.namespace}/{policy.hpa}"}):
            continue
        answer = await ask(session, policy.namespace, policy.name)
        if isinstance(answer, Answer):
            result += list(_check_decision(read.about, policy, answer, probes)) or [ok(read.about, "it decides")]
        elif refusal := refusal_of(answer):
            result.append(error(read.about, f"HPAs get an error instead of a count: {refusal}"))
        else:
            result.append(skipped(read.about, f"the server's decision, for {reason(answer)}"))
            for one in mapping_at(read.at.data, "status").get("conditions") or ():
                if one.get("type") == ConditionType.READY and one.get("status") == "False":
                    text = f"its status reports that it is not ready ({one.get('reason')}): {one.get('message')}"
                    result.append(error(read.about, text))
    return result


def _check_decision(about: str, policy: Policy, answer: Answer, probes: sources.Probes) -> Iterator[Finding]:
    """The troubles that the server's decision names, and the pods concerned."""
    decision, conditions, of_service = answer.decision, dict(answer.decision.conditions), list[Finding]()
    if answer.case is not None:
        inputs = answer.case.inputs
        of_service += sources.check_service(about, policy, inputs.pods, inputs.roster, probes)
    yield from of_service
    if has_errors(of_service):  # which explain the rest
        return
    inputs_fresh = conditions.pop(ConditionType.INPUTS_FRESH, "")
    for kind, text in conditions.items():
        yield (error if kind == ConditionType.REGISTRY_DATA_VALID else warning)(about, text)
    if text := decision.error or inputs_fresh:
        without = [pod.name for pod in decision.pods if pod.missing and "without a fresh sample" in text]
        named = f" ({first_names(sorted(without), _NAMED)})" if without else ""
        get = "HPAs get an error: " if decision.error else ""
        yield error(about, f"{get}{text}{named}", sources.remedy_of(text))
    if decision.current == 0:
        yield from (warning(about, line) for line in decision.explanation[-1:])


def _inactive(world: World, found: Sequence[Finding]) -> Iterator[Finding]:
    """The HPAs that do not act, unless an error of theirs or of a policy explains that."""
    wrong = {one.about for one in found if has_errors([one])}
    for read in world.hpas.values():
        policies = [one.about for one, _ in world.followers(read)]
        if policies and wrong.isdisjoint({read.about, *policies}) and read.value is not None and read.value.inactive:
            yield error(read.about, read.value.inactive)
