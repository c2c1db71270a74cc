"""Credentials: kubeconfigs in all their forms, the service account of a pod, and when they are loaded again."""

import base64
import json
import ssl
import stat
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
import trustme
import yaml

from adapter.kube import credentials
from adapter.kube.credentials import ClusterAccess, CredentialKeeper, choose_credentials
from adapter.kube.errors import CredentialsError
from tests.kube.conftest import Clock

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


class TestKubeconfig:
    @pytest.mark.parametrize(
        ("user", "authorization"),
        [
            ({"token": "secret"}, "Bearer secret"),
            ({"tokenFile": "token"}, "Bearer secret"),  # relative to the kubeconfig, without its line's end
            ({"username": "u", "password": "secret"}, f"Basic {base64.b64encode(b'u:secret').decode()}"),
        ],
    )
    async def test_secret_of_a_user_is_sent_and_not_shown_in_logs(
        self, access: Access, tmp_path: Path, user: dict[str, str], authorization: str
    ) -> None:
        (tmp_path / "token").write_text("secret\n")
        found = await access(user)
        assert (found.server, found.authorization, found.lifetime) == (SERVER, authorization, 300.0)
        assert authorization.split()[1] not in repr(found)

    async def test_server_name_proxy_and_verification_are_read(self, access: Access) -> None:
        more = {"insecure-skip-tls-verify": True, "tls-server-name": "kubernetes", "proxy-url": "http://proxy:3128"}
        found = await access({}, **more)
        assert found.tls is not None
        assert found.tls.verify_mode is ssl.CERT_NONE
        assert (found.server_name, found.proxy) == ("kubernetes", "http://proxy:3128")

    @pytest.mark.parametrize(
        "content",
        ["", "just text", "a: [", "{}", "current-context: x\ncontexts: []\nclusters: []\nusers: []", "- a\n- b"],
    )
    async def test_broken_file_is_named(self, tmp_path: Path, content: str) -> None:
        path = tmp_path / "broken"
        path.write_text(content)
        with pytest.raises(CredentialsError, match=str(path)):
            await choose_credentials(str(path))()

    @pytest.mark.parametrize(("file", "fault"), [("missing.crt", "missing"), ("token", "kubeconfig")])
    async def test_missing_or_invalid_certificate_file_is_an_error(
        self, access: Access, tmp_path: Path, file: str, fault: str
    ) -> None:
        (tmp_path / "token").write_text("nothing of the kind")
        with pytest.raises(CredentialsError, match=fault):
            await access({}, **{"certificate-authority": file})

    async def test_token_of_an_exec_plugin_is_used(self, access: Access, tmp_path: Path) -> None:
        version = "client.authentication.k8s.io/v1"
        said = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": {"token": "t"}})
        path = tmp_path / "plugin"
        path.write_text(f"#!{sys.executable} -IS\nprint({said!r})\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        user = {"exec": {"apiVersion": version, "command": str(path), "interactiveMode": "Never"}}
        assert (await access(user)).authorization == "Bearer t"


class TestInCluster:
    @pytest.fixture(autouse=True)
    def _mounted(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ca_file: Path) -> None:
        """A service account's files, and the variables that a pod has."""
        (tmp_path / "sa-token").write_text("first\n")
        monkeypatch.setattr(credentials, "TOKEN_FILE", tmp_path / "sa-token")
        monkeypatch.setattr(credentials, "CA_FILE", ca_file)
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    async def test_service_account_is_used(self) -> None:
        access = await choose_credentials(None)()
        assert (access.server, access.authorization) == ("https://[fd00::1]:443", "Bearer first")
        assert access.lifetime == 60.0

    async def test_new_token_and_authority_are_read(self, tmp_path: Path, ca_file: Path) -> None:
        load = choose_credentials(None)
        before = await load()
        (tmp_path / "sa-token").write_text("second\n")
        trustme.CA(organization_name="another").cert_pem.write_to_path(str(ca_file))
        after = await load()
        assert after.authorization == "Bearer second"
        assert before.tls is not None
        assert after.tls is not None
        assert after.tls.get_ca_certs() != before.tls.get_ca_certs()

    async def test_service_account_comes_before_kubeconfig_of_environment(
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
    async def test_missing_part_of_the_account_is_named(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, token: str, ca: str, port: str | None, fault: str
    ) -> None:
        (tmp_path / "sa-token").write_text(token)
        monkeypatch.setattr(credentials, "CA_FILE", tmp_path / ca)
        if port is None:
            monkeypatch.delenv("KUBERNETES_SERVICE_PORT")
        with pytest.raises(CredentialsError, match=fault):
            await choose_credentials(None)()


ONE, TWO = ClusterAccess(server="one", lifetime=60.0), ClusterAccess(server="two", lifetime=60.0)


class TestKeeper:
    @staticmethod
    def keeper(clock: Clock, *results: ClusterAccess | Exception) -> CredentialKeeper:
        return CredentialKeeper(AsyncMock(side_effect=results), lambda: clock.monotonic)

    async def test_credentials_are_loaded_again_after_their_lifetime(self, clock: Clock) -> None:
        keeper = self.keeper(clock, ONE, TWO)
        assert await keeper.current() is ONE
        clock.pass_(59)
        assert await keeper.current() is ONE
        clock.pass_(1)
        assert await keeper.current() is TWO

    async def test_failed_load_keeps_the_old_ones_for_10_s(self, clock: Clock) -> None:
        keeper = self.keeper(clock, ONE, CredentialsError("gone"), TWO)
        await keeper.current()
        clock.pass_(60)
        assert [await keeper.current() for _ in range(3)] == [ONE] * 3
        clock.pass_(10)
        assert await keeper.current() is TWO

    async def test_first_failure_is_raised(self, clock: Clock) -> None:
        keeper = self.keeper(clock, CredentialsError("nothing there"), ONE)
        with pytest.raises(CredentialsError, match="nothing there"):
            await keeper.current()
        assert await keeper.current() is ONE

    async def test_refusals_load_at_most_every_5_s(self, clock: Clock) -> None:
        keeper = self.keeper(clock, ONE, TWO, ONE)
        await keeper.current()
        assert await keeper.current(refused=ONE) is TWO
        assert await keeper.current(refused=TWO) is TWO
        clock.pass_(5)
        assert await keeper.current(refused=TWO) is ONE
