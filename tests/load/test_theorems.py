"""The theorems of the law: whatever is missing, doubtful or late never lowers the count that is asked for.

Each compares two services that differ in one thing. The count of the one where less is known is never the smaller one,
unless the count rises in both.
"""

import os
from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from adapter.load.memory import Memory
from adapter.load.spec import PulledOut
from tests.load.kit import BOUNDS, pod
from tests.load.services import Service, calm_services, without_sample

EXAMPLES = settings(max_examples=int(os.environ["EFFECTIVE_LOAD_EXAMPLES"]))


def shrinking(service: Service) -> int:
    """The count asked for, of services that do not rise: theorems speak of the way down."""
    count = service.count()
    assume(count <= service.current)
    return count


@EXAMPLES
@given(calm_services(), st.data())
def test_a_whatever_a_registry_says_never_lowers_the_count(service: Service, data: st.DataObject) -> None:
    count = shrinking(service)
    words = st.sampled_from([True, False, None])
    said = {name: data.draw(words) for name in service.pods}
    other = replace(service, listed={name: word for name, word in said.items() if word is not None})
    assert other.count() >= count


@EXAMPLES
@given(calm_services(), st.data())
def test_a_a_registry_that_changes_its_word_never_lowers_the_count(service: Service, data: st.DataObject) -> None:
    count = shrinking(service)
    memory, _ = service.step()
    later = replace(service, memory=memory)
    for _ in range(3):
        words = st.sampled_from([True, True, False, None])
        said = {name: data.draw(words) for name in service.pods}
        later = replace(
            later, now=later.now + 30, listed={name: word for name, word in said.items() if word is not None}
        )
        memory, decision = later.step()
        assert (later.current if decision.desired is None else decision.desired) >= count
        later = replace(later, memory=memory)


@EXAMPLES
@given(calm_services(), st.data())
def test_b_a_lost_sample_never_lowers_the_count(service: Service, data: st.DataObject) -> None:
    count = shrinking(service)
    assert without_sample(service, data.draw(st.sampled_from(sorted(service.pods)))).count() >= count


@EXAMPLES
@given(calm_services(), st.integers(0, 299))
def test_c_a_pod_that_may_serve_soon_never_lowers_the_count(service: Service, age: int) -> None:
    count = shrinking(service)
    young = pod("web-99", ip="10.0.0.99", ready=False, age=float(age), ready_for=float(age))
    assert replace(service, pods=service.pods | {"web-99": young}).count() >= count


@EXAMPLES
@given(calm_services(), st.data())
def test_d_a_pod_that_left_never_lowers_the_count(service: Service, data: st.DataObject) -> None:
    assume(len(service.pods) > 1)
    count = shrinking(service)
    memory, _ = service.step()
    gone = data.draw(st.sampled_from(sorted(service.pods)))
    pods = {name: one for name, one in service.pods.items() if name != gone}
    assert replace(service, pods=pods, memory=memory).count() >= min(count, service.current)


@EXAMPLES
@given(calm_services(), st.data())
def test_d_pods_that_leave_one_after_the_other_never_lower_the_count(service: Service, data: st.DataObject) -> None:
    count = shrinking(service)
    for gone in data.draw(st.permutations(sorted(service.pods)))[: len(service.pods) // 2]:
        memory, _ = service.step()
        pods = {name: one for name, one in service.pods.items() if name != gone}
        service = replace(service, pods=pods, memory=memory, current=max(1, service.current - 1))
        assert service.count() >= min(count, service.current)


@EXAMPLES
@given(calm_services(), st.data(), st.integers(1, 500))
def test_e_a_larger_sample_never_lowers_the_count(service: Service, data: st.DataObject, more: int) -> None:
    count = shrinking(service)
    name = data.draw(st.sampled_from(sorted(service.pods)))
    assert replace(service, loads=service.loads | {name: (service.loads[name] or 0) + more}).count() >= count


@EXAMPLES
@given(calm_services(), st.floats(0, 600))
def test_f_a_fresh_process_never_asks_for_fewer_than_one_that_has_watched(service: Service, ago: float) -> None:
    count = shrinking(service)
    assert replace(service, memory=Memory(started_at=service.now - ago)).count() >= count


@EXAMPLES
@given(calm_services(), st.booleans())
def test_the_count_is_between_its_bounds(service: Service, replaces: bool) -> None:
    rule = replace(service.rule, pulled_out=PulledOut(replace=replaces, replace_after=0.0))
    decision = replace(service, rule=rule).decide()
    assert decision.desired is not None
    lower, upper = decision.lower_bound, decision.upper_bound
    moved = max(lower or 0, min(service.current, upper if upper is not None else service.current))
    assert decision.desired == max(BOUNDS.minimum, min(BOUNDS.maximum, moved)) or decision.held_by is not None
