"""What is applied to a cluster fits the schemas of Kubernetes 1.30 to 1.37; `tests/versions` runs the newer ones."""

import copy
import functools
import json
import warnings
from collections.abc import Iterator

import pytest

from tests.manifests.rendering import MANIFESTS, Object, documents, render_with
from tests.migrate.kit import hpa, migrated, policy

VERSIONS = ["1.30", "1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37"]
HPA = "HorizontalPodAutoscaler"
OTHERS = ("effective-load.io/", "cert-manager.io/", "monitoring.coreos.com/")
"""Groups that are no part of Kubernetes."""


def schema_faults(item: Object, version: str) -> Iterator[str]:
    """What is wrong with an object by Kubernetes' own schema, unknown fields included."""
    with warnings.catch_warnings():
        # Its own imports use what newer libraries deprecate.
        warnings.simplefilter("ignore")
        from kubernetes_validate import utils
    # It would read a version's definitions, megabytes of JSON, anew for each object.
    if not hasattr(utils.schema_contents, "cache_info"):
        utils.schema_contents = functools.lru_cache(maxsize=8)(utils.schema_contents)
    try:
        utils.validate(item, version, strict=True)
    except utils.ValidationError as error:
        yield f"{'.'.join(map(str, error.path))}: {error.message}"


def without_tolerance(item: Object) -> Object:
    bare = copy.deepcopy(item)
    for rules in bare["spec"]["behavior"].values():
        rules.pop("tolerance", None)
    return bare


def applied() -> Iterator[Object]:
    """The objects of the manifests, and those that `migrate` writes."""
    for component in sorted(path.parent.name for path in MANIFESTS.glob("components/*/kustomization.yaml")):
        yield from render_with(MANIFESTS / "base", [component])
    for file in sorted((MANIFESTS / "examples").glob("*.yaml")):
        yield from documents(file)
    for one in (policy(), hpa()):
        yield from migrated(one).pairs[0].objects


@pytest.fixture(scope="module")
def objects() -> list[Object]:
    bare = [without_tolerance(item) if item["kind"] == HPA else item for item in applied()]
    return list({json.dumps(item, sort_keys=True, default=str): item for item in bare}.values())


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_fits_the_schema_of_its_kind(version: str, objects: list[Object]) -> None:
    faults = [
        f"{item['kind']} {item['metadata']['name']}: {fault}"
        for item in objects
        if not item["apiVersion"].startswith(OTHERS)
        for fault in schema_faults(item, version)
    ]
    assert not faults


@pytest.mark.parametrize("version", VERSIONS)
def test_an_hpa_with_a_tolerance_fits_from_1_33_on(version: str) -> None:
    """Until 1.34 the API server drops the field; `kubectl apply` refuses it where the schema has none."""
    (written,) = migrated(policy()).pairs[0].objects
    assert bool(list(schema_faults({**written}, version))) is (version < "1.33")
