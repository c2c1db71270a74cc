"""What thousands of policies cost: work is counted, not timed."""

import sys
from dataclasses import replace
from types import FrameType

import pytest

from adapter.evaluation.evaluator import Evaluator
from adapter.evaluation.object_index import DecodedPolicy, ObjectIndex
from adapter.policy.conditions import Reason
from adapter.policy.linking import MAX_POLICIES_PER_TARGET, Links
from adapter.snapshot import Key
from tests.evaluation.kit import KEY, REF, FakeInputs, deployment, entry, hpa, web_pods
from tests.load.kit import policy

CROWD = 5000


class Scene:
    """An index that counts whom it marks, and an evaluator above it."""

    def __init__(self) -> None:
        self.marked: list[Key] = []
        self.index = ObjectIndex(self.marked.append, lambda: None)
        self.evaluator = Evaluator(self.index, FakeInputs(found=deployment(1)), lambda: 0.0)

    def marks(self) -> list[Key]:
        """Whom the index marked since the last call."""
        found = self.marked[:]
        self.marked.clear()
        return found

    def problem(self, name: str) -> tuple[int, Reason, str] | None:
        """Why the policy has no answer."""
        view = self.evaluator.evaluate(Key("shop", name))
        assert view is not None
        return view.problem


def crowd(scene: Scene, count: int, **changes: object) -> list[DecodedPolicy]:
    """So many policies that name the HPA `web`."""
    entries = [entry(f"{'p' * 200}-{number:04}", hpa="web", **changes) for number in range(count)]
    for one in entries:
        scene.index.policy_changed(None, one)
    return entries


@pytest.fixture
def scene() -> Scene:
    """With the HPA `web`."""
    scene = Scene()
    scene.index.hpa_changed(None, hpa())
    return scene


class TestOneTarget:
    def test_five_thousand_policies_are_marked_a_small_number_of_times_each(self, scene: Scene) -> None:
        crowd(scene, CROWD)
        assert len(scene.marks()) < CROWD * 1.1

    def test_what_a_policy_costs_does_not_grow_with_its_rivals(self) -> None:
        """Calls of functions, those of C included, on the way from the watch to the refusal."""

        def calls(count: int) -> float:
            scene, counted = Scene(), 0

            def count_call(_frame: FrameType, event: str, _argument: object) -> None:
                nonlocal counted
                counted += event in {"call", "c_call"}

            scene.index.hpa_changed(None, hpa())
            sys.setprofile(count_call)
            try:
                for one in crowd(scene, count):
                    scene.problem(one.name)
            finally:
                sys.setprofile(None)
            return counted / count

        assert calls(2000) < 1.1 * calls(500)

    def test_what_happens_to_the_target_its_hpa_and_its_pods_marks_none_of_them(self, scene: Scene) -> None:
        crowd(scene, CROWD)
        scene.marks()
        scene.index.target_changed(REF)
        scene.index.pod_changed(None, web_pods(1)[0])
        scene.index.queries_changed([KEY])
        scene.index.hpa_changed(hpa(), replace(hpa(), resource_version="2"))
        assert scene.marks() == []
        assert list(scene.index.links()) == []

    def test_each_is_refused_in_a_short_sentence_that_names_none(self, scene: Scene) -> None:
        entries = crowd(scene, CROWD)
        problems = {scene.problem(one.name) for one in entries}
        message = "PolicyConflict: Deployment web has other policies as well (more than 20); keep one"
        assert problems == {(409, Reason.CONFLICT, message)}

    def test_a_change_of_one_of_them_marks_that_one(self, scene: Scene) -> None:
        entries = crowd(scene, CROWD)
        scene.marks()
        scene.index.policy_changed(entries[0], replace(entries[0], generation=2))
        scene.index.policy_changed(entries[1], None)
        assert scene.marks() == [Key("shop", one.name) for one in entries[:2]]

    def test_the_last_that_are_few_enough_are_evaluated_and_the_only_one_decides(self, scene: Scene) -> None:
        entries = crowd(scene, MAX_POLICIES_PER_TARGET + 1)
        scene.marks()
        for gone in entries[1:]:
            scene.index.policy_changed(gone, None)
        assert scene.marks().count(Key("shop", entries[0].name)) == MAX_POLICIES_PER_TARGET
        assert scene.problem(entries[0].name) is None
        scene.index.pod_changed(None, web_pods(1)[0])
        assert scene.marks() == [Key("shop", entries[0].name)]

    def test_an_hpa_that_brings_its_crowd_to_a_target_marks_the_policy_there_and_so_when_it_leaves(self) -> None:
        scene = Scene()
        scene.index.hpa_changed(None, hpa("other"))
        scene.index.policy_changed(None, entry("alone", hpa="other"))
        scene.index.hpa_changed(None, hpa("web", "elsewhere"))
        crowd(scene, CROWD)
        for before, after, problem in (("elsewhere", "web", True), ("web", "elsewhere", False)):
            scene.marks()
            scene.index.hpa_changed(hpa("web", before), hpa("web", after))
            assert Key("shop", "alone") in scene.marks()
            assert bool(scene.problem("alone")) is problem

    def test_rivals_up_to_the_limit_are_named_five_and_counted(self, scene: Scene) -> None:
        for number in range(MAX_POLICIES_PER_TARGET):
            scene.index.policy_changed(None, entry(f"p{number:02}", hpa="web"))
        problem = scene.problem("p02")
        assert problem is not None
        assert "(p00, p01, p03, p04, p05 and 14 more)" in problem[2]

    def test_a_crowd_of_a_faulty_reference_follows_no_pods(self, scene: Scene) -> None:
        scene.index.hpa_changed(hpa(), replace(hpa(), target=hpa().target._replace(api_version="apps/..")))
        crowd(scene, 30)
        scene.marks()
        scene.index.pod_changed(None, web_pods(1)[0])
        assert scene.marks() == []


class CountedName(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    comparisons = 0

    def __lt__(self, other: str) -> bool:
        CountedName.comparisons += 1
        return super().__lt__(other)


def test_neighbours_of_a_target_are_sorted_once_however_many_ask() -> None:
    links = Links()
    for number in range(CROWD):
        name = CountedName(f"{'p' * 200}-{number:04}")
        links.put_hpa(name, hpa(name, "web"))
        links.put_policy(name, policy(name=name, hpa=name))
    names = [f"{'p' * 200}-{number:04}" for number in range(CROWD)]
    CountedName.comparisons = 0
    neighbours = {links.neighbours(name) for name in names}
    assert 0 < CountedName.comparisons < 20 * CROWD
    assert max(len(each.hpas) for each in neighbours) < 5 * 210 + 20
    assert next(iter(neighbours)).hpas.endswith("and 4994 more")
