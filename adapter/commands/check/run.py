"""The layers of a check, causes first: the first layer with an error marks those below it as waiting."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from fractions import Fraction

from adapter.commands.check.installation import (
    api_server_section,
    api_service_sections,
    deployments_section,
    find_installation,
    installed_settings,
    server_sections,
)
from adapter.commands.check.links import check_links
from adapter.commands.check.registries import Probes, add_registrations, check_registries
from adapter.commands.check.report import Section
from adapter.commands.check.rights import rights_section
from adapter.commands.check.sources import Answers, add_samples, check_sources
from adapter.commands.check.world import World, read_cluster, read_manifests
from adapter.commands.cluster import Cluster
from adapter.commands.files import read_files
from adapter.kube.errors import KubeError, Unreachable
from adapter.kube.session import Session
from adapter.load.spec import Policy
from adapter.policy.conditions import ConditionType, Reason
from adapter.runtime.faults import first_names
from adapter.runtime.times import parse_time
from adapter.settings import Settings

STALE_STATUS_SECONDS = 180.0
"""The companion writes every status at least every two minutes, so one older than this is no longer written."""
_NAMED = 5
_LAYERS = ("API server", "rights", "installation", "sources", "registries", "policies and HPAs")


def check_files(path: str, settings: Settings | None) -> list[Section]:
    """Check the files of a folder, one file, or standard input (`-`). Raises FaultyDocument for a missing path."""
    objects, faults = read_files([path])
    world = read_manifests(objects, settings)
    unreadable = [Section(f"file {fault.place.file}").error(fault.text, fault.place) for fault in faults]
    result = [*unreadable, *world.problems, *check_links(world)]
    if not world.policies and not faults:
        result.append(Section(f"file {path}").warning("there is no WatermarkPolicy in it"))
    return result


async def check_cluster(settings: Settings | None, policy: str, kubeconfig: str | None) -> list[Section]:
    """Check a cluster layer by layer, or only what one `policy` (NAMESPACE/NAME) needs.

    `settings`: None for those of the installation.
    """
    found: list[Section] = []
    layers = iter(_LAYERS)
    async for sections in _layers(settings, policy, kubeconfig):
        layer = next(layers)
        found += [section for section in sections if section.findings]
        if any(section.has_errors for section in sections):
            waiting = ", ".join(layers)
            if waiting:
                found.append(Section("not checked yet").skipped(f"{waiting}: fix the errors of {layer} first"))
            break
    return found


async def _layers(given: Settings | None, only: str, kubeconfig: str | None) -> AsyncIterator[list[Section]]:
    """The sections of each layer, in the order of _LAYERS; each is read only once it is asked for."""
    async with AsyncExitStack() as stack:
        session, trouble = None, ""
        try:
            session = await stack.enter_async_context(await Session.open(kubeconfig))
            # Without its storage it answers these paths and nothing else: every request would be waited for.
            for path in ("/version", "/readyz"):
                await session.get(path)
        except KubeError as error:
            etcd = "[-]etcd failed" in str(error)
            if session is None or etcd or isinstance(error, Unreachable):
                trouble = "its etcd fails (kubectl get --raw /readyz)" if etcd else str(error)
        settings, now = given, time.time
        world, has_tolerance = World(is_live=True), None
        if trouble or session is None:
            section = Section("API server")
            text = f"no cluster answers: {trouble}; name a kubeconfig by --kubeconfig or $KUBECONFIG"
            is_needed = kubeconfig or only or given is None or not given.registries
            yield [
                section.error(text) if is_needed else section.warning(f"{text}; only what --settings names is checked")
            ]
            yield []
            yield []
        else:
            now = session.now
            section, has_tolerance = await api_server_section(session)
            yield [section]
            installation = await find_installation(session, given or Settings())
            of_settings = Section("settings")
            if given is None:
                settings, of_settings = await installed_settings(session, installation)
            assumed = settings or Settings()
            yield [
                await rights_section(session, assumed, component, installation.namespace, account)
                for component, account in installation.accounts.items()
            ]
            cluster = Cluster(session, Fraction(assumed.kubernetes.hpa_tolerance))
            yield [
                of_settings,
                deployments_section(installation),
                *api_service_sections(installation, settings, now()),
                *await server_sections(cluster, installation.namespace, assumed),
            ]
            world = await read_cluster(cluster, assumed.kubernetes.namespaces, has_tolerance, only)
            world.settings = [settings] if settings is not None else []
        sections, answers = await check_sources(session, settings, world, now, may_contact=given is not None)
        yield sections
        named = settings.registries if settings is not None else ()
        policies = [one.value for one in world.policies.values() if one.value is not None]
        sections, probes = await check_registries(named, policies, may_contact=given is not None)
        yield sections
        yield _policies(
            world, answers, probes, only, now(), is_written=(settings or Settings()).companion.features.status
        )


def _policies(
    world: World, answers: Answers, probes: Probes, only: str, now: float, *, is_written: bool
) -> list[Section]:
    """The policies and HPAs, with what sources and registries know of them, and what the statuses report."""

    def more(section: Section, policy: Policy) -> None:
        workload = world.workload_of_policy(policy)
        add_registrations(section, policy, workload.pods if workload is not None else None, probes)
        add_samples(section, policy, world, answers, now)
        _add_status(section, world, (policy.namespace, policy.name), now)

    sections = check_links(world, only, more)
    return [*world.problems, *_statuses(world, now, is_written=is_written), *sections]


def _add_status(section: Section, world: World, name: tuple[str, str], now: float) -> None:
    """Add what the policy's status reports, unless an error explains it or the status is stale."""
    status = world.policies[name].status
    if section.has_errors or _age(status.assessed_at, now) > STALE_STATUS_SECONDS:
        return
    for condition in status.conditions:
        is_error = (condition.type, condition.status) == (ConditionType.READY, "False")
        if is_error and condition.reason != Reason.WATCH_SILENT:
            section.error(f"its status reports that it is not ready ({condition.reason}): {condition.message}")


def _statuses(world: World, now: float, *, is_written: bool) -> list[Section]:
    """The silent watches that statuses report, each once; and the statuses that the companion no longer writes."""
    watches, companion = Section("watches"), Section("companion")
    concerned: dict[str, list[str]] = {}
    ages = {"/".join(key): _age(read.status.assessed_at, now) for key, read in world.policies.items()}
    for key, read in world.policies.items():
        for condition in read.status.conditions if ages["/".join(key)] <= STALE_STATUS_SECONDS else ():
            if condition.reason == Reason.WATCH_SILENT and condition.status != "True":
                names = concerned.setdefault(condition.message, [])
                names += [name for name in ["/".join(key)] if name not in names]
    for text, names in concerned.items():
        watches.error(f"{text} (reported by the status of {first_names(names, _NAMED)})")
    old = [name for name, age in ages.items() if age > STALE_STATUS_SECONDS]
    unwritten = ["/".join(key) for key, read in world.policies.items() if not read.status.assessed_at]
    if is_written and old:
        companion.error(
            f"it writes each status within two minutes, and these are older, up to {max(ages.values()):.0f} s: "
            f"{first_names(old, _NAMED)}; check that it runs, and its log"
        )
    if is_written and unwritten:
        companion.warning(f"no status is written yet for {first_names(unwritten, _NAMED)}")
    return [section for section in (watches, companion) if section.findings]


def _age(assessed_at: str, now: float) -> float:
    """The age of a status in seconds; 0 without one."""
    at = parse_time(assessed_at)
    return 0.0 if at is None else now - at
