"""Who owns what of an HPA's behavior."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.policy.hpa import FIELD_MANAGER, FieldManagers, read_field_managers


def entry(manager: str, *fields: str, time: str = "2026-01-01T12:00:00Z", **more: Any) -> dict[str, Any]:
    """An entry of managedFields for fields such as `scaleUp.tolerance`."""
    behavior: dict[str, Any] = {}
    for one in fields:
        direction, _, name = one.partition(".")
        behavior.setdefault(f"f:{direction}", {".": {}})[f"f:{name}"] = {}
    spec = {"f:maxReplicas": {}, "f:behavior": {".": {}, **behavior}}
    return {"manager": manager, "time": time, "fieldsV1": {"f:spec": spec}, **more}


def test_each_field_has_its_owners() -> None:
    found = read_field_managers(
        [entry(FIELD_MANAGER, "scaleUp.tolerance"), entry("flux", "scaleUp.tolerance", "scaleDown.policies")]
    )
    assert found.owners == {"scaleUp.tolerance": (FIELD_MANAGER, "flux"), "scaleDown.policies": ("flux",)}
    assert found.others("scaleUp.tolerance") == ("flux",)
    assert found.others("scaleUp.policies") == ()


def test_the_last_writer_is_the_latest_of_the_others() -> None:
    early, late = "2026-01-01T12:00:00Z", "2026-01-01T12:00:05Z"
    found = read_field_managers(
        [entry("argo", time=late), entry("kubectl", time=early), entry(FIELD_MANAGER, time="2027")]
    )
    assert found.last == "argo"


def test_who_writes_the_status_writes_no_spec() -> None:
    status = {"manager": "kube-controller-manager", "subresource": "status", "fieldsV1": {"f:status": {}}}
    assert (
        read_field_managers([entry("argo"), status, entry("scaler", subresource="scale", time="2027")]).last == "argo"
    )


@pytest.mark.parametrize("nonsense", [None, [], [{}], [None], [{"manager": "a", "fieldsV1": {"f:spec": None}}], {}])
def test_without_managed_fields_nobody_owns_anything(nonsense: object) -> None:
    assert read_field_managers(nonsense) == FieldManagers()


@given(
    st.recursive(
        st.none() | st.text(max_size=3) | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(st.sampled_from(["fieldsV1", "f:spec", "f:behavior", "f:scaleUp", "time"]), inner)
        ),
        max_leaves=6,
    )
)
def test_nothing_breaks_it(nonsense: object) -> None:
    assert isinstance(read_field_managers(nonsense), FieldManagers)
