"""The section `upstreams`."""

import json

import pytest
import trustme

from adapter.settings import Settings, parse_settings
from tests.settings.test_settings import faults

PEM = trustme.CA().cert_pem.bytes().decode()


def test_both_groups_are_read_with_their_defaults() -> None:
    custom = f"{{url: https://adapter.monitoring.svc, caBundle: {json.dumps(PEM)}}}"
    external = "{url: 'https://keda.keda.svc:443/', caFile: /ca.crt, bearerTokenFile: /token, timeoutSeconds: 2}"
    text = f"server: {{externalMetrics: true}}\nupstreams: {{custom: {custom}, external: {external}}}"
    upstreams = parse_settings(text).upstreams
    assert upstreams.custom is not None
    assert upstreams.external is not None
    assert (upstreams.custom.timeout_seconds, upstreams.custom.max_answer_mib) == (3, 4)
    assert upstreams.custom.access.ca.strip() == PEM.strip()
    assert (upstreams.external.access.ca_file, upstreams.external.access.bearer_token_file) == ("/ca.crt", "/token")
    assert not upstreams.custom.access.insecure_skip_verify


def test_nobody_stands_behind_us_by_default() -> None:
    assert (Settings().upstreams.custom, Settings().upstreams.external) == (None, None)


@pytest.mark.parametrize(
    ("written", "path", "says"),
    [
        ("custom: {}", "upstreams.custom.url", "is missing"),
        ("custom: {url: 'http://a'}", "upstreams.custom.url", "write https://"),
        ("custom: {url: 'https://a/apis'}", "upstreams.custom.url", "has a path"),
        ("custom: {url: 'https://a?x=1'}", "upstreams.custom.url", "query or fragment"),
        ("custom: {url: 'https://u:p@a'}", "upstreams.custom.url", "contains a user"),
        ("custom: {url: keda}", "upstreams.custom.url", "write http:// or https://"),
        ("custom: {url: 'https://a', caBundle: TFMwdExR}", "upstreams.custom.caBundle", "decode the base64"),
        ("custom: {url: 'https://a', caBundle: 'é'}", "upstreams.custom.caBundle", "PEM text"),
        ("custom: {url: 'https://a', insecureSkipVerify: true}", "upstreams.custom.insecureSkipVerify", "no such key"),
        (
            f"custom: {{url: 'https://a', caFile: /ca.crt, caBundle: {json.dumps(PEM)}}}",
            "upstreams.custom",
            "has both caFile and caBundle; keep one",
        ),
        ("custom: {url: 'https://a', maxAnswerMiB: 300}", "upstreams.custom.maxAnswerMiB", "less than or equal to 64"),
        ("resource: {url: 'https://a'}", "upstreams.resource", "there are custom, external"),
        ("external: {url: 'https://a'}", "upstreams.external", "is unused while server.externalMetrics is false"),
    ],
)
def test_a_fault_is_named_with_its_path_and_what_to_do(written: str, path: str, says: str) -> None:
    found = faults(f"upstreams: {{{written}}}")
    assert [(where, says in advice) for where, advice in found.items()] == [(path, True)]
