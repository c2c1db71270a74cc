"""The cache of one registry: what is kept of answers, which changes are reported, and what is counted and logged."""

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from adapter.load.roster import Instance, Roster
from adapter.registries.cache import InstanceCache
from adapter.registries.source import ServiceKey
from adapter.runtime.source_errors import NotAllowed, NotAuthenticated, SourceError, SourceUnreachable, WrongAnswer
from adapter.settings.registries import ConsulRegistry
from adapter.telemetry.metrics import Metrics

WEB, API = ServiceKey("consul", "web"), ServiceKey("consul", "api")
ONE, TWO = Roster((Instance(ip="10.0.0.1"),)), Roster((Instance(ip="10.0.0.2"),))
DOWN = SourceUnreachable("http://consul:8500: no answer within 5 s")
SETTINGS = ConsulRegistry(name="consul", type="Consul", servers=("http://consul:8500",))


class Stand:
    """The cache of two services, with its clock, its metrics and the changes that it reported."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.changed: list[ServiceKey] = []
        self.metrics = Metrics()
        self.cache = InstanceCache(SETTINGS, self.changed.append, lambda: self.now, self.metrics)
        self.cache.follow([WEB, API])

    def listing(self, key: ServiceKey = WEB) -> Roster:
        """The list of a service; there must be one."""
        listed = self.cache.instances(key)
        assert listed is not None
        return listed

    def counted(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(
            f"effective_load_registry_{name}", {"registry": "consul", **labels}
        )


@pytest.fixture
def stand() -> Iterator[Stand]:
    with capture_logs():
        yield Stand()


def test_equal_answer_is_younger_and_no_change(stand: Stand) -> None:
    stand.cache.put(WEB, ONE)
    stand.now += 5
    stand.cache.put(WEB, Roster(ONE.instances))
    listed = stand.listing()
    assert (listed.valid, listed.instances, listed.at) == (True, ONE.instances, 1005)
    assert stand.changed == [WEB]


@pytest.mark.parametrize("answer", [Roster(ONE.instances, protected=True), TWO])
def test_another_answer_is_reported_and_counted(stand: Stand, answer: Roster) -> None:
    stand.cache.put(WEB, ONE)
    assert stand.counted("changes_total") is None
    stand.cache.put(WEB, answer)
    assert stand.changed == [WEB, WEB]
    assert stand.counted("changes_total") == 1


@pytest.mark.parametrize("error", [DOWN, WrongAnswer("http://consul:8500: the answer is incomplete")])
def test_failure_keeps_the_last_list_with_its_age_and_the_cause(stand: Stand, error: SourceError) -> None:
    stand.cache.put(WEB, ONE)
    stand.now += 400
    stand.cache.failed(WEB, error)
    listed = stand.listing()
    assert (listed.valid, listed.instances, listed.at, listed.error) == (True, ONE.instances, 1000, error.public)
    assert stand.counted("errors_total", reason=error.reason) == 1


def test_failure_is_reported_once_until_its_cause_changes_or_ends(stand: Stand) -> None:
    assert stand.cache.instances(WEB) is None
    stand.cache.failed(WEB, DOWN)
    assert (stand.listing().valid, stand.listing().error) == (False, DOWN.public)
    stand.cache.put(WEB, ONE)
    stand.changed.clear()
    stand.cache.failed(WEB, DOWN)
    stand.cache.failed(WEB, DOWN)
    assert stand.changed == [WEB]
    stand.cache.failed(WEB, NotAllowed("HTTP 403"))
    stand.cache.put(WEB, ONE)
    assert stand.changed == [WEB, WEB, WEB]
    assert stand.listing().error is None
    assert stand.counted("changes_total") is None


def test_registry_is_down_once_no_service_is_answered(stand: Stand) -> None:
    stand.cache.put(WEB, ONE)
    stand.cache.put(API, ONE)
    stand.cache.failed(WEB, DOWN)
    stand.cache.failed(API, NotAllowed("HTTP 403"))
    assert stand.counted("up") == 1, "a registry that refuses is up"
    stand.cache.failed(API, NotAuthenticated("HTTP 401"))
    assert stand.counted("up") == 0
    assert stand.counted("reconnects_total") is None
    stand.cache.put(WEB, ONE)
    stand.cache.put(API, ONE)
    assert (stand.counted("up"), stand.counted("reconnects_total")) == (1, 1)


def test_service_that_is_no_longer_followed_is_forgotten(stand: Stand) -> None:
    stand.cache.put(WEB, ONE)
    stand.cache.failed(WEB, DOWN)
    stand.cache.failed(API, DOWN)
    stand.cache.follow([API])
    assert stand.cache.instances(WEB) is None
    stand.changed.clear()
    stand.cache.put(WEB, ONE)
    stand.cache.failed(WEB, DOWN)
    assert stand.cache.instances(WEB) is None
    assert stand.changed == []
    assert [row.service for row in stand.cache.rows()] == [API.service]


def test_rows_show_age_and_instances_of_every_service(stand: Stand) -> None:
    stand.cache.put(WEB, ONE)
    stand.now += 7
    assert [(row.service, row.age, row.instances) for row in stand.cache.rows()] == [
        (API.service, None, {}),
        (WEB.service, 7, {"in": 1, "out": 0, "unhealthy": 0}),
    ]


def test_each_cause_is_logged_once_however_many_services_it_concerns() -> None:
    stand = Stand()
    with capture_logs() as logs:
        for _ in range(3):
            stand.cache.failed(WEB, DOWN)
            stand.cache.failed(API, DOWN)
        stand.cache.put(WEB, ONE)
        stand.cache.put(API, ONE)
    assert [(log["event"], log["log_level"]) for log in logs] == [
        ("registry_failed", "warning"),
        ("registry_recovered", "info"),
    ]
    assert logs[0]["error"] == f"{DOWN} (settings: `servers`, `timeoutSeconds`, `tls`)"


def test_services_that_lose_all_instances_are_one_line_whatever_was_scaled_to_0_before() -> None:
    stand, empty, stated = Stand(), Roster(()), Roster((), absence_counts=False)
    with capture_logs() as logs:
        for answer in (empty, ONE, stated, ONE, empty, empty):
            stand.cache.put(WEB, answer)
        for answer in (ONE, empty, ONE):
            stand.cache.put(API, answer)
        stand.now += 10
        stand.cache.put(API, empty)
    found = [(log["event"], log["log_level"], log["service"]) for log in logs]
    assert found == [("registry_list_emptied", "info", name) for name in (WEB.service, API.service)]
