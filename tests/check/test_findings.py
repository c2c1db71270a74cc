"""What the check makes of answers and pods."""

from dataclasses import replace

import pytest

from adapter.commands.check.findings import (
    MAX_LISTED,
    PROBE_SERVICE,
    add_pod_matches,
    hpa_section,
    registry_section,
    service_section,
)
from adapter.commands.check.report import ReportSection, SubjectKind, all_ok, report_data, report_lines
from adapter.load.pods import Pod
from adapter.load.roster import Instance, Roster
from adapter.policy.conformance import Wiring
from adapter.policy.hpa import DEFAULT_TOLERANCE, parse_hpa
from adapter.registries.probe import ProbeResult
from adapter.registries.roster import ServiceKey
from adapter.registries.roster_cache import Trouble
from adapter.settings.registries import ConsulRegistry
from tests.load.kit import NOW, REGISTRY, TARGET, cpu, pod, policy

KEY = ServiceKey("main", "web", "prod", "blue")
CONSUL = ConsulRegistry(name="main", type="Consul", servers=("http://a",))


def heard(*instances: Instance, server: str = "http://a", protected: bool = False) -> ProbeResult:
    roster = Roster(at=NOW, instances=instances, protected=protected)
    return ProbeResult(server=server, rosters={KEY: roster}, troubles={})


def failed(reason: str, server: str = "http://a") -> ProbeResult:
    return ProbeResult(server=server, rosters={}, troubles={KEY: Trouble(reason, "its own words", "")})


def text(section: ReportSection) -> list[str]:
    return [f"{one.verdict}: {one.text}" for one in section.findings]


class TestRegistry:
    @pytest.mark.parametrize(
        ("reason", "steps"),
        [
            ("unreachable", ["wrong: http://a cannot be reached: its own words"]),
            (
                "unauthenticated",
                ["ok: http://a can be reached", "wrong: http://a does not authenticate the adapter: its own words"],
            ),
            (
                "forbidden",
                [
                    "ok: http://a can be reached",
                    "wrong: http://a does not let the adapter read: its own words",
                ],
            ),
            ("error", ["wrong: http://a could not be asked: its own words"]),
            (
                "malformed",
                ["ok: http://a can be reached", "wrong: http://a gives no usable answer: its own words"],
            ),
        ],
    )
    def test_the_first_step_that_fails_is_the_last(self, reason: str, steps: list[str]) -> None:
        assert text(registry_section(CONSUL, [failed(reason)])) == steps

    def test_a_server_that_answers_has_passed_every_step(self) -> None:
        with_token = CONSUL.model_copy(update={"token_file": "/token"})
        assert text(registry_section(with_token, [heard()])) == [
            "ok: http://a can be reached",
            "ok: http://a accepts the credentials",
            "ok: http://a lets the adapter read",
        ]

    def test_that_an_invented_service_is_not_known_is_no_fault(self) -> None:
        key = ServiceKey("main", PROBE_SERVICE)
        unknown = ProbeResult(server="http://a", rosters={}, troubles={key: Trouble("unknown", "no such service", "")})
        section = registry_section(CONSUL, [unknown])
        assert text(section)[1].startswith("note: http://a was asked about a service that does not exist")

    def test_that_what_answers_an_invented_service_is_no_registry_is_wrong(self) -> None:
        key = ServiceKey("main", PROBE_SERVICE)
        login = ProbeResult(server="http://a", rosters={}, troubles={key: Trouble("malformed", "a login page", "")})
        assert not all_ok([registry_section(CONSUL, [login])])

    def test_one_dead_server_of_two_is_wrong(self) -> None:
        assert not all_ok([registry_section(CONSUL, [heard(), failed("unreachable", "http://b")])])


