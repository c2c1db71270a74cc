from dataclasses import replace
from typing import Any

import pytest

from adapter.evaluation.object_index import Need, ObjectIndex, PodIndex
from adapter.policy.hpa import CrossVersionReference
from adapter.policy.linking import Neighbours, TargetRef
from adapter.snapshot import Key
from tests.evaluation.kit import KEY, REF, entry, hpa, web_pods
from tests.load.kit import pod, queue

CART = Key("cart", "web")


class Told:
    """A world that writes down whom it marks."""

    def __init__(self) -> None:
        self.marked: list[Key] = []
        self.links = 0
        self.world = ObjectIndex(self.marked.append, self._linked)

    def _linked(self) -> None:
        self.links += 1

    def since(self) -> set[Key]:
        found = set(self.marked)
        self.marked.clear()
        return found


@pytest.fixture
def told() -> Told:
    told = Told()
    told.world.policy_changed(None, entry())
    told.world.hpa_changed(None, hpa())
    told.since()
    return told


@pytest.fixture
def second(told: Told) -> Key:
    """A second policy for the HPA of the first."""
    told.world.policy_changed(None, entry("second", hpa="web"))
    return Key("shop", "second")


class TestPods:
    def test_a_pod_is_found_by_its_deployment_through_the_template_hash(self) -> None:
        index = PodIndex()
        for one in web_pods(2):
            index.change(None, one)
        assert {one.name for one in index.owned("shop", "web")} == {"web-0", "web-1"}

    def test_a_changed_pod_is_filed_once_and_one_that_went_leaves_nothing_behind(self) -> None:
        index = PodIndex()
        first, *_ = web_pods(1)
        later = replace(first, deleting=True)
        index.change(None, first)
        index.change(first, later)
        assert list(index.owned("shop", "web")) == [later]
        index.change(later, None)
        assert not index.namespaces()
        assert not list(index.owned("shop", "web"))


class TestMarks:
    def test_an_hpa_that_comes_later_links_its_policy(self, told: Told) -> None:
        link = told.world.link(KEY)
        assert link is not None
        assert link.ref == told.world.target(KEY) == REF
        assert told.world.target(Key("shop", "none")) is None
        assert told.world.neighbours(KEY) == Neighbours()

    @pytest.mark.parametrize(
        ("change", "of", "marked"),
        [
            ("pod_changed", (None, web_pods(1)[0]), {KEY}),
            ("pod_changed", (None, web_pods(1, "other")[0]), set()),
            ("pod_changed", (None, pod("lone", owner=None)), set()),
            ("endpoint_changed", ("shop", "web-9"), {KEY}),
            ("endpoint_changed", ("shop", "nobody"), set()),
            ("mark_users", (Need("resources", "shop"),), {KEY}),
            ("mark_users", (Need("resources", "elsewhere"),), set()),
            ("mark_users", (Need("workload", Key("shop", "web")),), {KEY}),
            ("mark_users", (Need("workload", Key("shop", "other")),), set()),
            ("target_changed", (REF,), {KEY}),
            ("target_changed", (TargetRef("shop", "apps/v1", "StatefulSet", "web"),), set()),
            ("mark_kind", ("apps/v1", "Deployment"), {KEY, CART}),
            ("mark_kind", ("apps/v1", "StatefulSet"), set()),
            ("mark_namespace", ("shop",), {KEY}),
            ("mark_namespace", ("depot",), set()),
            ("mark_namespace", ("",), {KEY, CART}),
        ],
    )
    def test_what_concerns_a_policy_marks_it_and_no_other(
        self, told: Told, change: str, of: tuple[Any, ...], marked: set[Key]
    ) -> None:
        told.world.policy_changed(None, entry(namespace="cart"))
        told.world.hpa_changed(None, replace(hpa(), namespace="cart"))
        told.world.pod_changed(None, replace(web_pods(1)[0], name="web-9"))
        told.since()
        getattr(told.world, change)(*of)
        assert told.since() == marked

    def test_any_pod_marks_a_policy_whose_target_is_known_by_selector_alone(self, told: Told) -> None:
        told.world.hpa_changed(hpa(), hpa("web", "web", "GameServerSet"))
        told.since()
        told.world.pod_changed(None, pod("lone", owner=None))
        assert told.since() == {KEY}

    def test_a_policy_that_went_is_marked_so_that_it_leaves_the_picture(self, told: Told) -> None:
        told.world.policy_changed(entry(), None)
        assert told.since() == {KEY}
        assert KEY not in told.world.policies


class TestRivals:
    def test_policies_are_rivals_where_their_hpas_name_one_target_in_two_versions(self, told: Told) -> None:
        old = replace(hpa("second"), target=CrossVersionReference("apps/v1beta1", "Deployment", "web"))
        told.world.policy_changed(None, entry("second"))
        told.since()
        told.world.hpa_changed(None, old)
        second = Key("shop", "second")
        assert told.since() == {KEY, second}
        assert told.world.neighbours(KEY) == Neighbours(hpas="second", policies="second")
        known = told.world.neighbours(second)
        assert known == Neighbours(hpas="web", policies="web")
        told.world.hpa_changed(old, scaled := replace(old, bounds=replace(old.bounds, maximum=9)))
        assert told.world.neighbours(second) is known, "thousands of one target do not sort each other at each scaling"
        told.since()
        told.world.hpa_changed(scaled, None)
        assert told.since() == {KEY, second}
        assert told.world.neighbours(KEY) == Neighbours()

    def test_a_rival_that_goes_marks_the_one_that_stays(self, told: Told, second: Key) -> None:
        told.since()
        told.world.policy_changed(entry(second.name, hpa="web"), None)
        assert KEY in told.since()
        assert told.world.link(KEY) is not None
        assert told.world.neighbours(KEY).policies == ""

    def test_a_policy_that_becomes_invalid_has_no_link(self, told: Told) -> None:
        told.world.policy_changed(entry(), replace(entry(), fault="spec.metrics: none"))
        assert told.world.link(KEY) is None
        told.world.hpa_changed(None, hpa())
        assert told.world.link(KEY) is None


class TestNeeds:
    def test_namespaces_need_metrics_only_where_a_policy_asks_for_a_resource(self) -> None:
        told = Told()
        told.world.policy_changed(None, entry(namespace="a"))
        told.world.policy_changed(None, entry(namespace="b", metrics=(queue("1"),)))
        assert told.world.namespaces_with_resources() == {"a"}

    def test_what_is_needed_outside_is_looked_at_when_an_hpa_turns_to_another_target(self, told: Told) -> None:
        before = told.links
        told.world.hpa_changed(hpa(), hpa(target="other"))
        assert told.links > before
