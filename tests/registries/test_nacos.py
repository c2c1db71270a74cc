"""Nacos by lists: which call, which rights, which server, and what is made of the answers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapter.registries.roster import ServiceKey
from tests.registries.nacos_kit import (
    SECRET_KEY,
    SHOP,
    FakeNacos,
    Password,
    following,
    host,
    polling,
)


@pytest.fixture
async def nacos() -> AsyncIterator[FakeNacos]:
    async with FakeNacos() as fake:
        yield fake


@pytest.fixture
async def old_nacos() -> AsyncIterator[FakeNacos]:
    async with FakeNacos(version=2) as fake:
        yield fake


class TestClientViews:
    @pytest.mark.parametrize("version", [2, 3])
    async def test_a_disabled_instance_is_absent_for_clients(self, version: int) -> None:
        async with FakeNacos(version) as nacos:
            nacos.put(host(0), host(1, enabled=False), host(2, weight=0), host(3, healthy=False))
            async with following(polling(nacos)) as world:
                await world.until_pods("web-0", "web-2", "web-3")
        zero, weightless, ill = world.roster.instances
        assert (zero.ip, zero.port, zero.weight, zero.healthy) == ("10.0.0.10", 8080, 1.0, True)
        assert weightless.weight == 0
        assert not ill.healthy
        assert not world.roster.protected

    async def test_protected_health_is_recognised(self, nacos: FakeNacos) -> None:
        nacos.threshold = 0.6
        nacos.put(host(0), host(1, healthy=False))
        async with following(polling(nacos)) as world:
            await world.until_pods("web-0", "web-1")
        assert world.roster.protected
        assert world.roster.instances[1].healthy

    async def test_a_nacos_that_dropped_the_old_call_is_asked_by_the_new_one(self, nacos: FakeNacos) -> None:
        nacos.compatible = False
        nacos.put(host(0))
        async with following(polling(nacos)) as world:
            await world.until_pods("web-0")
            nacos.put(host(1))
            await world.until_pods("web-1")
        assert nacos.asked.count("/v1/ns/instance/list") == 1

    @pytest.mark.parametrize("status", [404, 405, 410, 501])
    async def test_an_upgrade_while_it_runs_is_followed(self, nacos: FakeNacos, status: int) -> None:
        nacos.put(host(0))
        async with following(polling(nacos)) as world:
            await world.until_pods("web-0")
            nacos.compatible, nacos.moved = False, status
            nacos.put(host(1))
            await world.until_pods("web-1")

    async def test_the_new_call_hides_protection_so_health_is_doubtful_where_all_are_healthy(
        self, nacos: FakeNacos
    ) -> None:
        nacos.compatible, nacos.threshold = False, 0.6
        nacos.put(host(0), host(1, healthy=False))
        async with following(polling(nacos)) as world:
            await world.until_pods("web-0", "web-1")
            assert world.roster.protected
            nacos.threshold = 0.1  # an unhealthy instance in the list proves that nothing is hidden
            await world.until(lambda: not world.roster.protected)
        assert not world.roster.instances[1].healthy

    async def test_namespace_group_and_clusters_choose(self, nacos: FakeNacos) -> None:
        nacos.services["prod", "G@@shop"] = [host(0, clusterName="HZ"), host(1, clusterName="SH")]
        nacos.put(host(2))
        key = ServiceKey("nacos", "shop", "prod", "G")
        async with following(polling(nacos, clusters=("SH",)), key) as world:
            await world.until(lambda: world.book.roster(key) is not None)
        roster = world.book.roster(key)
        assert roster is not None
        assert [one.metadata["pod"] for one in roster.instances] == ["web-1"]

    async def test_the_settings_give_what_a_policy_leaves_out(self, nacos: FakeNacos) -> None:
        nacos.services["prod", "G@@shop"] = [host(0)]
        async with following(polling(nacos, namespace="prod", group="G", pod_name_key="pod")) as world:
            await world.until_pods("web-0")
        assert world.roster.instances[0].pod_name == "web-0"

    async def test_a_wrong_context_path_is_an_error_that_says_so(self, nacos: FakeNacos) -> None:
        wrong = nacos.url.removesuffix("/nacos") + "/nacoss"
        async with following(polling(nacos, servers=(wrong,))) as world:
            await world.until_error("does the address end with Nacos' context path (/nacos)?")
        assert not world.roster.valid


class TestAdministratorsViews:
    async def test_nacos_3_shows_disabled_instances_and_true_health_to_an_administrator(self, nacos: FakeNacos) -> None:
        nacos.threshold = 0.9
        nacos.put(host(0), host(1, enabled=False), host(2, healthy=False))
        async with following(polling(nacos, admin=True)) as world:
            await world.until_pods("web-0", "web-1", "web-2")
        assert [one.enabled for one in world.roster.instances] == [True, False, True]
        assert [one.healthy for one in world.roster.instances] == [True, True, False]
        assert not world.roster.protected

    async def test_nacos_2_shows_them_in_its_catalog(self, old_nacos: FakeNacos) -> None:
        old_nacos.put(host(0), host(1, enabled=False))
        async with following(polling(old_nacos, admin=True)) as world:
            await world.until_pods("web-0", "web-1")
            old_nacos.put()
            await world.until_pods()
        assert old_nacos.asked.count("/v3/admin/ns/instance/list") == 1

    async def test_a_page_that_does_not_hold_all_is_no_answer(
        self, old_nacos: FakeNacos, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("adapter.registries.nacos.http.PAGE_SIZE", 1)
        old_nacos.put(host(0), host(1))
        async with following(polling(old_nacos, admin=True)) as world:
            await world.until_error("the answer is incomplete")
        assert not world.roster.valid

    async def test_an_unknown_service_is_an_empty_list_and_not_a_lacking_call(self, nacos: FakeNacos) -> None:
        nacos.put(host(0))
        async with following(polling(nacos, admin=True)) as world:
            await world.until_pods("web-0")
            nacos.services.clear()
            await world.until_pods()
        assert set(nacos.asked) == {"/v3/admin/ns/instance/list", "/v3/admin/ns/service"}

    async def test_without_the_right_the_error_says_what_to_do_and_the_last_list_stays(
        self, nacos: FakeNacos, password: Password
    ) -> None:
        nacos.users, nacos.readers = {"reader": "right"}, {"reader"}
        nacos.put(host(0))
        settings = polling(nacos, admin=True, username="reader", password_file=password.file)
        async with following(settings) as world:
            await world.until_pods("web-0")
            nacos.readers.clear()
            await world.until_error("give its user a role that may read (`r`) the namespace, or set `admin: false`")
        assert world.roster.instances[0].ip == "10.0.0.10"
        assert world.roster.valid

    async def test_a_service_without_instances_is_an_empty_list_too(self, nacos: FakeNacos) -> None:
        """Nacos 3.1 says of it that its cluster DEFAULT is not found."""
        nacos.put(host(0))
        async with following(polling(nacos, admin=True)) as world:
            await world.until_pods("web-0")
            nacos.put()
            await world.until_pods()
        assert "/v2/ns/catalog/instances" not in nacos.asked

    @pytest.mark.parametrize("default_cluster", ["DEFAULT", ""], ids=["Nacos 3.1", "later"])
    async def test_every_cluster_that_a_service_has_is_asked(self, nacos: FakeNacos, default_cluster: str) -> None:
        """Nacos 3.1 lists cluster DEFAULT where none is named, later versions list all."""
        nacos.default_cluster = default_cluster
        clusters = {0: "HZ", 1: "DEFAULT", 2: "SH"}
        nacos.put(*(host(number, clusterName=name) for number, name in clusters.items()))
        async with following(polling(nacos, admin=True)) as world:
            await world.until_pods("web-0", "web-1", "web-2")
            nacos.put(host(0, clusterName="HZ", enabled=False), host(2, clusterName="SH"))
            await world.until_pods("web-0", "web-2")
            assert [one.enabled for one in world.roster.instances] == [False, True]
        async with following(polling(nacos, admin=True, clusters=("SH",))) as world:
            await world.until_pods("web-2")

    async def test_a_cluster_that_may_not_be_read_is_an_error_and_the_last_list_stays(self, nacos: FakeNacos) -> None:
        nacos.put(host(0), host(1, clusterName="HZ"))
        async with following(polling(nacos, admin=True)) as world:
            await world.until_pods("web-0", "web-1")
            nacos.hidden.add("/v3/admin/ns/service")
            await world.until_error("/v3/admin/ns/service")
            assert world.pod_names() == ["web-0", "web-1"]

    async def test_a_server_without_such_lists_is_an_error_that_says_so(self, nacos: FakeNacos) -> None:
        nacos.version = 2
        async with following(polling(nacos, admin=True)) as world:
            await world.until(lambda: world.listed >= 0)
        nacos.moved = 404
        async with following(polling(nacos, admin=True, servers=(nacos.url + "/x",))) as world:
            await world.until_error("set `admin: false`")

    @pytest.mark.parametrize("push", [False, True])
    async def test_explicit_evidence_takes_its_pod_out_at_once(self, nacos: FakeNacos, push: bool) -> None:
        every = [host(number) for number in range(4)]
        nacos.put(*every)
        async with following(nacos.settings(admin=True, push=push)) as world:
            await world.until(lambda: set(world.pods.states().values()) == {"serving"})
            for change in ({"enabled": False}, {"weight": 0}, {"healthy": False}):
                nacos.put(host(0, **change), *every[1:])
                await world.until_out("web-0")
                nacos.put(*every)
                await world.until_out()


class TestAccess:
    @pytest.mark.parametrize("admin", [False, True])
    async def test_a_token_that_is_refused_keeps_the_last_list(
        self, nacos: FakeNacos, password: Password, admin: bool
    ) -> None:
        nacos.users, nacos.readers = {"reader": "right"}, {"reader"}
        nacos.put(*(host(number) for number in range(4)))
        settings = polling(nacos, username="reader", password_file=password.file, admin=admin)
        async with following(settings) as world:
            await world.until(lambda: set(world.pods.states().values()) == {"serving"})
            with world.pods.nothing_changes():
                nacos.users["reader"] = "changed"
                nacos.tokens.clear()
                world.clock.jump(31)
                await world.until_error("look at `username` and `passwordFile`")

    @pytest.mark.parametrize("version", [2, 3])
    async def test_a_user_logs_in_once(self, version: int, password: Password) -> None:
        async with FakeNacos(version) as nacos:
            nacos.users = {"reader": "right"}
            nacos.put(host(0))
            settings = polling(nacos, username="reader", password_file=password.file)
            async with following(settings) as world:
                await world.until_pods("web-0")
                nacos.put(host(1))
                await world.until_pods("web-1")
        assert nacos.logins == ["reader"]

    async def test_a_token_is_renewed_before_it_ends(self, nacos: FakeNacos, password: Password) -> None:
        nacos.users, nacos.token_ttl = {"reader": "right"}, 100
        nacos.put(host(0))
        async with following(polling(nacos, username="reader", password_file=password.file)) as world:
            await world.until_pods("web-0")
            world.clock.jump(89)
            nacos.put(host(1))
            await world.until_pods("web-1")
            assert len(nacos.logins) == 1
            world.clock.jump(2)
            await nacos.until(lambda: len(nacos.logins) == 2)
        assert not world.error

    async def test_a_refused_token_is_replaced_at_once(self, nacos: FakeNacos, password: Password) -> None:
        nacos.users = {"reader": "right"}
        nacos.put(host(0))
        async with following(polling(nacos, username="reader", password_file=password.file)) as world:
            await world.until_pods("web-0")
            world.clock.jump(31)
            nacos.tokens.clear()  # as when the server was given another signing key
            nacos.put(host(1))
            await world.until_pods("web-1")
        assert len(nacos.logins) == 2

    async def test_a_refusal_for_lack_of_rights_does_not_log_in_again_and_again(
        self, nacos: FakeNacos, password: Password
    ) -> None:
        nacos.users = {"reader": "right"}
        settings = polling(nacos, admin=True, username="reader", password_file=password.file)
        async with following(settings) as world:
            await world.until_error("authorization failed!")
            before = len(nacos.asked)
            await nacos.until(lambda: len(nacos.asked) > before + 10)
        assert len(nacos.logins) == 1

    @pytest.mark.parametrize("version", [2, 3])
    async def test_a_wrong_password_is_always_the_same_error_and_none_of_the_server(
        self, version: int, password: Password, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nacos 3.1 answers it with HTTP 500, and every error bears a date."""
        monkeypatch.setattr("adapter.runtime.backoff.FIRST_SECONDS", 0.001)
        async with FakeNacos(version) as nacos, FakeNacos(version) as other:
            nacos.users = {"reader": "right"}
            password.write("wrong")
            servers = (nacos.url, other.url)
            settings = polling(nacos, servers=servers, username="reader", password_file=password.file)
            async with following(settings) as world:
                await world.until_error("look at `username` and `passwordFile`")
                first = world.error
                await nacos.until(lambda: len(nacos.logins) >= 3)
                assert world.error == first
                trouble = world.book.trouble(SHOP)
                assert trouble is not None
                assert trouble.reason == "unauthenticated"
                password.write("right")
                await world.until(lambda: world.listed >= 0)
            assert other.asked == []

    async def test_a_missing_password_file_is_reported(self, nacos: FakeNacos, password: Password) -> None:
        async with following(polling(nacos, username="reader", password_file=password.file + "s")) as world:
            await world.until_error(f"cannot read {password.file}s")

    async def test_requests_are_signed_with_an_access_key(self, nacos: FakeNacos, tmp_path: Path) -> None:
        nacos.signed = True
        nacos.put(host(0))
        (tmp_path / "ak").write_text("ak\n")
        (tmp_path / "sk").write_text(f"{SECRET_KEY}\n")
        keys = {"access_key_file": str(tmp_path / "ak"), "secret_key_file": str(tmp_path / "sk")}
        async with following(polling(nacos, **keys)) as world:
            await world.until_pods("web-0")
            (tmp_path / "sk").write_text("another")
            await world.until_error("wrong signature")


async def test_the_first_list_after_an_outage_makes_absence_doubtful(nacos: FakeNacos) -> None:
    nacos.put(host(0))
    async with following(polling(nacos, timeout_seconds=0.5)) as world:
        await world.until_pods("web-0")
        nacos.hold = asyncio.Event()
        await world.until(lambda: world.error)
        nacos.hold.set()
        await world.until_pods("web-0")
        assert world.doubted()


async def test_one_service_that_fails_leaves_the_others(nacos: FakeNacos) -> None:
    cart = ServiceKey("nacos", "cart")
    nacos.services["public", "DEFAULT_GROUP@@cart"] = [{"enabled": True, "healthy": True, "ip": 7}]
    nacos.put(host(0))
    async with following(polling(nacos), SHOP, cart) as world:
        await world.until_pods("web-0")
        await world.until(lambda: world.book.roster(cart) is not None)
    found = world.book.roster(cart)
    assert found is not None
    assert not found.valid
    trouble = world.book.trouble(cart)
    assert trouble is not None
    assert "not what Nacos answers there" in trouble.sentence
    assert not world.error
