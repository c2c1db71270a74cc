"""Nacos by lists: which call, which rights, which server, and what is made of the answers.

A Nacos whose contents a test writes shows what no server here can be made to do: versions, rights, faults.
"""

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import pytest
from aiohttp import web

from adapter.registries.nacos import NacosSource, signature
from adapter.registries.source import ServiceKey
from adapter.settings.registries import NacosRegistry
from tests.registries.kit import FollowedService, served

SHOP = ServiceKey("nacos", "shop")


def host(number: int, **more: Any) -> dict[str, Any]:
    """An instance as the fake keeps it; the pods of tests have such addresses."""
    return {
        "ip": f"10.0.0.{10 + number}",
        "port": 8080,
        "weight": 1.0,
        "healthy": True,
        "enabled": True,
        "ephemeral": True,
        "clusterName": "DEFAULT",
        "metadata": {"pod": f"web-{number}"},
        **more,
    }


class FakeNacos:
    """`services`: hosts by namespace and `group@@service`; services that are not there are unknown.

    `users`: passwords; empty: no login is needed. `readers`: users with the right `r`, which the lists for
    administrators take. `threshold`: protect threshold of all services. `compatible`: whether a Nacos 3 still has the
    clients' call of Nacos 1. `asked`: the paths that arrived. Errors are as Nacos 3.1 and 2.5.1 word them, each with
    the time at which it was made.
    """

    def __init__(self, version: int = 3) -> None:
        self.version, self.compatible = version, True
        self.services: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.default_cluster = "DEFAULT"
        """The cluster whose instances the administrators' list shows if none is named; empty: all."""
        self.largest_page = 100_000
        self.moved = 404
        """The status of calls that this server does not have."""
        self.hidden: set[str] = set()
        """Paths that this server does not have."""
        self.threshold = 0.0
        self.users: dict[str, str] = {}
        self.readers: set[str] = set()
        self.tokens: dict[str, str] = {}
        self.logins: list[str] = []
        self.login_fault = 0
        self.asked: list[str] = []
        self.url = ""

    def settings(self, **more: Any) -> NacosRegistry:
        """Settings of an adapter that polls 50 times a second."""
        base = {"name": "nacos", "type": "Nacos", "servers": (self.url,), "interval_seconds": 0.02}
        return NacosRegistry(**{**base, "timeout_seconds": 5, **more})

    # --- contents ---

    def put(self, *hosts: dict[str, Any], service: str = "shop", namespace: str = "public") -> None:
        """Let a service have these instances."""
        self.services[namespace, f"DEFAULT_GROUP@@{service}"] = list(hosts)

    # --- HTTP ---

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path.removeprefix("/nacos")
        self.asked.append(path)
        if path.endswith("/login"):
            return await self._login(request, path)
        if path not in self._views() - self.hidden:
            return _error(request.path, self.moved, "Not Found", "No message available")
        query = request.query
        refusal = self._refusal(request.headers.get("accessToken", ""), admin="admin" in path)
        if refusal:
            return _error(request.path, 403, "Forbidden", refusal)
        return self._list(path, query)

    def _views(self) -> set[str]:
        if self.version == 2:
            return {"/v1/ns/instance/list", "/v2/ns/catalog/instances"}
        old = {"/v1/ns/instance/list"} if self.compatible else set()
        return old | {"/v3/client/ns/instance/list", "/v3/admin/ns/instance/list", "/v3/admin/ns/service"}

    def _list(self, path: str, query: Mapping[str, str]) -> web.Response:
        name = query["serviceName"]
        grouped = name if "@@" in name else f"{query['groupName']}@@{name}"
        service = (query["namespaceId"], grouped)
        if path == "/v1/ns/instance/list":
            return web.json_response({**self._info(*service), "name": grouped})
        if path == "/v3/client/ns/instance/list":
            return web.json_response({"code": 0, "message": "success", "data": self._info(*service)["hosts"]})
        if path == "/v3/admin/ns/instance/list":
            return self._administrators_list(service, query.get("clusterName", self.default_cluster))
        if path == "/v3/admin/ns/service":
            return self._detail(service)
        found = self.services.get(service, [])
        size = min(int(query["pageSize"]), self.largest_page)
        page = {"instances": found[:size], "count": len(found)} if found else {"count": 0}
        return web.json_response({"code": 0, "message": "success", "data": page})

    def _administrators_list(self, service: tuple[str, str], cluster: str) -> web.Response:
        """One cluster, or all; a cluster without instances is none."""
        if service not in self.services:
            return _lacking(f"service {service[1]} is not found!")
        found = [one for one in self.services[service] if cluster in {"", one["clusterName"]}]
        if not found and cluster:
            return _lacking(f"cluster {cluster} is not found!")
        return web.json_response({"code": 0, "message": "success", "data": found})

    def _detail(self, service: tuple[str, str]) -> web.Response:
        clusters = {one["clusterName"]: {"hosts": None} for one in self.services.get(service, [])}
        data = {"serviceName": service[1].partition("@@")[2], "clusterMap": clusters}
        return web.json_response({"code": 0, "message": "success", "data": data})

    def _info(self, namespace: str, grouped: str) -> dict[str, Any]:
        enabled = [one for one in self.services.get((namespace, grouped), []) if one["enabled"]]
        healthy = sum(one["healthy"] for one in enabled)
        reached = bool(enabled) and self.threshold > 0 and healthy / len(enabled) <= self.threshold
        hosts = [{**one, "healthy": True} for one in enabled] if reached else enabled
        return {"groupName": grouped.partition("@@")[0], "hosts": hosts, "reachProtectionThreshold": reached}

    # --- who asks ---

    async def _login(self, request: web.Request, path: str) -> web.Response:
        if path in self.hidden or path != ("/v3/auth/user/login" if self.version == 3 else "/v1/auth/login"):
            return web.Response(status=404)
        form = await request.post()
        user = str(form["username"])
        self.logins.append(user)
        if self.login_fault:
            return _error(request.path, self.login_fault, "As it is", "as the test says")
        if user not in self.users or (self.version == 2 and self.users[user] != form["password"]):
            return _error(request.path, 403, "Forbidden", "user not found!")
        if self.users[user] != form["password"]:
            return _error(request.path, 500, "Internal Server Error", "No message available")
        token = f"token-{len(self.logins)}"
        self.tokens[token] = user
        return web.json_response({"accessToken": token, "tokenTtl": 18000, "username": user})

    def _refusal(self, token: str, *, admin: bool) -> str:
        if not self.users:
            return ""
        if token not in self.tokens:
            return "token invalid!"
        return "authorization failed!" if admin and self.tokens[token] not in self.readers else ""


