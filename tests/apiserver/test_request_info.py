"""Request targets: paths, encodings, selectors, and the attributes to authorize."""

import contextlib
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.apiserver.request_info import Attributes, RequestKind, parse_target
from adapter.apiserver.status import StatusError
from adapter.kube.selectors import LabelSelector, parse_selector

BASE = "/apis/custom.metrics.k8s.io/v1beta2"
SHOP = f"{BASE}/namespaces/shop"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"

metric_names = st.text(st.characters(exclude_characters="/", codec="utf-8"), min_size=1, max_size=50).filter(
    lambda text: text not in {".", ".."}
)
selectors = st.sampled_from(["a", "!a", "a=b", "a!=b,c in (d,e)", "example.com/a notin (b,c)", "a>5", "a="]).map(
    parse_selector
)


CUSTOM_V1BETA2 = ("get", "custom.metrics.k8s.io", "v1beta2")


@pytest.mark.parametrize(
    ("target", "kind", "attributes", "metric"),
    [
        (
            f"{SHOP}/pods/%2A/eff?labelSelector=app%3Dweb%2Ctier.example.com%2Fx%3Da",
            RequestKind.PODS,
            Attributes(*CUSTOM_V1BETA2, "pods", "eff", "*", "shop"),
            "eff",
        ),
        (
            f"{SHOP}/services/web/a+b",
            RequestKind.TARGET,
            Attributes(*CUSTOM_V1BETA2, "services", "a+b", "web", "shop"),
            "a+b",
        ),
        (
            f"{SHOP}/watermarkpolicies.effective-load.io/checkout/desired_replicas",
            RequestKind.POLICY,
            Attributes(*CUSTOM_V1BETA2, "watermarkpolicies.effective-load.io", "desired_replicas", "checkout", "shop"),
            "desired_replicas",
        ),
        (
            f"{SHOP}/metrics/nsm",
            RequestKind.TARGET,
            Attributes(*CUSTOM_V1BETA2, "metrics", "", "nsm", "shop"),
            "nsm",
        ),
        (f"{BASE}/nodes/n1/load", RequestKind.TARGET, Attributes(*CUSTOM_V1BETA2, "nodes", "load", "n1", ""), "load"),
        (
            f"{EXTERNAL}/namespaces/default/depth?labelSelector=app%3Dweb%2Cservice%3Dcom.foo.Bar",
            RequestKind.EXTERNAL,
            Attributes("list", "external.metrics.k8s.io", "v1beta1", "depth", "", "", "default"),
            "depth",
        ),
        ("/apis", RequestKind.OTHER, Attributes(path="/apis"), ""),
        ("/apis/", RequestKind.OTHER, Attributes(path="/apis"), ""),
        ("/apis/custom.metrics.k8s.io", RequestKind.OTHER, Attributes(path="/apis/custom.metrics.k8s.io"), ""),
        (f"{BASE}?timeout=32s", RequestKind.OTHER, Attributes(path=BASE), ""),
        ("/openapi/v3", RequestKind.OTHER, Attributes(path="/openapi/v3"), ""),
        ("/", RequestKind.OTHER, Attributes(path="/"), ""),
    ],
)
def test_a_target_yields_its_kind_attributes_and_metric(
    target: str, kind: RequestKind, attributes: Attributes, metric: str
) -> None:
    found = parse_target(target)
    assert (found.kind, found.attributes, found.metric) == (kind, attributes, metric)


@given(st.lists(metric_names, min_size=3, max_size=3), selectors, selectors)
def test_any_names_and_selectors_survive_the_encoding_of_the_aggregator(
    parts: list[str], labels: LabelSelector, series: LabelSelector
) -> None:
    namespace, name, metric = parts
    path = "/".join(quote(part, safe="") for part in ("namespaces", namespace, "pods", name, metric))
    query = urlencode({"labelSelector": str(labels), "metricLabelSelector": str(series)})
    found = parse_target(f"{BASE}/{path}?{query}")
    assert (found.namespace, found.name, found.metric) == (namespace, name, metric)
    assert (found.labels, found.series) == (labels, series)


@given(st.text(st.characters(codec="utf-8")))
def test_any_target_is_read_or_refused(text: str) -> None:
    for target in (text, f"/{text}", f"{BASE}/{text}", f"{SHOP}/pods/p/m?{text}"):
        with contextlib.suppress(StatusError):
            found = parse_target(target)
            assert found.attributes.path or found.attributes.resource


@pytest.mark.parametrize(
    ("target", "code", "says"),
    [
        (f"{BASE}/namespaces/d/foo", 400, "invalid request path"),
        (f"{BASE}/namespaces/d", 400, "invalid request path"),
        (f"{BASE}/namespaces//pods/%2A/eff", 400, "invalid request path"),
        (f"{SHOP}/pods/a/b/c", 400, "invalid request path"),
        (f"{EXTERNAL}/namespaces/d/a/b", 400, "invalid request path"),
        ("/apis/custom.metrics.k8s.io/v9/namespaces/d/pods/a/b", 400, "invalid request path"),
        (f"{SHOP}/pods/%2e%2e/eff", 400, "'..'"),
        (f"{SHOP}/pods/a%2Fb/eff", 400, "'/'"),
        (f"{SHOP}/pods/%ff/eff", 400, "UTF-8"),
        (f"{SHOP}/pods/%zz/eff", 400, "invalid request path"),
        ("http://other.example/apis", 400, "invalid request path"),
        (f"{SHOP}/pods/%2A/eff?labelSelector=a+b", 400, "invalid labelSelector"),
        (f"{SHOP}/pods/%2A/eff?metricLabelSelector=%3D%3D", 400, "invalid metricLabelSelector"),
        (f"{SHOP}/pods/%2A/eff?labelSelector=a&labelSelector=b", 400, "given twice"),
        (f"{SHOP}/pods/%2A/eff?labelSelector=%ff", 400, "UTF-8"),
        (f"{SHOP}/pods/%2A/eff?fieldSelector=metadata.name%3Da", 400, "fieldSelector"),
        (f"{SHOP}/pods/%2A/eff?watch=true", 405, "watch"),
    ],
)
def test_an_invalid_target_has_an_error_message(target: str, code: int, says: str) -> None:
    with pytest.raises(StatusError) as caught:
        parse_target(target)
    assert (caught.value.code, says in caught.value.message) == (code, True)
