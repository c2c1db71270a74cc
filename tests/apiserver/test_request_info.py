"""Request targets: paths, encodings, selectors, and the attributes to authorize."""

from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.apiserver.request_info import POLICIES_RESOURCE, Attributes, RequestKind, parse_target
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
    ("target", "kind", "attributes"),
    [
        (
            f"{SHOP}/pods/%2A/eff?labelSelector=app%3Dweb%2Ctier.example.com%2Fx%3Da",
            RequestKind.PODS,
            Attributes(*CUSTOM_V1BETA2, "pods", "eff", "*", "shop"),
        ),
        (f"{SHOP}/services/web/a+b", RequestKind.TARGET, Attributes(*CUSTOM_V1BETA2, "services", "a+b", "web", "shop")),
        (
            f"{SHOP}/{POLICIES_RESOURCE}/checkout/desired_replicas",
            RequestKind.POLICY,
            Attributes(*CUSTOM_V1BETA2, POLICIES_RESOURCE, "desired_replicas", "checkout", "shop"),
        ),
        (
            f"{SHOP}/{POLICIES_RESOURCE}/checkout/decision",
            RequestKind.DECISION,
            Attributes(*CUSTOM_V1BETA2, POLICIES_RESOURCE, "decision", "checkout", "shop"),
        ),
        (f"{SHOP}/metrics/nsm", RequestKind.TARGET, Attributes(*CUSTOM_V1BETA2, "metrics", "", "nsm", "shop")),
        (f"{BASE}/nodes/n1/load", RequestKind.TARGET, Attributes(*CUSTOM_V1BETA2, "nodes", "load", "n1", "")),
        (
            f"{EXTERNAL}/namespaces/default/depth?labelSelector=app%3Dweb%2Cservice%3Dcom.foo.Bar",
            RequestKind.EXTERNAL,
            Attributes("list", "external.metrics.k8s.io", "v1beta1", "depth", "", "", "default"),
        ),
        ("/apis/", RequestKind.OTHER, Attributes(path="/apis")),
        (f"{BASE}?timeout=32s", RequestKind.OTHER, Attributes(path=BASE)),
        ("/", RequestKind.OTHER, Attributes(path="/")),
    ],
)
def test_a_target_yields_its_kind_and_attributes(target: str, kind: RequestKind, attributes: Attributes) -> None:
    found = parse_target(target)
    assert (found.kind, found.attributes) == (kind, attributes)


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