def _lacking(what: str) -> web.Response:
    return web.json_response({"code": 30000, "message": "server error", "data": what}, status=404)


def _error(path: str, status: int, error: str, message: str) -> web.Response:
    """An error as Nacos words it."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return web.json_response(
        {"timestamp": now, "status": status, "error": error, "message": message, "path": path}, status=status
    )


class Followed(FollowedService):
    """The service `shop` of Nacos, or others instead. Its instances carry their pod's name in the metadata `pod`.

    The age of tokens follows the test's clock.
    """

    source: NacosSource

    def __init__(self, settings: NacosRegistry, *keys: ServiceKey) -> None:
        super().__init__(settings, SHOP.service, source=NacosSource(settings, lambda: self.clock()))  # noqa: PLW0108  there is no clock yet
        self._keys = keys or (SHOP,)

    async def __aenter__(self) -> Self:
        self.follow(self._keys)
        return self

    def pod_names(self, key: ServiceKey = SHOP) -> list[str]:
        """The names of the pods in the last valid answer."""
        listed = self.cache.instances(key)
        valid = listed is not None and listed.valid
        return [one.metadata["pod"] for one in listed.instances] if listed and valid else ["no valid answer"]

    async def until_pods(self, *names: str, key: ServiceKey = SHOP) -> None:
        """Waits until exactly these pods are listed, without an error."""
        await self.until(lambda: self.pod_names(key) == list(names) and not self.error_of(key))


@pytest.fixture
async def nacos(request: pytest.FixtureRequest) -> AsyncIterator[FakeNacos]:
    """A Nacos, of version 3 unless a test says otherwise, with the pods web-0 and web-1."""
    fake = FakeNacos(getattr(request, "param", 3))
    fake.put(host(0), host(1))
    async with served(fake.answer) as url:
        fake.url = f"{url}/nacos"
        yield fake


@pytest.fixture
def user(nacos: FakeNacos, tmp_path: Path) -> dict[str, str]:
    """Nacos asks for a user: the settings of one, whose password is in the file `password`."""
    nacos.users = {"reader": "right"}
    (tmp_path / "password").write_text("right\n")
    return {"username": "reader", "password_file": str(tmp_path / "password")}


both_versions = pytest.mark.parametrize("nacos", [2, 3], indirect=True)


class TestClientLists:
    @both_versions
    async def test_a_disabled_instance_is_absent_for_clients(self, nacos: FakeNacos) -> None:
        nacos.put(host(0), host(1, enabled=False), host(2, weight=0), host(3, healthy=False))
        async with Followed(nacos.settings()) as followed:
            await followed.until_pods("web-0", "web-2", "web-3")
            zero, weightless, ill = followed.listing.instances
            assert (zero.ip, zero.port, zero.weight, zero.healthy) == ("10.0.0.10", 8080, 1.0, True)
            assert weightless.weight == 0
            assert not ill.healthy
            assert not followed.listing.protected

    async def test_the_protect_threshold_makes_health_no_evidence(self, nacos: FakeNacos) -> None:
        nacos.threshold = 0.6
        nacos.put(host(0), host(1, healthy=False))
        async with Followed(nacos.settings()) as followed:
            await followed.until_pods("web-0", "web-1")
            assert followed.listing.protected

    @pytest.mark.parametrize("status", [404, 405, 410, 501])
    async def test_the_new_call_is_used_once_a_server_drops_the_old(self, nacos: FakeNacos, status: int) -> None:
        async with Followed(nacos.settings()) as followed:
            await followed.until_pods("web-0", "web-1")
            nacos.compatible, nacos.moved = False, status
            nacos.put(host(1))
            await followed.until_pods("web-1")

    async def test_the_new_call_hides_protection_unless_one_is_unhealthy(self, nacos: FakeNacos) -> None:
        nacos.compatible, nacos.threshold = False, 0.6
        nacos.put(host(0), host(1, healthy=False))
        async with Followed(nacos.settings()) as followed:
            await followed.until_pods("web-0", "web-1")
            assert followed.listing.protected
            nacos.threshold = 0.1
            await followed.until(lambda: not followed.listing.protected)
            assert not followed.listing.instances[1].healthy

    async def test_namespace_group_and_clusters_select(self, nacos: FakeNacos) -> None:
        nacos.services["prod", "G@@shop"] = [host(0, clusterName="HZ"), host(2, clusterName="SH")]
        key = ServiceKey("nacos", "shop", "prod", "G")
        async with Followed(nacos.settings(clusters=("SH",)), key) as followed:
            await followed.until_pods("web-2", key=key)

    @pytest.mark.parametrize(
        ("admin", "words"),
        [(False, "does the address end with Nacos' context path (/nacos)?"), (True, "set `admin: false`")],
    )
    async def test_a_server_without_lists_is_an_error_with_advice(
        self, nacos: FakeNacos, admin: bool, words: str
    ) -> None:
        async with Followed(nacos.settings(servers=(f"{nacos.url}s",), admin=admin)) as followed:
            await followed.until_error(words)
        assert followed.listed == -1

    async def test_an_answer_about_another_service_is_refused(self, nacos: FakeNacos) -> None:
        nacos.put(host(0, serviceName="DEFAULT_GROUP@@cart"))
        async with Followed(nacos.settings()) as followed:
            await followed.until_error("the answer is about another service: DEFAULT_GROUP@@cart")
            nacos.put(host(0, serviceName="DEFAULT_GROUP@@shop"))
            await followed.until_pods("web-0")


class TestAdministratorsLists:
    async def test_they_show_disabled_instances_and_true_health(self, nacos: FakeNacos) -> None:
        nacos.threshold = 0.9
        nacos.put(host(0), host(1, enabled=False), host(2, healthy=False))
        async with Followed(nacos.settings(admin=True)) as followed:
            await followed.until_pods("web-0", "web-1", "web-2")
            assert [one.enabled for one in followed.listing.instances] == [True, False, True]
            assert [one.healthy for one in followed.listing.instances] == [True, True, False]
            assert not followed.listing.protected

    @pytest.mark.parametrize("nacos", [2], indirect=True)
    async def test_nacos_2_has_them_in_its_catalog_and_a_part_is_refused(self, nacos: FakeNacos) -> None:
        nacos.put(host(0), host(1, enabled=False))
        async with Followed(nacos.settings(admin=True)) as followed:
            await followed.until_pods("web-0", "web-1")
            nacos.put()
            await followed.until_pods()
            nacos.largest_page = 1
            nacos.put(host(0), host(1))
            await followed.until_error("the answer is incomplete: 1 of 2 instances")
            assert followed.listed == 0

    @pytest.mark.parametrize("is_known", [False, True])
    async def test_a_service_without_instances_is_an_empty_list_too(self, nacos: FakeNacos, is_known: bool) -> None:
        """Nacos 3.1 answers 404: the service, or the cluster DEFAULT of a service that it knows, is not found."""
        async with Followed(nacos.settings(admin=True)) as followed:
            await followed.until_pods("web-0", "web-1")
            nacos.put()
            if not is_known:
                nacos.services.clear()
            await followed.until_pods()

    async def test_without_the_right_the_last_list_stays_with_an_error(
        self, nacos: FakeNacos, user: dict[str, str]
    ) -> None:
        nacos.readers = {"reader"}
        async with Followed(nacos.settings(admin=True, **user)) as followed:
            await followed.until_pods("web-0", "web-1")
            nacos.readers.clear()
            await followed.until_error("give its user a role that may read (`r`) the namespace, or set `admin: false`")
            await followed.until_failed_again()
            assert followed.listed == 2
        assert len(nacos.logins) == 1

    @pytest.mark.parametrize("default_cluster", ["DEFAULT", ""], ids=["Nacos 3.1", "later"])
    async def test_every_cluster_that_a_service_has_is_asked(self, nacos: FakeNacos, default_cluster: str) -> None:
        """Nacos 3.1 lists cluster DEFAULT if none is named, later versions list all."""
        nacos.default_cluster = default_cluster
        nacos.put(*(host(number, clusterName=name) for number, name in enumerate(("HZ", "DEFAULT", "SH"))))
        async with Followed(nacos.settings(admin=True)) as followed:
            await followed.until_pods("web-0", "web-1", "web-2")
            nacos.put(host(0, clusterName="HZ", enabled=False), host(2, clusterName="SH"))
            await followed.until_pods("web-0", "web-2")
            assert [one.enabled for one in followed.listing.instances] == [False, True]
            nacos.hidden.add("/v3/admin/ns/service")
            await followed.until_error("/v3/admin/ns/service")
            assert followed.listed == 2


@pytest.mark.long
class TestCredentials:
    @both_versions
    async def test_a_token_that_ended_is_renewed(self, nacos: FakeNacos, user: dict[str, str]) -> None:
        async with Followed(nacos.settings(**user)) as followed:
            await followed.until_pods("web-0", "web-1")
            assert nacos.logins == ["reader"]
            followed.clock.jump(31)
            nacos.tokens.clear()
            nacos.put(host(0))
            await followed.until_pods("web-0")
        assert len(nacos.logins) == 2

    @both_versions
    async def test_a_wrong_password_is_named_and_the_right_one_is_taken(
        self, nacos: FakeNacos, user: dict[str, str], tmp_path: Path
    ) -> None:
        """Nacos 3.1 answers a wrong password with HTTP 500."""
        (tmp_path / "password").write_text("wrong")
        async with Followed(nacos.settings(**user)) as followed:
            await followed.until_error("check `username` and `passwordFile`")
            trouble = followed.cache.troubles.get(SHOP)
            assert trouble is not None
            assert trouble.reason == "unauthenticated"
            (tmp_path / "password").write_text("right")
            await followed.until_listed(2)

    async def test_a_login_that_fails_is_not_tried_for_each_service(
        self, nacos: FakeNacos, user: dict[str, str]
    ) -> None:
        nacos.login_fault = 503
        services = [ServiceKey("nacos", f"service-{number}") for number in range(50)]
        async with Followed(nacos.settings(**user), *services) as followed:
            await followed.until(lambda: all("HTTP 503" in followed.error_of(key) for key in services))
            assert len(nacos.logins) < len(services) / 2
            nacos.login_fault = 0
            await followed.until(lambda: not any(map(followed.error_of, services)))

    def test_a_signature_is_a_known_one(self) -> None:
        # By `printf %s 1700000000123@@G@@shop | openssl dgst -sha1 -hmac sk -binary | base64`.
        assert signature("ak", "sk", "G@@shop", 1_700_000_000.123) == {
            "ak": "ak",
            "data": "1700000000123@@G@@shop",
            "signature": "9e/7WhOfoLcnJx9wPgQ8g6Wcoio=",
        }


async def test_a_server_without_a_login_is_an_error_with_advice(nacos: FakeNacos, user: dict[str, str]) -> None:
    nacos.hidden = {"/v3/auth/user/login"}
    async with Followed(nacos.settings(**user)) as followed:
        await followed.until_error("or leave `username` empty")
        assert followed.listed == -1
