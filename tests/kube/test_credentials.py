"""Credentials: kubeconfigs in all their forms, the service account of a pod, and when they are loaded again."""

import asyncio
import base64
import json
import ssl
import stat
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from adapter.kube import credentials
from adapter.kube.credentials import ClusterAccess, CredentialKeeper, TlsContexts, choose_credentials
from adapter.kube.errors import CredentialsError
from adapter.runtime.times import format_time

SERVER = "https://10.0.0.1:6443"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_file(tmp_path: Path, authority: trustme.CA) -> Path:
    path = tmp_path / "ca.crt"
    authority.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This machine's own configuration plays no part."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


Write = Callable[..., str]
Plugin = Callable[..., dict[str, Any]]
Access = Callable[..., Awaitable[ClusterAccess]]


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Write:
    """Writes a kubeconfig for one user of one cluster."""

    def write(user: dict[str, Any], *, name: str = "config", **cluster: Any) -> str:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "main",
            "contexts": [{"name": "main", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": SERVER, **cluster}}],
            "users": [{"name": "u", "user": user}],
        }
        path = tmp_path / name
        path.write_text(yaml.safe_dump(config))
        return str(path)

    return write


@pytest.fixture
def access(kubeconfig: Write) -> Access:
    """Loads the credentials of such a kubeconfig."""
    return lambda user, **cluster: choose_credentials(kubeconfig(user, **cluster))()


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    """A user whose exec plugin prints this and ends with this code."""

    def write(status: dict[str, Any] | str, code: int = 0, first: str = "") -> dict[str, Any]:
        version = "client.authentication.k8s.io/v1"
        said = (
            status
            if isinstance(status, str)
            else json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
        )
        path = tmp_path / "plugin"
        path.write_text(
            f"#!{sys.executable} -IS\nimport sys\n{first}"
            f"print({said!r})\nprint('the plugin complains', file=sys.stderr)\nsys.exit({code})\n"
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return {"exec": {"apiVersion": version, "command": str(path), "interactiveMode": "Never"}}

    return write


class TestKubeconfig:
    @pytest.mark.parametrize(
        ("user", "authorization"),
        [
            ({"token": "secret"}, "Bearer secret"),
            ({"tokenFile": "token"}, "Bearer secret"),  # relative to the kubeconfig, without its line's end
            ({"username": "u", "password": "secret"}, f"Basic {base64.b64encode(b'u:secret').decode()}"),
        ],
    )
    async def test_a_users_secret_is_shown_to_the_server_and_not_in_logs(
        self, access: Access, tmp_path: Path, user: dict[str, str], authorization: str
    ) -> None:
        (tmp_path / "token").write_text("secret\n")
        found = await access(user)
        assert (found.server, found.authorization, found.lifetime) == (SERVER, authorization, 300.0)
        assert authorization.split()[1] not in repr(found)

    async def test_the_authority_is_trusted_even_without_key_identifiers(self, access: Access, ca_file: Path) -> None:
        tls = (await access({}, **{"certificate-authority": str(ca_file)})).tls
        assert tls is not None
        assert len(tls.get_ca_certs()) == 1
        assert (tls.verify_mode, tls.check_hostname) == (ssl.CERT_REQUIRED, True)
        assert not tls.verify_flags & ssl.VERIFY_X509_STRICT

    async def test_data_in_the_file_itself_is_used(self, access: Access, authority: trustme.CA) -> None:
        pair = authority.issue_cert("somebody@example.com")
        encoded = base64.b64encode(pair.cert_chain_pems[0].bytes()).decode()
        key = base64.b64encode(pair.private_key_pem.bytes()).decode()
        trusted = base64.b64encode(authority.cert_pem.bytes()).decode()
        user = {"client-certificate-data": encoded, "client-key-data": key}
        found = await access(user, **{"certificate-authority-data": trusted})
        assert found.tls is not None
        assert found.authorization == ""

    async def test_the_cluster_s_other_settings_are_used(self, access: Access) -> None:
        more = {"insecure-skip-tls-verify": True, "tls-server-name": "kubernetes", "proxy-url": "http://proxy:3128"}
        found = await access({}, **more)
        assert found.tls is not None
        assert found.tls.verify_mode is ssl.CERT_NONE
        assert (found.server_name, found.proxy) == ("kubernetes", "http://proxy:3128")

    async def test_plain_http_needs_no_tls(self, access: Access) -> None:
        found = await access({}, server="http://127.0.0.1:8001/")
        assert (found.server, found.tls) == ("http://127.0.0.1:8001", None)

    async def test_several_files_are_merged(
        self, kubeconfig: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        first = kubeconfig({"token": "first"}, name="first")
        second = kubeconfig({"token": "second"}, name="second")
        monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'missing'}:{first}:{second}")
        assert (await choose_credentials(None)()).authorization == "Bearer first"

    async def test_the_home_s_config_is_the_last_resort(self, kubeconfig: Write, tmp_path: Path) -> None:
        (tmp_path / ".kube").mkdir()
        kubeconfig({"token": "home"}, name=".kube/config")
        assert (await choose_credentials(None)()).authorization == "Bearer home"

    @pytest.mark.parametrize(
        "content",
        ["", "just text", "a: [", "{}", "current-context: x\ncontexts: []\nclusters: []\nusers: []", "- a\n- b"],
    )
    async def test_a_broken_file_is_named(self, tmp_path: Path, content: str) -> None:
        path = tmp_path / "broken"
        path.write_text(content)
        with pytest.raises(CredentialsError, match=str(path)):
            await choose_credentials(str(path))()

    @pytest.mark.parametrize(("file", "fault"), [("missing.crt", "missing"), ("token", "kubeconfig")])
    async def test_a_file_that_is_missing_or_holds_no_certificate_is_an_error(
        self, access: Access, tmp_path: Path, file: str, fault: str
    ) -> None:
        (tmp_path / "token").write_text("nothing of the kind")
        with pytest.raises(CredentialsError, match=fault):
            await access({}, **{"certificate-authority": file})


class TestPlugins:
    @pytest.mark.parametrize(
        ("left", "lifetime"),
        [
            (900, 840),  # shortly before it expires
            (None, None),  # until it is refused
            (-100, 5),  # a plugin is not run over and over for a token as good as expired
            (3, 5),
        ],
    )
    async def test_a_token_is_used_until_it_has_to_be_replaced(
        self, access: Access, plugin: Plugin, left: float | None, lifetime: float | None
    ) -> None:
        expires = {} if left is None else {"expirationTimestamp": format_time(time.time() + left)}
        found = await access(plugin({"token": "t", **expires}))
        assert found.authorization == "Bearer t"
        assert found.lifetime == (lifetime and pytest.approx(lifetime, rel=0.02))

    async def test_a_certificate_is_used(self, access: Access, plugin: Plugin, authority: trustme.CA) -> None:
        pair = authority.issue_cert("somebody@example.com")
        status = {
            "clientCertificateData": pair.cert_chain_pems[0].bytes().decode(),
            "clientKeyData": pair.private_key_pem.bytes().decode(),
            "expirationTimestamp": format_time(time.time() + 900),
        }
        found = await access(plugin(status))
        assert found.tls is not None
        assert found.authorization == ""
        assert found.lifetime == pytest.approx(840, abs=10)

    @pytest.mark.parametrize(
        ("status", "code", "fault"),
        [
            ({"token": "t"}, 3, "process returned 3.*the plugin complains"),
            ("no json", 0, "failed to decode"),
            ({}, 0, "neither a token nor a certificate"),
            ({"clientCertificateData": "x"}, 0, "neither a token nor a certificate"),
            ({"token": ""}, 0, "neither a token nor a certificate"),
            ({"clientCertificateData": "", "clientKeyData": ""}, 0, "neither a token nor a certificate"),
            ({"token": "t", "expirationTimestamp": "soon"}, 0, "'soon' is no RFC 3339 time"),
        ],
    )
    async def test_a_plugin_that_fails_is_an_error_and_not_an_anonymous_user(
        self, access: Access, plugin: Plugin, status: dict[str, Any] | str, code: int, fault: str
    ) -> None:
        with pytest.raises(CredentialsError, match=fault):
            await access(plugin(status, code))

    async def test_a_plugin_that_does_not_exist_is_an_error(self, access: Access, tmp_path: Path) -> None:
        user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(tmp_path / "gone")}}
        with pytest.raises(CredentialsError, match="gone"):
            await access(user)

    async def test_the_loop_goes_on_while_a_plugin_runs(self, access: Access, plugin: Plugin, tmp_path: Path) -> None:
        """The plugin waits for a file that only the loop can write."""
        wait = f"import os, time\nwhile not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)\n"
        loading = asyncio.ensure_future(access(plugin({"token": "t"}, first=wait)))
        await asyncio.to_thread((tmp_path / "go").touch)
        assert (await asyncio.wait_for(loading, 30)).authorization == "Bearer t"


