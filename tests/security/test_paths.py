"""Request targets that could be parsed differently for authorization and for the answer."""

import pytest
import trustme

from tests.apiserver.conftest import Service
from tests.security.raw_requests import METRIC, as_proxy, head, reviewed, statuses

CLOSE = "Connection: close"
METRIC_OF_SHOP = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop"
TWISTED = [
    "//apis/custom.metrics.k8s.io/v1beta2",
    "/apis//custom.metrics.k8s.io/v1beta2",
    f"/livez/..{METRIC}",
    f"/livez/%2e%2e{METRIC}",
    f"/livez/%2E./{METRIC}",
    f"/livez%2f..{METRIC}",
    f"/livez;a=b{METRIC}",
    f"/livez\\..{METRIC}",
    "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/../../../../version",
    f"{METRIC_OF_SHOP}/pods/%2e%2e/effective_cpu",
    f"{METRIC_OF_SHOP}%2f..%2fother/pods/%2A/effective_cpu",
    f"{METRIC_OF_SHOP}/pods/a%2Fb/effective_cpu",
    f"{METRIC_OF_SHOP}/pods/%2A/effective_cpu%00",
    f"{METRIC_OF_SHOP}/pods/%ff/effective_cpu",
    f"{METRIC_OF_SHOP}/pods/%252e%252e/effective_cpu",
    f"{METRIC_OF_SHOP}/pods//effective_cpu",
    "/APIS/custom.metrics.k8s.io/v1beta2",
]


@pytest.mark.parametrize("target", TWISTED)
async def test_a_manipulated_path_reaches_nothing_with_every_right(
    service: Service, proxy: trustme.LeafCert, target: str
) -> None:
    assert await statuses(service, proxy, head(target, *as_proxy(CLOSE))) in ([400], [404])


@pytest.mark.parametrize(
    "target",
    [
        f"http://evil.example{METRIC}",
        f"https://127.0.0.1{METRIC}",
        "http://evil.example/livez",
        "evil.example:443",
        "*",
        "livez",
        "?/livez",
        "/livez#/../apis",
    ],
)
@pytest.mark.parametrize("method", ["GET", "OPTIONS", "CONNECT"])
async def test_a_target_that_is_no_path_is_refused(
    service: Service, proxy: trustme.LeafCert, target: str, method: str
) -> None:
    [code] = await statuses(service, proxy, head(target, *as_proxy(CLOSE), method=method))
    assert code in {400, 404, 405}


async def test_what_is_authorized_is_what_is_answered(service: Service, proxy: trustme.LeafCert) -> None:
    """Escapes are decoded once, before authorization: the reviewed namespace is the one that is read."""
    service.cluster.may = lambda spec: spec.get("resourceAttributes", {}).get("namespace") == "shop"
    escaped = METRIC.replace("/shop/", "/%73hop/")
    assert await statuses(service, proxy, head(escaped, *as_proxy(CLOSE))) == [200]
    assert await statuses(service, proxy, head(METRIC.replace("/shop/", "/%2573hop/"), *as_proxy(CLOSE))) == [403]
    assert [one["namespace"] for one in reviewed(service)] == ["shop", "%73hop"]


async def test_the_host_header_is_ignored(service: Service, proxy: trustme.LeafCert) -> None:
    sent = head(METRIC, *as_proxy(CLOSE)).replace(b"Host: x", b"Host: evil.example")
    assert await statuses(service, proxy, sent) == [200]


@pytest.mark.parametrize("name", ["X-Original-URL", "X-Rewrite-URL", "X-Forwarded-Prefix", "X-HTTP-Method-Override"])
async def test_no_header_changes_the_requested_path(service: Service, proxy: trustme.LeafCert, name: str) -> None:
    service.cluster.may = lambda spec: "nonResourceAttributes" not in spec
    for value in (METRIC, "PUT"):
        assert await statuses(service, proxy, head("/version", *as_proxy(f"{name}: {value}", CLOSE))) == [403]
