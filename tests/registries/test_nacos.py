"""Nacos by lists: which call, which rights, which server, and what is made of the answers."""

from collections.abc import Callable
from pathlib import Path

import pytest

from adapter.registries.nacos import signature
from adapter.registries.source import ServiceKey
from tests.registries.nacos_kit import CART, SECRET_KEY, SHOP, FakeNacos, Followed, following, host

both_versions = pytest.mark.parametrize("nacos", [2, 3], indirect=True)


def everyone_serves(followed: Followed) -> Callable[[], bool]:
    return lambda: set(followed.pods.states().values()) == {"serving"}


class TestClientLists:
    @both_versions
    async def test_a_disabled_instance_is_absent_for_clients(self, nacos: FakeNacos) -> None:
        nacos.put(host(0), host(1, enabled=False), host(2, weight=0), host(3, healthy=False))
        async with following(nacos.settings()) as followed:
            await followed.until_pods("web-0", "web-2", "web-3")
            zero, weightless, ill = followed.listing.instances
            assert (zero.ip, zero.port, zero.weight, zero.healthy) == ("10.0.0.10", 8080, 1.0, True)
            assert weightless.weight == 0
            assert not ill.healthy
            assert not followed.listing.protected

    async def test_the_protect_threshold_makes_health_no_evidence(self, nacos: FakeNacos) -> None:
        nacos.threshold = 0.6
        nacos.put(host(0), host(1, healthy=False))
        async with following(nacos.settings()) as followed:
            await followed.until_pods("web-0", "web-1")
            assert followed.listing.protected

    @pytest.mark.parametrize("status", [404, 405, 410, 501])
    async def test_the_new_call_is_used_once_a_server_drops_the_old(self, nacos: FakeNacos, status: int) -> None:
        async with following(nacos.settings()) as followed:
            await followed.until_pods("web-0", "web-1")
            nacos.compatible, nacos.moved = False, status
            nacos.put(host(1))
            await followed.until_pods("web-1")

    async def test_the_new_call_hides_protection_unless_one_is_unhealthy(self, nacos: FakeNacos) -> None:
        nacos.compatible, nacos.threshold = False, 0.6
        nacos.put(host(0), host(1, healthy=False))
        async with following(nacos.settings()) as followed:
            await followed.until_pods("web-0", "web-1")
            assert followed.listing.protected
            nacos.threshold = 0.1
            await followed.until(lambda: not followed.listing.protected)
            assert not followed.listing.instances[1].healthy

    async def test_namespace_group_and_clusters_select(self, nacos: FakeNacos) -> None:
        nacos.services["prod", "G@@shop"] = [host(0, clusterName="HZ"), host(2, clusterName="SH")]
        key = ServiceKey("nacos", "shop", "prod", "G")
        async with following(nacos.settings(clusters=("SH",)), key) as followed:
            await followed.until_pods("web-2", key=key)

    @pytest.mark.parametrize(
        ("admin", "words"),
        [(False, "does the address end with Nacos' context path (/nacos)?"), (True, "set `admin: false`")],
    )
    async def test_a_server_without_lists_is_an_error_with_advice(
        self, nacos: FakeNacos, admin: bool, words: str
    ) -> None:
        async with following(nacos.settings(servers=(f"{nacos.url}s",), admin=admin)) as followed:
            await followed.until_error(words)
        assert followed.listed == -1

    async def test_an_answer_about_another_service_is_refused(self, nacos: FakeNacos) -> None:
        nacos.put(host(0, serviceName="DEFAULT_GROUP@@cart"))
        async with following(nacos.settings()) as followed:
            await followed.until_error("the answer is about another service: DEFAULT_GROUP@@cart")
            nacos.put(host(0, serviceName="DEFAULT_GROUP@@shop"))
            await followed.until_pods("web-0")


class TestAdministratorsLists:
    async def test_they_show_disabled_instances_and_true_health(self, nacos: FakeNacos) -> None:
        nacos.threshold = 0.9
        nacos.put(host(0), host(1, enabled=False), host(2, healthy=False))
        async with following(nacos.settings(admin=True)) as followed:
            await followed.until_pods("web-0", "web-1", "web-2")
            assert [one.enabled for one in followed.listing.instances] == [True, False, True]
            assert [one.healthy for one in followed.listing.instances] == [True, True, False]
            assert not followed.listing.protected

    @pytest.mark.parametrize("nacos", [2], indirect=True)
    async def test_nacos_2_has_them_in_its_catalog_and_a_part_is_refused(self, nacos: FakeNacos) -> None:
        nacos.put(host(0), host(1, enabled=False))
        async with following(nacos.settings(admin=True)) as followed:
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
        async with following(nacos.settings(admin=True)) as followed:
            await followed.until_pods("web-0", "web-1")
            nacos.put()
            if not is_known:
                nacos.services.clear()
            await followed.until_pods()

    async def test_without_the_right_the_last_list_stays_with_an_error(
        self, nacos: FakeNacos, user: dict[str, str]
    ) -> None:
        nacos.readers = {"reader"}
        async with following(nacos.settings(admin=True, **user)) as followed:
            await followed.until_pods("web-0", "web-1")
            nacos.readers.clear()
            await followed.until_error("give its user a role that may read (`r`) the namespace, or set `admin: false`")
            assert followed.listed == 2

    @pytest.mark.parametrize("default_cluster", ["DEFAULT", ""], ids=["Nacos 3.1", "later"])
    async def test_every_cluster_that_a_service_has_is_asked(self, nacos: FakeNacos, default_cluster: str) -> None:
        """Nacos 3.1 lists cluster DEFAULT if none is named, later versions list all."""
        nacos.default_cluster = default_cluster
        nacos.put(*(host(number, clusterName=name) for number, name in enumerate(("HZ", "DEFAULT", "SH"))))
        async with following(nacos.settings(admin=True)) as followed:
            await followed.until_pods("web-0", "web-1", "web-2")
            nacos.put(host(0, clusterName="HZ", enabled=False), host(2, clusterName="SH"))
            await followed.until_pods("web-0", "web-2")
            assert [one.enabled for one in followed.listing.instances] == [False, True]
            nacos.hidden.add("/v3/admin/ns/service")
            await followed.until_error("/v3/admin/ns/service")
            assert followed.listed == 2
        nacos.hidden.clear()
        async with following(nacos.settings(admin=True, clusters=("SH",))) as followed:
            await followed.until_pods("web-2")


