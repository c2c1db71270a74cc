"""Nacos by lists: which call, which rights, which server, and what is made of the answers."""

import asyncio
from pathlib import Path

import pytest

from adapter.registries.source import ServiceKey
from adapter.runtime.concurrency import AT_ONCE
from tests.registries.nacos_kit import CART, SECRET_KEY, SHOP, FakeNacos, following, host, polling

both_versions = pytest.mark.parametrize("nacos", [2, 3], indirect=True)


class TestClientViews:
    @both_versions
    async def test_a_disabled_instance_is_absent_for_clients(self, nacos: FakeNacos) -> None:
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

    @pytest.mark.parametrize("status", [404, 405, 410, 501])
    async def test_a_nacos_that_drops_the_old_call_is_asked_by_the_new_one_from_then_on(
        self, nacos: FakeNacos, status: int
    ) -> None:
        async with following(polling(nacos)) as world:
            await world.until_pods("web-0", "web-1")
            nacos.compatible, nacos.moved = False, status
            nacos.put(host(1))
            await world.until_pods("web-1")
            old_calls = nacos.asked.count("/v1/ns/instance/list")
            nacos.put(host(0))
            await world.until_pods("web-0")
        assert nacos.asked.count("/v1/ns/instance/list") == old_calls

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
        nacos.services["prod", "G@@shop"] = [host(0, clusterName="HZ"), host(2, clusterName="SH")]
        key = ServiceKey("nacos", "shop", "prod", "G")
        async with following(polling(nacos, clusters=("SH",)), key) as world:
            await world.until_listed(1, key)
        roster = world.book.roster(key)
        assert roster is not None
        assert [one.metadata["pod"] for one in roster.instances] == ["web-2"]

    async def test_the_settings_give_what_a_policy_leaves_out(self, nacos: FakeNacos) -> None:
        nacos.services["prod", "G@@shop"] = [host(2)]
        async with following(polling(nacos, namespace="prod", group="G", pod_name_key="pod")) as world:
            await world.until_pods("web-2")
        assert world.roster.instances[0].pod_name == "web-2"

    @pytest.mark.parametrize(
        ("admin", "words"),
        [(False, "does the address end with Nacos' context path (/nacos)?"), (True, "set `admin: false`")],
    )
    async def test_a_server_without_such_lists_is_an_error_that_says_so(
        self, nacos: FakeNacos, admin: bool, words: str
    ) -> None:
        async with following(polling(nacos, servers=(f"{nacos.url}s",), admin=admin)) as world:
            await world.until_error(words)
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

    @pytest.mark.parametrize("nacos", [2], indirect=True)
    async def test_nacos_2_shows_them_in_its_catalog(self, nacos: FakeNacos, monkeypatch: pytest.MonkeyPatch) -> None:
        nacos.put(host(0), host(1, enabled=False))
        async with following(polling(nacos, admin=True)) as world:
            await world.until_pods("web-0", "web-1")
            nacos.put()
            await world.until_pods()
            monkeypatch.setattr("adapter.registries.nacos.http.PAGE_SIZE", 1)
            nacos.put(host(0), host(1))
            await world.until_error("the answer is incomplete")
            assert world.listed == 0
        assert nacos.asked.count("/v3/admin/ns/instance/list") == 1

    @pytest.mark.parametrize("is_known", [False, True])
    async def test_a_service_without_instances_is_an_empty_list_too(self, nacos: FakeNacos, is_known: bool) -> None:
        """Nacos 3.1 says of one that it knows that its cluster DEFAULT is not found."""
        async with following(polling(nacos, admin=True)) as world:
            await world.until_pods("web-0", "web-1")
            nacos.put()
            if not is_known:
                nacos.services.clear()
            await world.until_pods()
        assert set(nacos.asked) == {"/v3/admin/ns/instance/list", "/v3/admin/ns/service"}

    async def test_without_the_right_the_error_says_what_to_do_and_the_last_list_stays(
        self, nacos: FakeNacos, user: dict[str, str]
    ) -> None:
        nacos.readers = {"reader"}
        async with following(polling(nacos, admin=True, **user)) as world:
            await world.until_pods("web-0", "web-1")
            nacos.readers.clear()
            await world.until_error("give its user a role that may read (`r`) the namespace, or set `admin: false`")
            assert world.listed == 2

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
        self, nacos: FakeNacos, user: dict[str, str], admin: bool
    ) -> None:
        nacos.readers = {"reader"}
        nacos.put(*(host(number) for number in range(4)))
        async with following(polling(nacos, admin=admin, **user)) as world:
            await world.until(lambda: set(world.pods.states().values()) == {"serving"})
            with world.pods.nothing_changes():
                nacos.users["reader"] = "changed"
                nacos.tokens.clear()
                world.clock.jump(31)
                await world.until_error("look at `username` and `passwordFile`")

    @both_versions
    async def test_a_user_logs_in_once_and_again_before_the_token_ends_or_when_it_is_refused(
        self, nacos: FakeNacos, user: dict[str, str]
    ) -> None:
        nacos.token_ttl = 100
        async with following(polling(nacos, **user)) as world:
            await world.until_pods("web-0", "web-1")
            world.clock.jump(80)
            nacos.put(host(1))
            await world.until_pods("web-1")
            assert nacos.logins == ["reader"]
            world.clock.jump(11)
            await nacos.until(lambda: len(nacos.logins) == 2)
            await world.until_confirmed()
            assert not world.error
            world.clock.jump(31)
            nacos.tokens.clear()  # as when the server was given another signing key
            nacos.put(host(0))
            await world.until_pods("web-0")
        assert len(nacos.logins) == 3

    async def test_a_refusal_for_lack_of_rights_does_not_log_in_again_and_again(
        self, nacos: FakeNacos, user: dict[str, str]
    ) -> None:
        async with following(polling(nacos, admin=True, **user)) as world:
            await world.until_error("authorization failed!")
            before = len(nacos.asked)
            await nacos.until(lambda: len(nacos.asked) > before + 10)
        assert len(nacos.logins) == 1

    @both_versions
    async def test_a_wrong_password_is_always_the_same_error_and_none_of_the_server(
        self, nacos: FakeNacos, user: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nacos 3.1 answers it with HTTP 500, and every error bears a date."""
        monkeypatch.setattr("adapter.runtime.backoff.FIRST_SECONDS", 0.001)
        (tmp_path / "password").write_text("wrong")
        async with (
            FakeNacos(nacos.version) as other,
            following(polling(nacos, servers=(nacos.url, other.url), **user)) as world,
        ):
            await world.until_error("look at `username` and `passwordFile`")
            first = world.error
            await nacos.until(lambda: len(nacos.logins) >= 3)
            trouble = world.book.trouble(SHOP)
            assert trouble is not None
            assert (trouble.reason, trouble.sentence) == ("unauthenticated", first)
            (tmp_path / "password").write_text("right")
            await world.until_listed(2)
            assert other.asked == []

    async def test_a_login_that_fails_is_not_tried_for_each_service(
        self, nacos: FakeNacos, user: dict[str, str]
    ) -> None:
        nacos.busy = True
        services = [ServiceKey("nacos", f"service-{number}") for number in range(50)]
        async with following(polling(nacos, **user), *services) as world:
            await world.until(lambda: all("busy" in world.error_of(key) for key in services))
            assert len(nacos.logins) < len(services) / 2
            nacos.busy = False
            await world.until(lambda: not any(map(world.error_of, services)))

    async def test_a_service_whose_list_is_refused_costs_no_other_the_token(
        self, nacos: FakeNacos, user: dict[str, str]
    ) -> None:
        nacos.put(host(2), service="cart")
        async with following(polling(nacos, **user), SHOP, CART) as world:
            await world.until_pods("web-0", "web-1")
            nacos.denied = {"cart"}
            await world.until(lambda: "not this one" in world.error_of(CART))
            nacos.users["reader"] = "changed"
            world.clock.jump(31)
            await world.until(lambda: "login at" in world.error_of(CART))
            for _ in range(3):
                await world.until_confirmed()
                assert not world.error

    async def test_services_do_not_wait_for_a_login_that_is_never_answered_while_the_token_is_valid(
        self, nacos: FakeNacos, user: dict[str, str]
    ) -> None:
        nacos.token_ttl = 100
        services = [ServiceKey("nacos", f"service-{number:02}") for number in range(20)]
        async with following(polling(nacos, timeout_seconds=1, **user), *services) as world:
            await world.until(lambda: all(world.listed_of(key) == 0 for key in services))
            nacos.stuck = True
            world.clock.jump(91)
            logins = len(nacos.logins)
            await nacos.until(lambda: len(nacos.logins) > logins)
            for key in services:
                nacos.put(host(1), service=key.service)
            async with asyncio.timeout(15):
                await world.until(lambda: all(world.listed_of(key) == 1 for key in services))

    async def test_a_missing_password_file_is_reported(self, nacos: FakeNacos, user: dict[str, str]) -> None:
        missing = f"{user['password_file']}s"
        async with following(polling(nacos, **user | {"password_file": missing})) as world:
            await world.until_error(f"cannot read {missing}")

    async def test_requests_are_signed_with_an_access_key(self, nacos: FakeNacos, tmp_path: Path) -> None:
        nacos.signed = True
        (tmp_path / "ak").write_text("ak\n")
        (tmp_path / "sk").write_text(f"{SECRET_KEY}\n")
        keys = {"access_key_file": str(tmp_path / "ak"), "secret_key_file": str(tmp_path / "sk")}
        async with following(polling(nacos, **keys)) as world:
            await world.until_pods("web-0", "web-1")
            (tmp_path / "sk").write_text("another")
            await world.until_error("wrong signature")


async def test_one_service_that_fails_leaves_the_others(nacos: FakeNacos) -> None:
    nacos.services["public", "DEFAULT_GROUP@@cart"] = [{"enabled": True, "healthy": True, "ip": 7}]
    async with following(polling(nacos), SHOP, CART) as world:
        await world.until_pods("web-0", "web-1")
        await world.until(lambda: "not what Nacos answers there" in world.error_of(CART))
        assert world.listed_of(CART) == -1
        assert not world.error


async def test_a_service_that_no_server_can_list_is_no_reason_to_leave_one(nacos: FakeNacos) -> None:
    async with FakeNacos() as other:
        nacos.ill = other.ill = {"cart"}
        async with following(polling(nacos, servers=(nacos.url, other.url)), SHOP, CART) as world:
            await world.until_pods("web-0", "web-1")
            await world.until(lambda: "HTTP 500" in world.error_of(CART))
            for _ in range(3):
                await world.until_confirmed()
            assert world.pod_names() == ["web-0", "web-1"]


async def test_a_service_whose_list_is_never_answered_is_no_error_of_others(nacos: FakeNacos) -> None:
    nacos.silent = {"cart"}
    async with following(polling(nacos, timeout_seconds=1), SHOP, CART) as world:
        await world.until_pods("web-0", "web-1")
        await world.until(lambda: "no answer" in world.error_of(CART))
        for _ in range(3):
            await world.until_confirmed()
            assert not world.error


@pytest.mark.parametrize("how", ["cut", "denied"])
async def test_a_list_that_fails_at_once_does_not_end_those_that_take_longer(nacos: FakeNacos, how: str) -> None:
    nacos.hold = asyncio.Event()
    getattr(nacos, how).add("cart")
    async with following(polling(nacos), SHOP, CART) as world:
        await world.until(lambda: world.error_of(CART))
        assert not world.error
        nacos.hold.set()
        await world.until_pods("web-0", "web-1")


async def test_any_number_of_services_that_are_never_answered_keep_no_other_from_being_listed(nacos: FakeNacos) -> None:
    silent = [ServiceKey("nacos", f"cart-{number:02}") for number in range(2 * AT_ONCE + 1)]
    async with following(polling(nacos, timeout_seconds=1), SHOP, *silent) as world:
        await world.until_pods("web-0", "web-1")
        await world.until(lambda: all(world.listed_of(key) == 0 for key in silent))
        nacos.silent = {key.service for key in silent}
        await world.until(lambda: all(world.error_of(key) for key in silent))
        for names in (("web-1",), ("web-0",)):
            nacos.put(*(host(int(name[-1])) for name in names))
            await world.until_pods(*names)
            assert not world.error


@pytest.mark.parametrize("end", ["at once", "never"])
async def test_any_number_of_services_whose_lists_have_no_answer_are_no_error_of_others(
    nacos: FakeNacos, end: str
) -> None:
    others = [ServiceKey("nacos", f"cart-{number:02}") for number in range(2 * AT_ONCE + 1)]
    async with following(polling(nacos, interval_seconds=0.5, timeout_seconds=1), SHOP, *others) as world:
        await world.until_pods("web-0", "web-1")
        await world.until(lambda: all(world.listed_of(key) == 0 for key in others))
        nacos.cut, nacos.silent = (set(), {key.service for key in others})[:: 1 if end == "never" else -1]
        await world.until(lambda: all(map(world.error_of, others)))
        await world.until_confirmed()
        asked, told = len(nacos.asked), len(world.changes.received)
        await nacos.until(lambda: len(nacos.asked) > asked + 2 * len(others))
        assert SHOP not in {key for key, _ in world.changes.received[told:]}


async def test_all_are_listed_at_once_after_an_outage(nacos: FakeNacos) -> None:
    """None waits for its turn because it had no answer in the outage."""
    others = [ServiceKey("nacos", f"cart-{number:02}") for number in range(2 * AT_ONCE)]
    nacos.cut = {"shop", *(key.service for key in others)}
    async with following(polling(nacos), SHOP, *others) as world:
        await nacos.until(lambda: len(nacos.asked) > 4 * AT_ONCE)
        nacos.cut = set()
        await world.until_pods("web-0", "web-1")
        await world.until(lambda: all(world.listed_of(key) == 0 for key in others))
