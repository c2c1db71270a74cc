"""Whether Prometheus servers answer, and what to do where they do not; why a pod has no registration that counts."""

import time
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from adapter.commands.check.sources import (
    PROBE_SERVICE,
    address,
    check_prometheus,
    check_registries,
    check_service,
    why_unmatched,
)
from adapter.load.pods import Container, Pod
from adapter.load.roster import Instance, Mismatch, RegistrationMatch, Roster, match_registrations
from adapter.load.spec import Registry
from adapter.registries.follow import ProbeResult
from adapter.registries.source import ServiceKey
from adapter.settings import PrometheusServer
from adapter.settings.registries import AllowedServices, HttpRegistry
from tests.load.kit import NOW, REGISTRY, pod, policy, roster
from tests.registries.http_kit import Platform
from tests.registries.kit import served
from tests.usage.fakes import FakePrometheus, always, vector


async def asked(server: PrometheusServer) -> str:
    (found,) = await check_prometheus([server], time.time())
    return f"{found.level.value}: {found}"


@pytest.mark.parametrize(
    ("code", "text", "ahead", "says"),
    [
        (200, "", 0.0, " answers"),
        (401, "no", 0.0, "hold their counts; give the server username and passwordFile, or bearerTokenFile"),
        (404, "no", 0.0, "hold their counts; url needs the path under which its API is"),
        (200, "<html>", 0.0, "hold their counts; url leads to something else"),
        (200, "", 60.0, "error: its clock is 60 s ahead of the one here, so samples seem old or new; set both"),
    ],
)
async def test_a_prometheus_server_says_whether_it_can_be_asked(code: int, text: str, ahead: float, says: str) -> None:
    async with FakePrometheus() as fake:
        fake.handler = always(
            lambda: web.Response(status=code, text=text) if text else vector(({}, "1"), at=time.time() + ahead)
        )
        found = await asked(fake.settings(timeout_seconds=1))
    assert says in found
    assert found.startswith("ok" if says == " answers" else "error")


async def test_a_server_that_is_away_is_an_error_with_its_remedy() -> None:
    found = await asked(PrometheusServer(name="main", url="http://127.0.0.1:1"))
    assert found.startswith("error: http://127.0.0.1:1 cannot be asked: ")
    assert "nothing listens there" in found


async def test_a_registry_is_asked_only_for_services_that_their_policies_may_name() -> None:
    platform, rules = Platform(), (AllowedServices(namespaces=("shop",), services=("own",)),)
    of_registry = [policy(registry=Registry(name="one", service=service)) for service in ("own", "spied")]
    async with served(platform.handle) as url:
        named = [HttpRegistry(name="one", type="HTTP", url=url, allow=rules)]
        await check_registries(named, of_registry)
        await check_registries(named, of_registry[1:])
    assert [one.query["service"] for one in platform.asked] == ["own", PROBE_SERVICE]


def test_servers_of_a_registry_that_list_other_states_are_named() -> None:
    rule, key = policy(registry=REGISTRY), ServiceKey(REGISTRY.name, REGISTRY.service)
    lists = {"http://a": roster("10.0.0.1"), "http://b": roster(disabled=("10.0.0.1",))}
    probes = {REGISTRY.name: [ProbeResult(server, {key: listed}, {}) for server, listed in lists.items()]}
    said = [str(one) for one in check_service("policy", rule, [WEB], None, probes)]
    differ = "its servers differ: http://a lists 1 instance (1 in), http://b lists 1 instance (1 out)"
    assert [line for line in said if differ in line], said
    silent = {REGISTRY.name: [ProbeResult("http://a", {key: roster(absence_counts=False)}, {})]}
    found = check_service("a platform lists only pods that are out", rule, [WEB], None, silent)
    assert {one.level.value for one in found} == {"ok", "warning"}


# --- registrations ---

WEB = pod("web-0", ip="10.0.0.1", host_ip="192.168.0.1")
AT_ITS_ADDRESS = Instance(ip="10.0.0.1", port=8080)
TWIN = replace(WEB, containers=(Container("app", ports=(8080,)),))


@pytest.mark.parametrize(
    ("instance", "given", "told"),
    [
        (replace(AT_ITS_ADDRESS, ip="10.0.0.9"), {}, "no instance is registered at its address (10.0.0.1)"),
        (
            replace(AT_ITS_ADDRESS, registered_at=NOW - 7200), {},
            "10.0.0.1:8080: it was made before the pod started: a leftover of another pod at this address",
        ),
        (replace(AT_ITS_ADDRESS, pod_name="web-7"), {}, "10.0.0.1:8080 is registered, but as pod web-7"),
        (
            replace(AT_ITS_ADDRESS, pod_namespace="prod"), {},
            "10.0.0.1:8080 is registered, but its pod is of another namespace (prod)",
        ),
        (replace(AT_ITS_ADDRESS, pod_uid="uid-7"), {}, "10.0.0.1:8080 is registered, but as pod uid-7"),
        (
            Instance(ip="10.0.0.9", metadata={"k8s.pod": "web-0"}), {},
            "10.0.0.9 carries its name under k8s.pod; write registry.podNameKey: k8s.pod",
        ),
        (Instance(ip="192.168.0.1", port=30080), {}, "192.168.0.1:30080 is registered at the address"),
        (
            AT_ITS_ADDRESS, {"registry": replace(REGISTRY, port=9090)},
            "10.0.0.1:8080 is registered, but its port is not the one that the policy names (registry.port: 9090)",
        ),
        (
            AT_ITS_ADDRESS, {"of": replace(WEB, host_network=True)},
            "no pod there declares its port; declare it as a containerPort",
        ),
        (
            AT_ITS_ADDRESS, {"of": TWIN, "beside": (replace(TWIN, name="web-1", uid="web-1"),)},
            "several pods have its address and port; let instances carry",
        ),
    ],
)  # fmt: skip
def test_an_instance_that_misses_its_pod_is_the_reason(instance: Instance, given: dict[str, Any], told: str) -> None:
    assert told in reason(instance, **given)


def reason(*instances: Instance, of: Pod = WEB, beside: tuple[Pod, ...] = (), registry: Registry = REGISTRY) -> str:
    found = list(match_registrations([of, *beside], Roster(at=NOW, instances=instances), registry))
    return why_unmatched(of, found, registry)


def test_a_pod_that_is_not_ready_or_has_no_address_need_not_be_registered_yet() -> None:
    assert reason(of=pod("web-0", ip="10.0.0.1", ready=False)).startswith("it is not Ready")
    assert reason(of=pod("web-0")) == "it has no address yet"


@pytest.mark.parametrize("miss", Mismatch)
def test_every_mismatch_is_named_for_a_pod_at_that_address(miss: Mismatch) -> None:
    matched = WEB if miss in {Mismatch.OLDER, Mismatch.REPLACED} else None
    match = RegistrationMatch(Instance(ip="10.0.0.1", port=8080, pod_name="web-7"), matched, miss)
    told = why_unmatched(WEB, [match], REGISTRY)
    assert told.startswith("10.0.0.1:8080") or miss is Mismatch.ADDRESS


def test_addresses_are_written_as_people_write_them() -> None:
    assert address(Instance(ip="FD00::1", port=80)) == "[fd00::1]:80"
    assert address(Instance(ip="10.0.0.1")) == "10.0.0.1"