class TestService:
    def test_instances_are_counted_by_what_they_are(self) -> None:
        section = service_section(KEY, [heard(Instance(), Instance(enabled=False), Instance(healthy=False))])
        assert section.about == "service web of registry main namespace prod group blue"
        assert text(section) == ["ok: it is known: 3 instances (1 in, 1 out, 1 unhealthy)"]

    def test_a_service_without_instances_is_wrong(self) -> None:
        section = service_section(KEY, [heard()])
        assert text(section) == ["wrong: no instance is registered under this name; check service, namespace and group"]

    def test_a_service_that_no_server_answered_for_is_wrong(self) -> None:
        assert text(service_section(KEY, [failed("unreachable")])) == ["wrong: no server gave a valid answer about it"]

    def test_an_empty_roster_is_ok_where_absence_does_not_count(self) -> None:
        look = ProbeResult(server="http://a", rosters={KEY: Roster(at=NOW, absence_counts=False)}, troubles={})
        assert text(service_section(KEY, [look])) == ["ok: it is known, and no pod is listed, so all of them serve"]

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
    def match(self, *instances: Instance, pods: list[Pod] | None = None, protected: bool = False) -> list[str]:
        section = ReportSection("policy")
        pods = [pod("web-0", ip="10.0.0.1"), pod("web-1", ip="10.0.0.2")] if pods is None else pods
        add_pod_matches(section, REGISTRY, TARGET, pods, Roster(at=NOW, instances=instances, protected=protected))
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
        section = ReportSection("policy")
        add_pod_matches(section, REGISTRY, TARGET, [pod("web-0", ip="10.0.0.1")], Roster(at=NOW, absence_counts=False))
        assert [line.partition(":")[0] for line in text(section)] == ["ok", "note"]

    def test_no_match_at_all_is_wrong(self) -> None:
        assert self.match(pods=[pod("web-0")])[0] == "wrong: 0 of 1 pods of Deployment web match an instance"

    def test_of_many_leftovers_the_rest_is_counted(self) -> None:
        found = self.match(*(Instance(ip=f"10.1.0.{n}") for n in range(MAX_LISTED + 3)), pods=[])
        assert len(found) == 1 + MAX_LISTED + 1
        assert found[-1].startswith("note: 3 more instances count for no pod: 3 because its address")


def test_what_is_well_has_one_line_and_the_last_one_is_the_summary() -> None:
    well = [ReportSection(f"policy shop/{name}", SubjectKind.POLICY) for name in ("a", "b", "c")]
    for section in well:
        section.ok("fine")
    assert list(report_lines(well)) == ["3 policies: all is well"]
    odd, ill = (
        ReportSection("HPA shop/a of policy a", SubjectKind.HPA),
        ReportSection("registry main (Consul)", SubjectKind.REGISTRY),
    )
    odd.note("odd")
    assert list(report_lines([*well, odd]))[-1] == "3 policies, 1 HPA: nothing wrong, 1 note"
    ill.ok("http://a can be reached")
    ill.wrong("http://b cannot be reached")
    assert list(report_lines([ill, *well, odd])) == [
        "registry main (Consul)",
        "  wrong  http://b cannot be reached",
        "HPA shop/a of policy a",
        "  note   odd",
        "ok     3 policies (--verbose lists the findings)",
        "1 registry, 3 policies, 1 HPA: 1 wrong, 1 note",
    ]
    assert list(report_lines([])) == ["no policies and no registries: all is well"]


def test_a_server_that_cannot_be_reached_is_named_once() -> None:
    [line] = text(registry_section(CONSUL, [sentence("http://a: no answer within 3 s")]))
    assert line == "wrong: http://a cannot be reached: no answer within 3 s"


def sentence(words: str) -> ProbeResult:
    return ProbeResult(server="http://a", rosters={}, troubles={KEY: Trouble("unreachable", words, "")})


def test_the_report_reads_as_text_and_as_json() -> None:
    section = ReportSection("service web", SubjectKind.SERVICE)
    section.ok("it is known")
    section.wrong("no")
    assert list(report_lines([section], verbose=True)) == [
        "service web",
        "  ok     it is known",
        "  wrong  no",
        "1 service: 1 wrong",
    ]
    assert list(report_lines([section])) == ["service web", "  wrong  no", "1 service: 1 wrong"]
    assert report_data([section]) == {
        "ok": False,
        "sections": [
            {
                "about": "service web",
                "findings": [{"verdict": "ok", "text": "it is known"}, {"verdict": "wrong", "text": "no"}],
            }
        ],
    }


@pytest.mark.parametrize(
    ("metric", "tolerance", "verdicts"),
    [
        ("desired_replica", "0", ["wrong", "note"]),
        ("desired_replicas", None, ["wrong", "note"]),
        ("desired_replicas", "0", ["note"]),
    ],
)
def test_an_hpa_that_does_not_follow_its_policy_is_wrong_as_in_files(
    metric: str, tolerance: str | None, verdicts: list[str]
) -> None:
    rules = {"tolerance": tolerance} if tolerance is not None else {}
    described = {"apiVersion": "effective-load.io/v1alpha1", "kind": "WatermarkPolicy", "name": "web"}
    target = {"type": "AverageValue", "averageValue": "1"}
    source = {"describedObject": described, "metric": {"name": metric}, "target": target}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 2,
        "maxReplicas": 9,
        "metrics": [{"type": "Object", "object": source}],
        "behavior": {"scaleUp": rules, "scaleDown": {**rules, "stabilizationWindowSeconds": 0}},
    }
    hpa = parse_hpa({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec}, DEFAULT_TOLERANCE)
    section = hpa_section(Wiring(policy=policy(cpu(), namespace="shop", name="web", hpa="web"), hpa=hpa))
    assert [one.verdict.value for one in section.findings] == verdicts, text(section)
