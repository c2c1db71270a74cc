"""The settings file: defaults, every fault at once, what needs a restart."""

from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from adapter.settings import (
    Settings,
    SettingsError,
    load_settings,
    needs_restart,
    own_namespace,
    parse_settings,
    server,
)
from tools.reference import field_docs, sections_of


def faults(text: str) -> dict[str, str]:
    """Path → advice of the faults in a settings text."""
    with pytest.raises(SettingsError) as caught:
        parse_settings(text)
    return {fault.path: fault.advice for fault in caught.value.faults}


def prometheus(server: str = "", query: str = "") -> str:
    servers = f"[{{name: main, url: 'http://prometheus:9090'{', ' if server else ''}{server}}}]"
    queries = f"[{{{query}}}]" if query else "[]"
    return f"prometheus: {{servers: {servers}, queries: {queries}}}"


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "{}", "server: {}\nprometheus: {}\n"])
def test_every_key_is_optional(text: str) -> None:
    assert parse_settings(text) == Settings()


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(
        """
server: {address: 127.0.0.1, port: 8443, externalMetrics: true, tls: {namespace: infra, injectCABundle: false}}
telemetry: {port: 9090}
logging: {level: debug, format: console}
kubernetes: {namespaces: [shop, pay]}
resourceMetrics: {intervalSeconds: 5, maxAgeSeconds: 45.5, timeoutSeconds: 2}
prometheus:
  inlineQueries: true
  servers:
  - name: main
    url: https://prometheus.example:9090/prefix
    username: reader
    passwordFile: /secrets/password
    caFile: /secrets/ca.crt
    headers: {X-Scope-OrgID: shop}
  - {name: other, url: 'http://[::1]:9090', bearerTokenFile: /secrets/token, timeoutSeconds: 1}
  queries:
  - {name: rps, server: main, query: 'sum by (namespace, pod) (x{namespace="$namespace", w=~"$workload-.*"})'}
  - {name: 'queue:depth', server: other, query: 'label_replace(x, "a", "$1", "b", "(.*)$")', scope: Service}
""",
        encoding="utf-8",
    )
    read = load_settings(file)
    assert (read.server.tls.namespace, read.server.tls.inject_ca_bundle) == ("infra", False)
    assert read.kubernetes.namespaces == ("shop", "pay")
    assert read.resource_metrics.max_age_seconds == 45.5
    main, other = read.prometheus.servers
    assert (main.username, main.password_file) == ("reader", "/secrets/password")
    assert (main.headers, other.timeout_seconds) == ({"X-Scope-OrgID": "shop"}, 1)
    assert [query.scope for query in read.prometheus.queries] == ["Pods", "Service"]


def test_every_fault_of_keys_and_entries_is_named_at_once_with_its_path() -> None:
    found = faults("""
server: {prot: 1, port: 70000, tls: {mode: Files, keyFile: k}}
logging: {level: loud}
telemetry: 5
resourceMetrics: {intervalSeconds: 100}
prometheus:
  servers:
  - {name: a, url: 'ftp://x'}
  - {name: b, url: 'http://h', username: u}
  queries:
  - {name: rps, server: b, query: 'x{n="$nodes"}'}
""")
    assert found.keys() == {
        "server.prot",
        "server.port",
        "server.tls.certFile",
        "logging.level",
        "telemetry",
        "resourceMetrics.maxAgeSeconds",
        "prometheus.servers[0].url",
        "prometheus.servers[1].passwordFile",
        "prometheus.queries[0].query",
    }
    assert "did you mean port?" in found["server.prot"]


def test_faults_between_entries_are_named_once_the_entries_are_valid() -> None:
    found = faults("""
prometheus:
  servers: [{name: a, url: 'http://x'}, {name: a, url: 'http://y'}]
  queries: [{name: rps, server: b, query: x}, {name: rps, server: a, query: x}]
""")
    assert found.keys() == {"prometheus.servers[1].name", "prometheus.queries[1].name"}
    found = faults("""
prometheus:
  servers: [{name: a, url: 'http://x'}]
  queries: [{name: rps, server: b, query: x}]
""")
    assert found == {"prometheus.queries[0].server": "is not among prometheus.servers (a); name one of them"}