class TestInCluster:
    @pytest.fixture(autouse=True)
    def _mounted(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ca_file: Path) -> None:
        """A service account's files, and the variables that a pod has."""
        (tmp_path / "sa-token").write_text("first\n")
        monkeypatch.setattr(credentials, "TOKEN_FILE", tmp_path / "sa-token")
        monkeypatch.setattr(credentials, "CA_FILE", ca_file)
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    async def test_the_service_account_is_used(self) -> None:
        access = await choose_credentials(None)()
        assert (access.server, access.authorization) == ("https://[fd00::1]:443", "Bearer first")
        assert access.lifetime == 60.0

    async def test_a_new_token_is_picked_up_and_the_connections_kept(self, tmp_path: Path) -> None:
        load = choose_credentials(None)
        before = await load()
        (tmp_path / "sa-token").write_text("second\n")
        after = await load()
        assert after.authorization == "Bearer second"
        assert after.tls is before.tls

    async def test_a_new_authority_is_trusted(self, ca_file: Path) -> None:
        load = choose_credentials(None)
        before = await load()
        trustme.CA(organization_name="another").cert_pem.write_to_path(str(ca_file))
        after = await load()
        assert before.tls is not None
        assert after.tls is not None
        assert after.tls.get_ca_certs() != before.tls.get_ca_certs()

    async def test_a_kubeconfig_that_is_named_comes_first(self, access: Access) -> None:
        assert (await access({"token": "named"})).authorization == "Bearer named"

    async def test_the_service_account_comes_before_the_environment_s_kubeconfig(
        self, kubeconfig: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KUBECONFIG", kubeconfig({"token": "other"}))
        assert (await choose_credentials(None)()).authorization == "Bearer first"

    @pytest.mark.parametrize(
        ("token", "ca", "port", "fault"),
        [
            ("", "ca.crt", "443", r"in-cluster credentials: .*empty"),
            ("first", "no-ca.crt", "443", r"in-cluster credentials: .*no-ca\.crt"),
            ("first", "ca.crt", None, "KUBERNETES_SERVICE_PORT is not set"),
        ],
    )
    async def test_what_is_missing_is_named(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, token: str, ca: str, port: str | None, fault: str
    ) -> None:
        (tmp_path / "sa-token").write_text(token)
        monkeypatch.setattr(credentials, "CA_FILE", tmp_path / ca)
        if port is None:
            monkeypatch.delenv("KUBERNETES_SERVICE_PORT")
        with pytest.raises(CredentialsError, match=fault):
            await choose_credentials(None)()


def test_the_context_is_built_anew_only_when_a_file_s_content_changes(ca_file: Path) -> None:
    contexts = TlsContexts()
    first = contexts.context(str(ca_file), None, None, verify=True)
    ca_file.touch()
    assert contexts.context(str(ca_file), None, None, verify=True) is first
    assert contexts.context(str(ca_file), None, None, verify=False) is not first


class Loader:
    """Loads one after the other: an Access, or an error."""

    def __init__(self, *results: ClusterAccess | Exception) -> None:
        self.results = list(results)
        self.loaded = 0

    async def __call__(self) -> ClusterAccess:
        result = self.results[min(self.loaded, len(self.results) - 1)]
        self.loaded += 1
        if isinstance(result, Exception):
            raise result
        return result


class TestKeeper:
    def setup_method(self) -> None:
        self.now = 1000.0
        self.one, self.two = ClusterAccess(server="one", lifetime=60.0), ClusterAccess(server="two", lifetime=60.0)

    def keeper(self, *results: ClusterAccess | Exception) -> CredentialKeeper:
        self.loader = Loader(*results)
        return CredentialKeeper(self.loader, lambda: self.now)

    async def test_what_is_fresh_is_not_loaded_again(self) -> None:
        keeper = self.keeper(self.one, self.two)
        assert await keeper.current() is self.one
        self.now += 59
        assert await keeper.current() is self.one
        assert self.loader.loaded == 1

    async def test_what_is_due_is_loaded_beside_the_requests(self) -> None:
        keeper = self.keeper(self.one, self.two)
        await keeper.current()
        self.now += 60
        assert await keeper.current() is self.one  # does not wait
        await asyncio.gather(*keeper.renewal.flights.values())
        assert await keeper.current() is self.two

    async def test_a_failed_renewal_keeps_the_old_and_is_tried_again_later(self) -> None:
        keeper = self.keeper(self.one, CredentialsError("gone"), self.two)
        await keeper.current()
        self.now += 60
        for _ in range(3):
            assert await keeper.current() is self.one
            await asyncio.gather(*keeper.renewal.flights.values(), return_exceptions=True)
        assert self.loader.loaded == 2
        self.now += 10
        await keeper.current()
        await asyncio.gather(*keeper.renewal.flights.values())
        assert await keeper.current() is self.two

    async def test_the_first_failure_is_the_caller_s(self) -> None:
        keeper = self.keeper(CredentialsError("nothing there"), self.one)
        with pytest.raises(CredentialsError, match="nothing there"):
            await keeper.current()
        assert await keeper.current() is self.one

    async def test_a_refusal_of_what_was_replaced_meanwhile_loads_nothing(self) -> None:
        keeper = self.keeper(self.one, self.two)
        await keeper.current()
        assert await keeper.renew(self.one) is self.two
        assert await keeper.renew(self.one) is self.two
        assert self.loader.loaded == 2

    async def test_refusals_load_at_most_every_five_seconds(self) -> None:
        keeper = self.keeper(self.one, self.two, self.one)
        await keeper.current()
        assert await keeper.renew(self.one) is self.two
        assert await keeper.renew(self.two) is self.two
        self.now += 5
        assert await keeper.renew(self.two) is self.one

    async def test_a_load_that_hangs_ends_with_the_keeper(self) -> None:
        async def load() -> ClusterAccess:
            await asyncio.Event().wait()
            return self.one

        keeper = CredentialKeeper(load, lambda: self.now)
        waiting = asyncio.create_task(keeper.current())
        await asyncio.sleep(0)
        await keeper.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting
