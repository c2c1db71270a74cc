"""What the check makes of answers and pods."""

from dataclasses import replace

import pytest

from adapter.commands.check.findings import (
    MAX_LISTED,
    PROBE_SERVICE,
    add_pod_matches,
    registry_section,
    service_section,
)
from adapter.commands.check.report import ReportSection, all_ok
from adapter.load.pods import Pod
from adapter.load.roster import Instance, Roster
from adapter.registries.cache import Trouble
from adapter.registries.probe import ProbeResult
from adapter.registries.source import ServiceKey
from adapter.settings.registries import ConsulRegistry
from tests.load.kit import NOW, REGISTRY, TARGET, pod

KEY = ServiceKey("main", "web", "prod", "blue")
CONSUL = ConsulRegistry(name="main", type="Consul", servers=("http://a",))


def heard(*instances: Instance, server: str = "http://a", protected: bool = False) -> ProbeResult:
    roster = Roster(at=NOW, instances=instances, protected=protected)
    return ProbeResult(server=server, instances={KEY: roster}, troubles={})


def failed(reason: str, server: str = "http://a", words: str = "its own words") -> ProbeResult:
    return ProbeResult(server=server, instances={}, troubles={KEY: Trouble(reason, words, "")})


def text(section: ReportSection) -> list[str]:
    return [f"{one.verdict}: {one.text}" for one in section.findings]


REACHED = "ok: http://a can be reached"


class TestRegistry:
    @pytest.mark.parametrize(
        ("reason", "steps"),
        [
            ("unreachable", ["wrong: http://a cannot be reached: its own words"]),
            ("unauthenticated", [REACHED, "wrong: http://a does not authenticate the adapter: its own words"]),
            ("forbidden", [REACHED, "wrong: http://a does not let the adapter read: its own words"]),
            ("error", ["wrong: http://a could not be asked: its own words"]),
            ("malformed", [REACHED, "wrong: http://a gives no usable answer: its own words"]),
        ],
    )
    def test_the_first_step_that_fails_is_the_last(self, reason: str, steps: list[str]) -> None:
        assert text(registry_section(CONSUL, [failed(reason)])) == steps

    def test_a_server_is_named_once_in_its_error(self) -> None:
        [line] = text(registry_section(CONSUL, [failed("unreachable", words="http://a: no answer within 3 s")]))
        assert line == "wrong: http://a cannot be reached: no answer within 3 s"

    def test_a_server_that_answers_has_passed_every_step(self) -> None:
        with_token = CONSUL.model_copy(update={"token_file": "/token"})
        assert text(registry_section(with_token, [heard()])) == [
            REACHED,
            "ok: http://a accepts the credentials",
            "ok: http://a lets the adapter read",
        ]

    def test_an_invented_service_may_be_unknown_and_what_answers_it_has_to_be_a_registry(self) -> None:
        def asked(reason: str) -> ReportSection:
            trouble = {ServiceKey("main", PROBE_SERVICE): Trouble(reason, "no such service", "")}
            return registry_section(CONSUL, [ProbeResult(server="http://a", instances={}, troubles=trouble)])

        assert text(asked("unknown"))[1].startswith("note: http://a was asked about a service that does not exist")
        assert not all_ok([asked("malformed")])

    def test_one_dead_server_of_two_is_wrong(self) -> None:
        assert not all_ok([registry_section(CONSUL, [heard(), failed("unreachable", "http://b")])])


