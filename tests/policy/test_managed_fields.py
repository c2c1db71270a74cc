"""Who owns what of an HPA's behavior."""

from typing import Any

import pytest

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


def test_the_last_writer_is_the_latest_of_the_others_that_write_the_spec() -> None:
    late = "2026-01-01T12:00:05Z"
    status = {"manager": "kube-controller-manager", "subresource": "status", "fieldsV1": {"f:status": {}}}
    scale = entry("scaler", subresource="scale", time="2027")
    ours = entry(FIELD_MANAGER, time="2027")
    assert read_field_managers([entry("argo", time=late), entry("kubectl"), ours, status, scale]).last == "argo"


@pytest.mark.parametrize("nonsense", [None, [], [{}], [None], [{"manager": "a", "fieldsV1": {"f:spec": None}}], {}])
def test_without_managed_fields_nobody_owns_anything(nonsense: object) -> None:
    assert read_field_managers(nonsense) == FieldManagers()
