"""The section `upstreams`."""

import pytest
import trustme

from adapter.settings import Settings, SettingsError, needs_restart, parse_settings

PEM = trustme.CA().cert_pem.bytes().decode()
SERVED = "server: {externalMetrics: true}\n"


def indented(text: str) -> str:
    return "".join(f"      {line}\n" for line in text.splitlines())


def test_both_groups_are_read_with_their_defaults() -> None:
    text = f"{SERVED}upstreams:\n  custom:\n    url: https://adapter.monitoring.svc\n    caBundle: |\n{indented(PEM)}"
    text += (
        "  external: {url: 'https://keda.keda.svc:443/', caFile: /ca.crt, bearerTokenFile: /token, timeoutSeconds: 2}\n"
    )
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
        ("custom: {url: 'https://u:p@a'}", "upstreams.custom.url", "carries a user"),
        ("custom: {url: keda}", "upstreams.custom.url", "write http:// or https://"),
        ("custom: {url: 'https://a', caBundle: TFMwdExR}", "upstreams.custom.caBundle", "decode it first"),
        ("custom: {url: 'https://a', caBundle: 'é'}", "upstreams.custom.caBundle", "PEM text"),
        ("custom: {url: 'https://a', insecureSkipVerify: true}", "upstreams.custom.insecureSkipVerify", "no such key"),
        (
            "custom: {url: 'https://a', timeoutSeconds: 60}",
            "upstreams.custom.timeoutSeconds",
            "less than or equal to 30",
        ),
        ("custom: {url: 'https://a', maxAnswerMiB: 0}", "upstreams.custom.maxAnswerMiB", "greater than or equal to 1"),
        ("resource: {url: 'https://a'}", "upstreams.resource", "there are custom, external"),
        ("external: {url: 'https://a'}", "upstreams.external", "is unused while server.externalMetrics is false"),
    ],
)
def test_a_fault_is_named_with_its_path_and_what_to_do(written: str, path: str, says: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_settings(f"upstreams: {{{written}}}")
    assert [(fault.path, says in fault.advice) for fault in caught.value.faults] == [(path, True)]


def test_one_source_of_authorities_is_enough() -> None:
    text = f"upstreams:\n  custom:\n    url: https://a\n    caFile: /ca.crt\n    caBundle: |\n{indented(PEM)}"
    with pytest.raises(SettingsError, match="has both caFile and caBundle; keep one"):
        parse_settings(text)


def test_no_answer_may_be_larger_than_all_together() -> None:
    text = "answers: {maxTotalMiB: 3}\nupstreams: {custom: {url: 'https://a'}}\nresourceMetrics: {maxAnswerMiB: 2}"
    with pytest.raises(SettingsError) as caught:
        parse_settings(text)
    assert [fault.path for fault in caught.value.faults] == ["upstreams.custom.maxAnswerMiB"]


def test_an_upstream_changes_while_running() -> None:
    before = parse_settings("")
    after = parse_settings("upstreams: {custom: {url: 'https://a'}}")
    assert needs_restart(before, after) == needs_restart(after, before) == ()