class TestCredentials:
    @both_versions
    async def test_a_token_that_ended_is_renewed(self, nacos: FakeNacos, user: dict[str, str]) -> None:
        async with following(nacos.settings(**user)) as followed:
            await followed.until_pods("web-0", "web-1")
            assert nacos.logins == ["reader"]
            followed.clock.jump(31)
            nacos.tokens.clear()
            nacos.put(host(0))
            await followed.until_pods("web-0")
        assert len(nacos.logins) == 2

    async def test_a_lack_of_rights_does_not_log_in_again(self, nacos: FakeNacos, user: dict[str, str]) -> None:
        async with following(nacos.settings(admin=True, **user)) as followed:
            await followed.until_error("authorization failed!")
            before = len(nacos.asked)
            await nacos.until(lambda: len(nacos.asked) > before + 3)
        assert len(nacos.logins) == 1

    @both_versions
    async def test_a_wrong_password_is_named_and_the_right_one_is_taken(
        self, nacos: FakeNacos, user: dict[str, str], tmp_path: Path
    ) -> None:
        """Nacos 3.1 answers a wrong password with HTTP 500."""
        (tmp_path / "password").write_text("wrong")
        async with following(nacos.settings(**user)) as followed:
            await followed.until_error("check `username` and `passwordFile`")
            trouble = followed.cache.trouble(SHOP)
            assert trouble is not None
            assert trouble.reason == "unauthenticated"
            (tmp_path / "password").write_text("right")
            await followed.until_listed(2)

    async def test_a_login_that_fails_is_not_tried_for_each_service(
        self, nacos: FakeNacos, user: dict[str, str]
    ) -> None:
        nacos.login_fault = 503
        services = [ServiceKey("nacos", f"service-{number}") for number in range(50)]
        async with following(nacos.settings(**user), *services) as followed:
            await followed.until(lambda: all("HTTP 503" in followed.error_of(key) for key in services))
            assert len(nacos.logins) < len(services) / 2
            nacos.login_fault = 0
            await followed.until(lambda: not any(map(followed.error_of, services)))

    async def test_a_missing_password_file_is_reported(self, nacos: FakeNacos, user: dict[str, str]) -> None:
        missing = f"{user['password_file']}s"
        async with following(nacos.settings(**user | {"password_file": missing})) as followed:
            await followed.until_error(f"cannot read {missing}")

    def test_a_signature_is_a_known_one(self) -> None:
        # By `printf %s 1700000000123@@G@@shop | openssl dgst -sha1 -hmac sk -binary | base64`.
        assert signature("ak", "sk", "G@@shop", 1_700_000_000.123) == {
            "ak": "ak",
            "data": "1700000000123@@G@@shop",
            "signature": "9e/7WhOfoLcnJx9wPgQ8g6Wcoio=",
        }

    async def test_requests_are_signed_with_an_access_key(self, nacos: FakeNacos, tmp_path: Path) -> None:
        nacos.signed = True
        (tmp_path / "ak").write_text("ak\n")
        (tmp_path / "sk").write_text(f"{SECRET_KEY}\n")
        keys = {"access_key_file": str(tmp_path / "ak"), "secret_key_file": str(tmp_path / "sk")}
        async with following(nacos.settings(**keys)) as followed:
            await followed.until_pods("web-0", "web-1")
            (tmp_path / "sk").write_text("another")
            await followed.until_error("wrong signature")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (500, "HTTP 500"),
        (401, "HTTP 401"),
        (403, "HTTP 403"),
        ("cut", "disconnected"),
        ("hang", "no answer"),
        (0, "not what Nacos answers there"),
    ],
)
async def test_one_service_that_fails_costs_others_nothing(
    nacos: FakeNacos, user: dict[str, str], fault: int | str, words: str
) -> None:
    nacos.faults["cart"] = fault
    nacos.services["public", "DEFAULT_GROUP@@cart"] = [{"enabled": True, "healthy": True, "ip": 7}]
    async with following(nacos.settings(timeout_seconds=1, **user), SHOP, CART) as followed:
        await followed.until(lambda: words in followed.error_of(CART))
        followed.clock.jump(31)  # the token is not young any more
        for pods in (["web-1"], ["web-0"]):
            nacos.put(*(host(int(name[-1])) for name in pods))
            await followed.until_pods(*pods)
        assert followed.listed_of(CART) == -1
