"""The settings file: defaults, every fault at once with its path and remedy, secrets, what needs a restart, changes."""

import json
from pathlib import Path
from typing import get_args

import pytest
import trustme
from pydantic import BaseModel

from adapter.settings import (
    Settings,
    SettingsError,
    SettingsFile,
    load_settings,
    needs_restart,
    own_namespace,
    parse_settings,
    server,
)
from adapter.settings.base import type_of
from adapter.settings.companion import Severity, Topic
from adapter.settings.registries import Registry
from tools.reference import field_docs, sections_of

PEM = json.dumps(trustme.CA().cert_pem.bytes().decode())


def faults(text: str) -> dict[str, str]:
    """Path → advice of the faults in a settings text."""
    with pytest.raises(SettingsError) as caught:
        parse_settings(text)
    return {fault.path: fault.advice for fault in caught.value.faults}


def prometheus(server: str = "", query: str = "") -> str:
    servers = f"[{{name: main, url: 'http://prometheus:9090'{', ' if server else ''}{server}}}]"
    queries = f"[{{{query}}}]" if query else "[]"
    return f"prometheus: {{servers: {servers}, queries: {queries}}}"


def registry(keys: str, kind: str = "Consul", servers: str = "['https://c']") -> str:
    return f"registries: [{{name: a, type: {kind}, servers: {servers}, {keys}}}]"


def route(**changes: object) -> str:
    lines = {"name": "oncall", "urls": "[json://a]", "namespaces": "['*']", **changes}
    inner = ", ".join(f"{key}: {value}" for key, value in lines.items() if value is not None)
    return f"companion: {{notifications: {{routes: [{{{inner}}}]}}}}"


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "server: {}\nprometheus: {}\n"])
def test_every_key_is_optional(text: str) -> None:
    assert parse_settings(text) == Settings()


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(
        f"""
server: {{address: 127.0.0.1, port: 8443, externalMetrics: true, tls: {{namespace: infra, injectCABundle: false}}}}
prometheus:
  servers:
  - name: main
    url: https://prometheus.example:9090/prefix
    username: reader
    passwordFile: /secrets/password
    headers: {{X-A: shop}}
    headerFiles: {{X-Scope-OrgID: /etc/tenant/id}}
  - {{name: other, url: 'http://[::1]:9090', bearerTokenFile: /secrets/token, timeoutSeconds: 1}}
  queries:
  - {{name: rps, server: main, query: 'sum by (namespace, pod) (x{{namespace="$namespace", w=~"$workload-.*"}})'}}
  - {{name: 'queue:depth', server: other, query: 'label_replace(x, "a", "$1", "b", "(.*)$")', scope: Service}}
upstreams:
  custom: {{url: https://adapter.monitoring.svc, caBundle: {PEM}}}
  external: {{url: 'https://keda.keda.svc:443/', caFile: /ca.crt, bearerTokenFile: /token, timeoutSeconds: 2}}
registries:
- {{name: prod, type: Nacos, servers: ["http://nacos:8848/nacos"], username: adapter, passwordFile: /etc/pw}}
- {{name: mesh, type: Consul, servers: ["https://consul:8501"], tokenFile: /etc/token, tls: {{caFile: /etc/ca.pem}}}}
- {{name: dubbo, type: ZooKeeper, layout: DubboInterface, servers: ["zk-0:2181", "[fd00::1]:2181"]}}
- {{name: own, type: HTTP, url: "https://platform"}}
{route(urls=None, urlFile="/f", events="[scaled, atMaximum]", severities="[critical]", default="true")}
""",
        encoding="utf-8",
    )
    read = load_settings(file)
    main, _ = read.prometheus.servers
    assert (main.username, main.password_file) == ("reader", "/secrets/password")
    assert [query.scope for query in read.prometheus.queries] == ["Pods", "Service"]
    custom, external = read.upstreams.custom, read.upstreams.external
    assert custom is not None
    assert external is not None
    assert (custom.timeout_seconds, custom.max_answer_mib, custom.access.insecure_skip_verify) == (3, 4, False)
    assert custom.access.ca == json.loads(PEM)
    assert (external.access.ca_file, external.access.bearer_token_file) == ("/ca.crt", "/token")
    assert [type_of(type(one)) for one in read.registries] == ["Nacos", "Consul", "ZooKeeper", "HTTP"]
    assert read.registries[1].tls.ca_file == "/etc/ca.pem"
    (found,) = read.companion.notifications.routes
    assert (found.url_file, found.urls, found.default) == ("/f", (), True)
    assert (found.events, found.severities) == ((Topic.SCALED, Topic.AT_MAXIMUM), (Severity.CRITICAL,))


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
        "server.prot", "server.port", "server.tls.certFile", "logging.level", "telemetry",
        "resourceMetrics.maxAgeSeconds", "prometheus.servers[0].url", "prometheus.servers[1].passwordFile",
        "prometheus.queries[0].query",
    }  # fmt: skip
    assert "did you mean port?" in found["server.prot"]