class TestService:
    def test_instances_are_counted_by_what_they_are(self) -> None:
        section = service_section(KEY, [heard(Instance(), Instance(enabled=False), Instance(healthy=False))])
        assert section.about == "service web of registry main namespace prod group blue"
        assert text(section) == ["ok: it is known: 3 instances (1 in, 1 out, 1 unhealthy)"]

    @pytest.mark.parametrize(
        ("answer", "told"),
        [
            pytest.param(
                heard(),
                "wrong: no instance is registered under this name; check service, namespace and group",
                id="no instance",
            ),
            pytest.param(failed("unreachable"), "wrong: no server gave a valid answer about it", id="no answer"),
            pytest.param(
                ProbeResult(server="http://a", instances={KEY: Roster(at=NOW, absence_counts=False)}, troubles={}),
                "ok: it is known, and no pod is listed, so all of them serve",
                id="no instance where absence does not count",
            ),
        ],
    )
    def test_what_an_answer_without_instances_means(self, answer: ProbeResult, told: str) -> None:
        assert text(service_section(KEY, [answer])) == [told]

    def test_servers_that_differ_are_told_apart(self) -> None:
        section = service_section(KEY, [heard(Instance()), heard(Instance(), Instance(ip="b"), server="http://b")])
        assert text(section) == [
            "note: http://a lists 1 instance (1 in): servers differ",
            "note: http://b lists 2 instances (2 in): servers differ",
            "ok: it is known: 2 instances (2 in)",
        ]

    def test_a_registry_that_protects_itself_is_reported(self) -> None:
        assert "health is no evidence" in text(service_section(KEY, [heard(Instance(), protected=True)]))[-1]


class TestMatching:
    def match(self, *instances: Instance, pods: list[Pod] | None = None, **roster: bool) -> list[str]:
        section = ReportSection("policy")
        pods = [pod("web-0", ip="10.0.0.1"), pod("web-1", ip="10.0.0.2")] if pods is None else pods
        add_pod_matches(section, REGISTRY, TARGET, pods, Roster(at=NOW, instances=instances, **roster))
        return text(section)

    def test_pods_that_match_are_counted_and_those_that_are_out_named(self) -> None:
        assert self.match(Instance(ip="10.0.0.1"), Instance(ip="10.0.0.2", weight=0)) == [
            "ok: 2 of 2 pods of Deployment web match an instance",
            "note: pod web-1 is out: weight 0",
        ]

    def test_health_says_nothing_where_the_registry_protects_itself(self) -> None:
        ill = Instance(ip="10.0.0.1", healthy=False)
        assert "note: pod web-0 is out: unhealthy" in self.match(ill)
        assert not any("is out" in line for line in self.match(ill, protected=True))

    def test_a_ready_pod_without_an_instance_is_wrong_and_the_leftover_instance_is_reported(self) -> None:
        assert self.match(Instance(ip="10.0.0.1"), Instance(ip="10.0.0.9", port=80)) == [
            "ok: 1 of 2 pods of Deployment web match an instance",
            "wrong: pod web-1 matches no instance: no instance is registered at its address (10.0.0.2)",
            "note: instance 10.0.0.9:80 counts for no pod: its address is no pod's of the target",
        ]

    def test_a_pod_that_is_not_ready_may_be_without_one(self) -> None:
        pods = [pod("web-0", ip="10.0.0.1"), pod("web-1", ip="10.0.0.2", ready=False)]
        assert self.match(Instance(ip="10.0.0.1"), pods=pods)[1].startswith("note: pod web-1 matches no instance")

    def test_pods_that_are_gone_are_not_looked_for(self) -> None:
        gone = [replace(pod("web-0", ip="10.0.0.1"), deleting=True), pod("web-1", phase="Failed")]
        assert self.match(pods=gone) == ["ok: 0 of 0 pods of Deployment web match an instance"]

    def test_where_absence_says_nothing_pods_may_be_missing(self) -> None:
        found = self.match(pods=[pod("web-0", ip="10.0.0.1")], absence_counts=False)
        assert [line.partition(":")[0] for line in found] == ["ok", "note"]

    def test_no_match_at_all_is_wrong(self) -> None:
        assert self.match(pods=[pod("web-0")])[0] == "wrong: 0 of 1 pods of Deployment web match an instance"

    def test_of_many_leftovers_the_rest_is_counted(self) -> None:
        found = self.match(*(Instance(ip=f"10.1.0.{n}") for n in range(MAX_LISTED + 3)), pods=[])
        assert len(found) == 1 + MAX_LISTED + 1
        assert found[-1].startswith("note: 3 more instances count for no pod: 3 because its address")
