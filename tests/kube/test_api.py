"""Resources of the API and their paths."""

import pytest

from adapter.kube.api import API_SERVICES, HPAS, PODS, WATERMARK_POLICIES
from adapter.kube.errors import KubeError


def test_the_core_group_and_others_have_their_paths() -> None:
    assert PODS.collection() == "/api/v1/pods"
    assert PODS.path("shop", "web-0") == "/api/v1/namespaces/shop/pods/web-0"
    assert HPAS.collection("shop") == "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers"
    assert API_SERVICES.path("", "v1.apps") == "/apis/apiregistration.k8s.io/v1/apiservices/v1.apps"


def test_a_resource_is_named_with_its_group() -> None:
    assert (PODS.group, PODS.name) == ("", "pods")
    assert WATERMARK_POLICIES.name == "watermarkpolicies.effective-load.io"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b"])
def test_no_name_turns_an_object_s_path_into_another(name: str) -> None:
    with pytest.raises(KubeError):
        PODS.path("shop", name)