def test_faults_between_entries_are_named_once_the_entries_are_valid() -> None:
    found = faults("""
prometheus:
  servers: [{name: a, url: 'http://x'}, {name: a, url: 'http://y'}]
  queries: [{name: rps, server: b, query: x}, {name: rps, server: a, query: x}]
""")
    assert found.keys() == {"prometheus.servers[1].name", "prometheus.queries[1].name"}


SERVER, QUERY, ENTRY = "prometheus.servers[0]", "prometheus.queries[0]", "registries[0]"
ROUTE, CUSTOM = "companion.notifications.routes[0]", "upstreams.custom"
PLATFORM = "registries: [{type: HTTP, name: own, url: 'http://platform', %s}]"


def upstream(keys: str, group: str = "custom") -> str:
    return f"upstreams: {{{group}: {{{keys}}}}}"


@pytest.mark.parametrize(
    ("text", "path", "says"),
    [
        ("server: {external_metrics: true}", "server.external_metrics", "did you mean externalMetrics?"),
        ("server: {tls: {mode: CertManager}}", "server.tls.mode", "'SelfSigned' or 'Files'"),
        ("server: {tls: {certFile: a}}", "server.tls.certFile", "mode: Files"),
        ("resourceMetrics: {timeoutSeconds: .inf}", "resourceMetrics.timeoutSeconds", "finite"),
        ("resourceMetrics: {maxAgeSeconds: 10}", "resourceMetrics.maxAgeSeconds", "more than intervalSeconds (10)"),
        ("a: [", "", "is not YAML"),
        ("- server", "", "write a mapping of sections"),
        ("server: {port: 1}\nserver: {port: 2}\n", "", "more than once"),
        (prometheus("caFile: a, insecureSkipVerify: true"), f"{SERVER}.insecureSkipVerify", "keep one"),
        (prometheus(query="name: rps, server: main, query: ''"), f"{QUERY}.query", "may not be empty"),
        (prometheus(query="name: rps, server: b, query: up"), f"{QUERY}.server", "not among prometheus.servers (main)"),
        (prometheus(query="name: a/b, server: main, query: up"), f"{QUERY}.name", "letters, digits"),
        (prometheus(query="name: desired_replicas, server: main, query: up"), f"{QUERY}.name", "itself"),
        (prometheus(query="name: q, server: main, query: '$pod'"), f"{QUERY}.query", "$workload"),
        (prometheus(query="name: q, server: main, query: '${workload}'"), f"{QUERY}.query", "$workload"),
        ("registries: [{name: a}]", ENTRY, "has no type; write one of Nacos"),
        ("registries: [{name: a, type: Nacoss}]", ENTRY, "unknown type (Nacoss)"),
        ("registries: [{name: a, type: Nacos}]", f"{ENTRY}.servers", "is missing"),
        ("registries: [{name: h, type: HTTP, url: 'http://h?x=1'}]", f"{ENTRY}.url", "ends in a query"),
        (registry("interval: 1", "Nacos"), f"{ENTRY}.interval", "intervalSeconds"),
        (registry("tls: {ca: x}"), f"{ENTRY}.tls.ca", "there are caFile, certFile"),
        (registry("tls: {keyFile: f}"), f"{ENTRY}.tls.certFile", "missing"),
        (registry("layout: Curator", "ZooKeeper", "['http://zk']"), f"{ENTRY}.servers[0]", "host:port"),
        (registry("username: u", "Eureka"), f"{ENTRY}.passwordFile", "missing beside username"),
        (registry("passwordFile: f", "Eureka"), f"{ENTRY}.username", "missing beside passwordFile"),
        (registry("accessKeyFile: f", "Nacos"), f"{ENTRY}.secretKeyFile", "missing beside accessKeyFile"),
        ("registries: [{name: kubernetes, type: Consul, servers: ['https://c']}]", f"{ENTRY}.name", "choose another"),
        (prometheus("username: u, passwordFile: f, bearerTokenFile: t"), SERVER, "both bearerTokenFile and username"),
        (upstream("url: 'http://a'"), f"{CUSTOM}.url", "write https://"),
        (upstream("url: 'https://a/apis'"), f"{CUSTOM}.url", "has a path"),
        (upstream("url: 'https://a', caBundle: TFMwdExR"), f"{CUSTOM}.caBundle", "decode the base64"),
        (upstream(f"url: 'https://a', caFile: /c, caBundle: {PEM}"), CUSTOM, "keep one"),
        (upstream("url: 'https://a', insecureSkipVerify: true"), f"{CUSTOM}.insecureSkipVerify", "no such"),
        (upstream("url: 'https://a'", "external"), "upstreams.external", "unused while server.externalMetrics is"),
        (route(urls=None), ROUTE, "exactly one of urlFile and urls"),
        (route(template="'$polcy'"), f"{ROUTE}.template", "is unknown, did you mean policy?"),
        (route(title="'costs 5$'"), f"{ROUTE}.title", "write $$ for a dollar"),
        (route(events="[scald]"), f"{ROUTE}.events[0]", "'scaled', 'versionMismatch'"),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_path_and_what_to_do(text: str, path: str, says: str) -> None:
    found = faults(text)
    assert list(found) == [path]
    assert says in found[path]


@pytest.mark.parametrize("template", [prometheus("%s"), PLATFORM])
@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ("headerFiles: {'X Key': /a}", "is an invalid header name"),
        ('headers: {"X-Key\\r\\nX-Remote-User": a}', "is an invalid header name"),
        ('headers: {X-Key: "hush\\r\\nX-Remote-User: admin"}', "one line of printable characters"),
        ("headerFiles: {X-Key: ''}", "the path of a file"),
        ("headers: {x-key: a}, headerFiles: {X-Key: /a}", "is set by another key as well"),
        ("bearerTokenFile: /t, headerFiles: {authorization: /a}", "is set by another key as well"),
        ("headers: {Host: other}", "is set by the adapter itself"),
    ],
)
def test_headers_that_cannot_be_sent_are_refused_without_their_values(template: str, keys: str, why: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_settings(template % keys)
    assert why in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("url", ["prometheus:9090", "http://", "http://h:x", "http://h:0", "http://[::1", "http:///p"])
def test_an_address_without_scheme_or_host_is_refused(url: str) -> None:
    found = faults(f"prometheus: {{servers: [{{name: a, url: '{url}'}}]}}")
    assert "http:// or https://" in found["prometheus.servers[0].url"]


@pytest.mark.parametrize(
    "text",
    [
        prometheus("username: u, password: hush"),
        prometheus("passwordFile: [hush]"),
        "prometheus: {servers: [{headers: {a: hush}, headers: {a: hush}}]}",
        registry("token: hush, headers: {X: hush}"),
        route(urls="['slack://hush', 5]"),
        route(urls="[{slack: hush}]"),
        "companion: {a: hush}\ncompanion: {notifications: {routes: [{urls: [hush]}]}}",
        *(
            document.format(url)
            for url in ("ftp://me:hush@host", "http://me:hush@host", "http://host?token=hush", "//a:hush@b")
            for document in (
                "prometheus: {{servers: [{{name: a, url: '{}'}}]}}",
                "upstreams: {{custom: {{url: '{}'}}}}",
            )
        ),
    ],
)
def test_a_secret_in_the_wrong_place_is_not_repeated(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_settings(text)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("text", [prometheus("headers: {Authorization: hush}"), route(urls="['slack://hush']")])
def test_secrets_in_their_place_are_not_shown_in_logs(text: str) -> None:
    assert "hush" not in repr(parse_settings(text))


@pytest.mark.parametrize("kind", get_args(Registry), ids=type_of)
def test_every_trait_of_a_registry_names_its_own_fields_and_the_credentials_are_files(kind: type[Registry]) -> None:
    fields = kind.model_fields
    assert kind.address_field in fields
    named = {one for names in kind.credential_fields for one in names}
    assert named <= fields.keys()
    secrets = {name for name in fields if name.endswith(("token_file", "password_file", "key_file"))}
    assert {one for one in named if one.endswith("_file")} == secrets


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
    for section in _sections():
        assert field_docs(section).keys() | {"type"} == section.model_fields.keys() | {"type"}


class TestFile:
    """A file that changes while the adapter runs."""

    def test_rewriting_is_seen_and_touching_is_not(self, tmp_path: Path) -> None:
        (file := tmp_path / "settings.yaml").write_text("", encoding="utf-8")
        watched = SettingsFile(file)
        assert watched.changed() == Settings()
        file.touch()
        assert watched.changed() is None
        file.write_text("logging: {level: debug}", encoding="utf-8")
        assert watched.changed() == parse_settings("logging: {level: debug}")

    def test_a_configmaps_symlink_swap_is_seen(self, tmp_path: Path) -> None:
        """As the kubelet does it: settings.yaml → ..data/settings.yaml, and ..data → the latest of dated folders."""
        texts = {"..1": "logging: {level: info}", "..2": "logging: {level: debug}"}
        for version, text in texts.items():
            (tmp_path / version).mkdir()
            (tmp_path / version / "settings.yaml").write_text(text, encoding="utf-8")
        (tmp_path / "..data").symlink_to("..1")
        (tmp_path / "settings.yaml").symlink_to("..data/settings.yaml")
        watched = SettingsFile(tmp_path / "settings.yaml")
        assert watched.changed() == parse_settings(texts["..1"])
        (tmp_path / "..data_tmp").symlink_to("..2")
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")
        assert watched.changed() == parse_settings(texts["..2"])

    def test_a_broken_or_vanished_file_is_refused_once_and_its_repair_taken(self, tmp_path: Path) -> None:
        (file := tmp_path / "settings.yaml").write_text("servre: {}", encoding="utf-8")
        watched = SettingsFile(file)
        with pytest.raises(SettingsError, match="did you mean server"):
            watched.changed()
        assert watched.changed() is None
        file.unlink()
        with pytest.raises(SettingsError, match=r"settings\.yaml cannot be read \(No such file"):
            watched.changed()
        assert watched.changed() is None
        file.write_text("", encoding="utf-8")
        assert watched.changed() == Settings()
