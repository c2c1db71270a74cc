"""The book that every source keeps: what is kept of answers, who hears of what, and what is counted."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from adapter.load.roster import Instance, Roster
from adapter.registries.cache import RosterCache
from adapter.registries.source import ServiceKey
from adapter.runtime.source_errors import NotAllowed, SourceUnreachable
from adapter.telemetry.metrics import Metrics

WEB, API = ServiceKey("nacos", "web"), ServiceKey("nacos", "api")
ONE, TWO = Instance(ip="10.0.0.1"), Instance(ip="10.0.0.2")
DOWN = SourceUnreachable("http://nacos:8848: no answer within 5 s")


class Stand:
    """A book of two services, with its clock, its metrics, and what it told."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.told: list[ServiceKey] = []
        self.metrics = Metrics()
        self.book = RosterCache("nacos", self.told.append, lambda: self.now, self.metrics)
        self.book.follow({WEB: "", API: ""})

    def roster(self, key: ServiceKey = WEB) -> Roster:
        """There must be one."""
        found = self.book.roster(key)
        assert found is not None
        return found

    def counted(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(
            f"effective_load_registry_{name}", {"registry": "nacos", **labels}
        )


@pytest.fixture
def stand() -> Iterator[Stand]:
    with capture_logs():
        yield Stand()


def test_an_answer_is_kept_and_told_and_the_same_again_is_told_to_nobody_but_is_younger(stand: Stand) -> None:
    stand.book.update(WEB, [ONE, TWO])
    roster = stand.roster()
    assert (roster.valid, roster.instances, roster.at) == (True, (ONE, TWO), 1000)
    stand.now += 5
    stand.book.update(WEB, [ONE, TWO])
    assert stand.told == [WEB]
    assert stand.roster().at == 1005


@pytest.mark.parametrize(("listed", "protected"), [(ONE, True), (TWO, False)])
def test_another_answer_is_told_and_counted(stand: Stand, listed: Instance, protected: bool) -> None:
    stand.book.update(WEB, [ONE])
    assert stand.counted("changes_total") is None
    stand.book.update(WEB, [listed], protected=protected)
    assert stand.told == [WEB, WEB]
    assert stand.counted("changes_total") == 1


def test_a_failure_keeps_what_was_heard_with_its_age_and_says_why(stand: Stand) -> None:
    stand.book.update(WEB, [ONE])
    stand.now += 400
    stand.book.failed(DOWN)
    roster = stand.roster()
    assert (roster.valid, roster.instances, roster.at, roster.error) == (True, (ONE,), 1000, DOWN.public)


def test_a_failure_is_told_once_until_its_words_change_and_its_end_even_where_the_answer_is_the_same(
    stand: Stand,
) -> None:
    stand.book.update(WEB, [ONE])
    stand.told.clear()
    stand.book.failed(DOWN, [WEB])
    stand.book.failed(DOWN, [WEB])
    assert stand.told == [WEB]
    stand.book.failed(NotAllowed("HTTP 403"), [WEB])
    stand.book.update(WEB, [ONE])
    assert stand.told == [WEB, WEB, WEB]
    assert stand.roster().error is None
    assert stand.counted("changes_total") is None


def test_a_registry_that_is_down_fails_all_services_and_is_counted_once(stand: Stand) -> None:
    stand.book.failed(DOWN)
    assert sorted(stand.told) == [API, WEB]
    assert stand.counted("errors_total", reason="unreachable") == 1
    assert stand.counted("up") == 0
    assert stand.counted("reconnects_total") is None
    stand.book.update(WEB, [ONE])
    stand.book.update(API, [ONE])
    assert stand.counted("up") == 1
    assert stand.counted("reconnects_total") == 1


def test_a_registry_is_down_once_each_of_its_services_cannot_be_reached(stand: Stand) -> None:
    stand.book.update(WEB, [ONE])
    stand.book.update(API, [ONE])
    stand.book.failed(DOWN, [WEB])
    assert stand.counted("up") == 1
    stand.book.failed(DOWN, [API])
    assert stand.counted("up") == 0


def test_one_service_that_fails_leaves_the_registry_up(stand: Stand) -> None:
    stand.book.update(API, [ONE])
    stand.book.failed(NotAllowed("HTTP 403"), [WEB])
    assert stand.counted("up") == 1


def test_a_partial_answer_replaces_nothing_and_is_counted(stand: Stand) -> None:
    stand.book.update(WEB, [ONE])
    stand.book.update(WEB, [], partial=True)
    roster = stand.roster()
    assert (roster.valid, roster.instances) == (True, (ONE,))
    assert roster.error == "the answer is incomplete"
    assert stand.counted("errors_total", reason="partial") == 1


def test_a_confirmation_makes_what_was_heard_younger_and_ends_a_failure(stand: Stand) -> None:
    stand.book.update(WEB, [ONE])
    stand.now += 60
    stand.book.confirm()
    roster = stand.roster()
    assert (roster.at, roster.instances) == (1060, (ONE,))
    assert stand.told == [WEB]
    assert stand.book.roster(API) is None
    stand.book.failed(DOWN)
    stand.told.clear()
    stand.book.confirm()
    assert stand.told == [WEB]
    assert stand.roster().error is None
    assert not stand.roster(API).valid


def test_what_is_not_followed_any_more_is_forgotten_and_not_heard_again(stand: Stand) -> None:
    stand.book.update(WEB, [ONE])
    stand.book.failed(DOWN, [API])
    stand.book.follow({API: ""})
    assert stand.book.roster(WEB) is None
    stand.told.clear()
    stand.book.update(WEB, [ONE])
    stand.book.failed(DOWN, [WEB])
    assert stand.book.roster(WEB) is None
    assert stand.told == []
    assert [row.service for row in stand.book.rows()] == [API.service]


def test_rows_show_age_and_instances_of_every_service(stand: Stand) -> None:
    stand.book.update(WEB, [ONE])
    stand.now += 7
    assert [(row.service, row.age, row.instances) for row in stand.book.rows()] == [
        (API.service, None, {}),
        (WEB.service, 7, {"in": 1, "out": 0, "unhealthy": 0}),
    ]


def test_only_the_first_of_a_row_of_failures_is_logged_and_one_line_for_a_registry_that_is_down() -> None:
    stand = Stand()
    with capture_logs() as logs:
        stand.book.failed(DOWN)
        stand.book.failed(NotAllowed("HTTP 403"), [WEB])
        stand.book.failed(DOWN)
    assert [(log["registry"], log["services"], log["error"]) for log in logs] == [("nacos", 2, str(DOWN))]


@given(
    st.lists(
        st.tuples(st.just("heard"), st.lists(st.sampled_from([ONE, TWO]), max_size=2))
        | st.tuples(st.sampled_from(["failed", "confirm", "partial"]), st.just([])),
        max_size=20,
    )
)
def test_a_roster_is_always_the_last_valid_list(steps: list[tuple[str, list[Instance]]]) -> None:
    stand, last, at, failed = Stand(), None, None, False
    for step, listed in steps:
        stand.now += 1
        if step == "heard":
            stand.book.update(WEB, listed)
            last, at = tuple(listed), stand.now
        elif step == "failed":
            stand.book.failed(DOWN)
        elif step == "partial":
            stand.book.update(WEB, [], partial=True)
        else:
            stand.book.confirm()
            at = stand.now if last is not None else None
        roster = stand.book.roster(WEB)
        failed = failed or step in {"failed", "partial"}
        if last is None and not failed:
            assert roster is None
            continue
        assert roster is not None
        assert (roster.valid, roster.instances) == (last is not None, last or ())
        assert last is None or roster.at == at
