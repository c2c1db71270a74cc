"""What a registry told marks the policies that name the service, and does not wait its turn."""

from adapter.evaluation.object_index import ObjectIndex
from adapter.registries.roster import ServiceKey
from adapter.snapshot import Key
from tests.evaluation.kit import KEY, entry
from tests.load.kit import REGISTRY


def test_a_changed_roster_marks_its_policies_soon_and_no_others() -> None:
    marked: list[Key] = []
    soon: list[Key] = []
    world = ObjectIndex(marked.append, lambda: None, soon.append)
    world.policy_changed(None, entry(registry=REGISTRY))
    world.policy_changed(None, entry("other"))
    marked.clear()
    world.roster_changed(ServiceKey(REGISTRY.name, REGISTRY.service))
    assert (marked, soon) == ([], [KEY])