@pytest.mark.parametrize(
    ("text", "path", "says"),
    [
        ("server: {external_metrics: true}", "server.external_metrics", "did you mean externalMetrics?"),
        ("server: {port: '6443'}", "server.port", "integer"),
        ("server: {externalMetrics: 1}", "server.externalMetrics", "boolean"),
        ("server: {tls: {mode: CertManager}}", "server.tls.mode", "'SelfSigned' or 'Files'"),
        ("server: {tls: {certFile: a}}", "server.tls.certFile", "mode: Files"),
        ("server: {tls: {secret: ''}}", "server.tls.secret", "may not be empty"),
        ("kubernetes: {namespaces: shop}", "kubernetes.namespaces", "array"),
        ("resourceMetrics: {timeoutSeconds: 0}", "resourceMetrics.timeoutSeconds", "greater than 0"),
        ("resourceMetrics: {timeoutSeconds: .inf}", "resourceMetrics.timeoutSeconds", "finite"),
        ("resourceMetrics: {maxAgeSeconds: 10}", "resourceMetrics.maxAgeSeconds", "more than intervalSeconds (10)"),
        (prometheus("caFile: a, insecureSkipVerify: true"), "prometheus.servers[0].insecureSkipVerify", "keep one"),
        (prometheus(query="server: main, query: up"), "prometheus.queries[0].name", "is missing"),
        (prometheus(query="name: rps, server: main, query: ''"), "prometheus.queries[0].query", "may not be empty"),
        (prometheus(query="name: rps, server: other, query: up"), "prometheus.queries[0].server", "(main)"),
        (prometheus(query="name: a/b, server: main, query: up"), "prometheus.queries[0].name", "letters, digits"),
        (prometheus(query="name: raw_x, server: main, query: up"), "prometheus.queries[0].name", "serves itself"),
        (prometheus(query="name: desired_replicas, server: main, query: up"), "prometheus.queries[0].name", "itself"),
        (prometheus(query="name: effective_x, server: main, query: up"), "prometheus.queries[0].name", "effective_*"),
        (prometheus(query="name: q, server: main, query: '$pod'"), "prometheus.queries[0].query", "$workload"),
        (prometheus(query="name: q, server: main, query: '${workload}'"), "prometheus.queries[0].query", "$workload"),
        (
            prometheus(query="name: q, server: main, query: up, maxAgeSeconds: 10"),
            "prometheus.queries[0].maxAgeSeconds",
            "more than intervalSeconds (15)",
        ),
        ("a: [", "", "is not YAML"),
        ("- server", "", "write a mapping of sections"),
        ("server: {port: 1}\nserver: {port: 2}\n", "", "more than once"),
    ],
)
def test_a_fault_says_what_to_do(text: str, path: str, says: str) -> None:
    found = faults(text)
    assert says in found[path]
    assert len(found) == 1


@pytest.mark.parametrize("url", ["prometheus:9090", "http://", "http://h:x", "http://h:0", "http://[::1", "http:///p"])
def test_an_address_without_scheme_or_host_is_refused(url: str) -> None:
    found = faults(f"prometheus: {{servers: [{{name: a, url: '{url}'}}]}}")
    assert "http:// or https://" in found["prometheus.servers[0].url"]


@pytest.mark.parametrize(
    "text",
    [
        prometheus("username: u, password: hush"),
        prometheus("passwordFile: [hush]"),
        prometheus("bearerToken: hush"),
        prometheus("headers: [hush]"),
        "prometheus: {servers: [{headers: {a: hush}, headers: {a: hush}}]}",
        "registries: [{name: a, type: Consul, servers: ['http://c'], token: hush, headers: {X: hush}}]",
        "companion: {notifications: {routes: [{name: a, urls: ['slack://hush', 5]}]}}",
        "companion: {notifications: {routes: [{name: a, urls: 'json://hush'}]}}",
        "companion: {notifications: {routes: [{name: a, urls: [{slack: hush}]}]}}",
        "companion: {a: hush}\ncompanion: {notifications: {routes: [{urls: [hush]}]}}",
    ],
)
def test_a_secret_in_the_wrong_place_is_not_repeated(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_settings(text)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        prometheus("headers: {Authorization: hush}"),
        "companion: {notifications: {routes: [{name: a, namespaces: ['*'], urls: ['slack://hush']}]}}",
    ],
)
def test_secrets_in_their_place_are_not_shown_in_logs(text: str) -> None:
    assert "hush" not in repr(parse_settings(text))


def test_a_missing_file_is_a_fault_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"absent\.yaml.*No such file"):
        load_settings(tmp_path / "absent.yaml")


def test_the_own_namespace_is_the_environments_else_the_accounts_else_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = tmp_path / "namespace"
    monkeypatch.setattr(server, "NAMESPACE_FILE", account)
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    assert own_namespace() == Settings().server.tls.namespace == "effective-load"
    account.write_text("from-account\n", encoding="utf-8")
    assert parse_settings("server: {port: 1}").server.tls.namespace == "from-account"
    monkeypatch.setenv("POD_NAMESPACE", "from-pod")
    assert parse_settings("server: {tls: {}}").server.tls.namespace == "from-pod"
    assert parse_settings("server: {tls: {namespace: said}}").server.tls.namespace == "said"


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings().server.port = 1  # type: ignore[misc]


def test_only_keys_that_are_read_at_the_start_need_a_restart() -> None:
    before = Settings()
    after = parse_settings("""
server: {port: 1, tls: {secret: other}}
telemetry: {port: 2}
kubernetes: {namespaces: [a]}
logging: {level: debug}
resourceMetrics: {intervalSeconds: 3}
prometheus: {inlineQueries: true}
upstreams: {custom: {url: 'https://a'}}
companion: {lease: other, leaseSeconds: 10, writesPerSecond: 5}
""")
    assert needs_restart(before, after) == (
        "server.port",
        "server.tls",
        "telemetry",
        "kubernetes",
        "upstreams",
        "companion.lease",
    )
    assert needs_restart(after, after) == ()


def _sections(model: type[BaseModel] = Settings) -> list[type[BaseModel]]:
    inner = [section for field in model.model_fields.values() for section in sections_of(field)]
    return [model, *(one for section in inner for one in _sections(section))]


def test_every_key_has_its_documentation() -> None:
    sections = _sections()
    assert len(sections) > 10
    for section in sections:
        assert field_docs(section).keys() | {"type"} == section.model_fields.keys() | {"type"}
