"""Eureka's protocol where a real server cannot be made to show it: when the list is read anew, what is odd in JSON."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from adapter.registries.eureka.source import (
    EVICTION_SECONDS,
    LONGEST_CACHE_SECONDS,
    LONGEST_GAP_SECONDS,
    RELIST_SECONDS,
    RegistryCopy,
)
from adapter.registries.eureka.wire import Applications, InstanceInfo, InstanceSummary, decode_instances
from aiohttp import web
from blockbuster import blockbuster_ctx
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.pods import PodState
from adapter.registries.eureka import source as source_module
from adapter.registries.source import ServiceKey
from adapter.runtime.answer_budget import Body
from tests.registries.eureka_kit import REGISTRY, FakeEureka, Followed, following, hash_of, instance, raw
from tests.registries.kit import Clock

NOW = 1_767_268_800.0

KEYS = st.sampled_from(["applications", "application", "instance", "name", "port", "$", "status", "metadata"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner)
)
"""Documents that resemble Eureka's now and then."""


def four(*out: int) -> list[dict[str, Any]]:
    return [instance(number, "OUT_OF_SERVICE" if number in out else "UP") for number in range(4)]


@pytest.fixture
async def fake() -> AsyncIterator[FakeEureka]:
    """A Eureka with the four pods of `Followed`."""
    async with FakeEureka() as eureka:
        eureka.apps = {"WEB": four()}
        yield eureka


@pytest.fixture
async def followed(fake: FakeEureka) -> AsyncIterator[Followed]:
    async with following(fake.url) as service:
        await service.until_listed(4)
        yield service


async def several_answers(followed: Followed, count: int = 3) -> None:
    for _ in range(count):
        await followed.until_confirmed()


class TestWhenTheListIsRead:
    async def test_once_at_the_start_and_then_changes_are_asked_for(self, fake: FakeEureka) -> None:
        async with following(fake.url) as followed:
            with blockbuster_ctx("adapter"):
                await followed.until_listed(4)
                await several_answers(followed, 4)  # the list may still be on its way to be confirmed
        assert fake.asked[0] == "apps/"
        assert fake.lists == 1
        assert fake.deltas >= 3

    async def test_changes_are_taken_from_the_delta(self, fake: FakeEureka, followed: Followed) -> None:
        out = instance(1, "OUT_OF_SERVICE", action="MODIFIED")
        fake.apps = {"WEB": [*four(1)[:3], instance(4)]}
        fake.changes = {"WEB": [out, instance(3, action="DELETED"), instance(4, action="ADDED")]}
        await followed.until(lambda: "web-4" in followed.statuses)
        assert followed.statuses == {"web-0": "UP", "web-1": "OUT_OF_SERVICE", "web-2": "UP", "web-4": "UP"}
        assert fake.lists == 1

    async def test_an_instance_that_left_and_came_back_within_one_delta_is_there(
        self, fake: FakeEureka, followed: Followed
    ) -> None:
        back = instance(3, metadata={"zone": "b"})
        fake.apps = {"WEB": [*four()[:3], back]}
        fake.changes = {"WEB": [instance(3, action="DELETED"), back]}
        await followed.until(lambda: followed.roster.instances[3].metadata.get("zone") == "b")
        assert followed.listed == 4
        assert fake.lists == 1

    async def test_again_where_the_hash_shows_that_a_change_was_missed(
        self, fake: FakeEureka, followed: Followed
    ) -> None:
        followed.clock.jump(source_module.LEAST_RELIST_SECONDS)
        fake.apps = {"WEB": four(2)}
        await followed.until_out("web-2")
        assert fake.lists == 2

    async def test_a_change_of_an_application_that_nobody_follows_counts_for_the_hash(
        self, fake: FakeEureka, followed: Followed
    ) -> None:
        fake.apps["OTHER"] = [instance(9, "DOWN")]
        fake.changes = {"OTHER": [instance(9, "DOWN")]}
        followed.clock.jump(source_module.LEAST_RELIST_SECONDS)
        await several_answers(followed)
        assert fake.lists == 1

    async def test_a_hash_that_never_matches_is_no_reason_to_read_the_list_all_the_time(self, fake: FakeEureka) -> None:
        fake.hash = "UP_9_"
        async with following(fake.url) as followed:
            await followed.until_listed(4)
            deltas = fake.deltas
            fake.apps = {"WEB": four(0)}
            fake.changes = {"WEB": [instance(0, "OUT_OF_SERVICE", action="MODIFIED")]}
            await followed.until_out("web-0")  # a delta is believed all the same
            await followed.until(lambda: fake.deltas > deltas + 3)
            assert fake.lists == 1
            followed.clock.jump(source_module.LEAST_RELIST_SECONDS)
            await followed.until(lambda: fake.lists == 2)

    async def test_a_change_is_not_lost_where_the_list_that_should_explain_it_fails(
        self, fake: FakeEureka, followed: Followed
    ) -> None:
        followed.clock.jump(source_module.LEAST_RELIST_SECONDS)
        fake.apps, fake.hash = {"WEB": four(0)}, "UP_9_"
        fake.changes = {"WEB": [instance(0, "OUT_OF_SERVICE", action="MODIFIED")]}
        fake.handlers["apps/"] = lambda: web.Response(status=503)
        await followed.until_error("HTTP 503")
        fake.handlers.clear()
        fake.hash = None  # what was missed has passed
        await followed.until(lambda: not followed.error)
        assert followed.statuses["web-0"] == "OUT_OF_SERVICE"

    async def test_what_the_hash_does_not_confirm_grows_old(self, fake: FakeEureka, followed: Followed) -> None:
        await several_answers(followed)
        fake.hash = "UP_9_"
        deltas = fake.deltas
        await followed.until(lambda: fake.deltas > deltas + 1)
        heard_at = followed.roster.at
        await followed.until(lambda: fake.deltas > deltas + 3)
        assert followed.roster.at == heard_at

    async def test_again_after_a_gap_longer_than_deltas_are_kept(self, fake: FakeEureka, followed: Followed) -> None:
        followed.clock.jump(LONGEST_GAP_SECONDS + 1)
        await followed.until(lambda: fake.lists == 2)

    async def test_again_once_in_a_while_for_the_hash_does_not_see_exchanged_statuses(self, fake: FakeEureka) -> None:
        fake.apps = {"WEB": four(1)}
        async with following(fake.url) as followed:
            await followed.until_out("web-1")
            fake.apps = {"WEB": four(2)}  # and no delta tells of it
            for _ in range(int(RELIST_SECONDS / 40)):
                await followed.until_confirmed()
                assert followed.statuses["web-1"] == "OUT_OF_SERVICE"
                followed.clock.jump(40)
            await followed.until_out("web-2")
        assert fake.lists == 2

    async def test_again_where_a_new_service_is_asked_for(self, fake: FakeEureka) -> None:
        fake.apps["OTHER"] = [instance(9)]
        async with following(fake.url, interval_seconds=3600) as followed:
            await followed.until_listed(4)
            other = ServiceKey(REGISTRY, "other")
            followed.follow([followed.key, other])  # it is not waited for the end of the interval
            await followed.until_listed(1, other)
        assert fake.lists == 2

    async def test_a_second_name_for_a_known_application_needs_no_list(
        self, fake: FakeEureka, followed: Followed
    ) -> None:
        again = ServiceKey(REGISTRY, "Web", "shop")
        followed.follow([followed.key, again])
        await followed.until_listed(4, again)
        assert fake.lists == 1

    async def test_nothing_is_asked_for_while_nobody_follows_anything(
        self, fake: FakeEureka, followed: Followed
    ) -> None:
        async with FakeEureka() as other, following(other.url) as busy:
            followed.follow([])
            await busy.until_listed(0)
            await several_answers(busy, 2)  # what was on its way has arrived
            asked = len(fake.asked)
            await several_answers(busy, 5)
            assert len(fake.asked) == asked
            followed.follow([followed.key])
            await followed.until_listed(4)

    @pytest.mark.parametrize("delta", [raw({}, 403), raw({}, 404), raw({"applications": None})], ids=repr)
    async def test_each_time_where_there_is_no_delta_that_can_be_read(
        self, fake: FakeEureka, followed: Followed, delta: web.Response
    ) -> None:
        fake.handlers["apps/delta"] = lambda: web.Response(status=delta.status, text=delta.text)
        fake.asked.clear()
        fake.apps = {"WEB": four(3)}
        await followed.until_out("web-3")
        assert fake.asked[:2] == ["apps/delta", "apps/"]
        assert not followed.error

    async def test_where_a_delta_breaks_off_in_the_midst_no_half_of_it_stays(
        self, fake: FakeEureka, followed: Followed
    ) -> None:
        fake.changes = {"WEB": [instance(0, action="DELETED")], "AAA": [{"instanceId": 7}]}
        await followed.until(lambda: fake.lists >= 2)
        fake.changes = {}
        await several_answers(followed)
        assert followed.listed == 4


def everywhere(answer: Callable[[], web.Response]) -> dict[str, Callable[[], web.Response]]:
    """The answer in the place of the list and of the delta."""
    return {"apps/": answer, "apps/delta": answer}


class TestFailures:
    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            (lambda: web.Response(status=401), "HTTP 401: wrong user or password; check username and passwordFile"),
            (lambda: web.Response(status=403), "HTTP 403: it has just started and waits for its peers"),
            (lambda: web.Response(status=404), "HTTP 404: no Eureka here; check the prefix"),
            (lambda: web.Response(status=503, text="2026-01-01 sorry"), "HTTP 503: the server is in trouble itself"),
            (lambda: web.Response(status=429), "HTTP 429: the server is in trouble itself"),
            (lambda: web.Response(status=302, headers={"Location": "/login"}), "HTTP 302: this is no answer of Eureka"),
            (lambda: web.Response(text="<applications/>"), "not the JSON of Eureka"),
            (lambda: web.Response(text='{"applications": {"apps__hashcode": ""'), "not the JSON of Eureka"),
            (lambda: raw({"error": "?"}), "not the JSON of Eureka"),
        ],
    )
    async def test_an_answer_that_is_none_keeps_what_was_heard_and_says_why(
        self, fake: FakeEureka, answer: Callable[[], web.Response], words: str
    ) -> None:
        fake.apps = {"WEB": four(1)}
        async with following(fake.url) as followed:
            await followed.until_out("web-1")
            with followed.pods.nothing_changes():
                fake.handlers = everywhere(answer)
                await followed.until_error(words)
                assert fake.url in followed.error
                assert followed.listed == 4
            fake.handlers.clear()  # what answered may have been a gateway, while the server was started again
            await followed.until(lambda: not followed.error)

    @pytest.mark.parametrize(
        ("status", "asks_the_next"), [(401, False), (403, True), (404, False), (429, True), (503, True)]
    )
    async def test_the_next_server_is_asked_where_the_first_is_ill_or_waits_for_its_peers(
        self, fake: FakeEureka, status: int, asks_the_next: bool
    ) -> None:
        async with FakeEureka() as first:
            first.handlers = everywhere(lambda: web.Response(status=status))
            async with following(first.url, fake.url) as followed:
                await followed.until(lambda: followed.error or followed.listed == 4)
        assert bool(fake.asked) is asks_the_next
        assert not asks_the_next or first.asked == ["apps/"]

    async def test_another_peer_is_read_in_full(self, fake: FakeEureka) -> None:
        fake.apps = {"WEB": four(0)}
        async with FakeEureka() as other, following(fake.url, other.url) as followed:
            other.apps = {"WEB": four(1)}  # whose hash is the same
            await followed.until_out("web-0")
            fake.handlers = everywhere(lambda: web.Response(status=503))
            await followed.until_out("web-1")
            await several_answers(followed)
        assert other.lists == 1

    async def test_an_error_is_told_once_however_often_it_comes(self, fake: FakeEureka, followed: Followed) -> None:
        followed.changes.received.clear()
        said = (web.Response(status=500, text=f"at {n}") for n in range(1000))
        fake.handlers = {"apps/delta": lambda: next(said)}
        deltas = fake.deltas
        await followed.until(lambda: fake.deltas > deltas + 2)
        assert len(followed.changes.received) == 1


def registration(**more: Any) -> InstanceInfo:
    """What is read of one instance, which Eureka writes with these fields."""
    return read([{**instance(1), **more}])[0]


def read(instances: object) -> list[InstanceInfo]:
    body = json.dumps({"applications": {"application": {"name": "WEB", "instance": instances}}}).encode()
    [application] = Applications(Body(body))
    return list(decode_instances(application, InstanceInfo))


class TestJson:
    def test_one_of_a_list_may_stand_alone(self) -> None:
        assert [one.id for one in read(instance(1))] == ["web-1"]
        assert read(None) == []
        found = Applications(Body(b'{"applications": {"application": null}}'))
        assert (list(found), found.hashcode) == ([], None)

    @pytest.mark.parametrize(
        ("port", "secure", "expected"),
        [
            ({"$": 8080, "@enabled": "true"}, {"$": 8443, "@enabled": "false"}, 8080),
            ({"$": "8080", "@enabled": True}, None, 8080),
            ({"$": 8080, "@enabled": "false"}, {"$": "8443", "@enabled": "true"}, 8443),
            ({"$": 8080, "@enabled": "true"}, {"$": 8443, "@enabled": "true"}, 8080),
            ({"$": 8080, "@enabled": "false"}, {"$": 8443, "@enabled": "false"}, None),
            ({"$": 0, "@enabled": "true"}, None, None),
            ({"$": 8080}, {"$": 8443}, 8080),
            (8080, None, 8080),
            ("8080", 8443, 8080),
            (None, None, None),
            ({"$": "http", "@enabled": "true"}, None, None),
        ],
    )
    def test_the_port_is_the_one_in_use(self, port: object, secure: object, expected: int | None) -> None:
        assert registration(port=port, securePort=secure).instance("").port == expected

    @pytest.mark.parametrize(
        ("lease", "at"),
        [
            ({"registrationTimestamp": 1_767_268_800_000}, NOW),
            ({"registrationTimestamp": "1767268800000"}, NOW),
            ({"registrationTimestamp": 0}, None),
            ({"registrationTimestamp": "?"}, None),
            ({}, None),
            (None, None),
        ],
    )
    def test_times_are_milliseconds_as_numbers_or_text_and_others_are_not_known(
        self, lease: object, at: float | None
    ) -> None:
        found = registration(leaseInfo=lease)
        assert found.instance("").registered_at == at
        assert found.lease is None

    def test_metadata_are_text_without_the_marks_of_the_format(self) -> None:
        told = {"@class": "java.util.Collections$EmptyMap", "weight": 3, "zone": "a", "hostName": "mine"}
        metadata = registration(metadata=told).instance("").metadata
        assert metadata == {"hostName": "mine", "instanceId": "web-1", "weight": "3", "zone": "a"}
        assert registration(metadata=None).instance("").metadata == {"hostName": "web-1", "instanceId": "web-1"}

    @pytest.mark.parametrize(
        ("key", "expected"), [("", ""), ("podName", "web-7"), ("hostName", "web-1"), ("absent", "")]
    )
    def test_the_pod_is_named_by_metadata_or_by_the_host_name_where_the_settings_say_so(
        self, key: str, expected: str
    ) -> None:
        assert registration(metadata={"podName": "web-7"}).instance(key).pod_name == expected

    def test_without_an_id_the_host_name_tells_instances_apart(self) -> None:
        assert registration(instanceId=None).id == "web-1"

    @pytest.mark.parametrize(
        ("status", "override", "word"),
        [
            ("UP", "UNKNOWN", "UP"),
            ("OUT_OF_SERVICE", "UNKNOWN", "OUT_OF_SERVICE"),  # as Polaris writes it
            ("STARTING", "OUT_OF_SERVICE", "OUT_OF_SERVICE"),
            ("UNKNOWN", "DOWN", "DOWN"),
            ("UP", "OUT_OF_SERVICE", "UP"),  # what clients go by
            ("STARTING", "UP", "STARTING"),
            ("DOWN", "UP", "DOWN"),
            ("out_of_service", None, "OUT_OF_SERVICE"),
            (None, None, "UNKNOWN"),
        ],
    )
    @pytest.mark.parametrize("key", ["overriddenStatus", "overriddenstatus"])
    def test_the_word_is_the_status_or_an_override_that_waits(
        self, status: str | None, override: str | None, word: str, key: str
    ) -> None:
        entry = {"instanceId": "web-1", "status": status, key: override}
        assert read([entry])[0].instance("").status == word

    @given(ANYTHING)
    def test_any_json_is_decoded_or_refused(self, document: Any) -> None:
        try:
            for one in Applications(Body(json.dumps(document).encode())):
                list(decode_instances(one, InstanceSummary))
                for each in decode_instances(one, InstanceInfo):
                    each.instance("podName")
        except msgspec.MsgspecError:
            return


class TestCopy:
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["WEB", "OTHER", "THIRD"]),
                st.integers(0, 3),
                st.sampled_from(["UP", "DOWN", "OUT_OF_SERVICE", "STARTING"]),
                st.booleans(),
            ),
            max_size=20,
        )
    )
    async def test_after_any_changes_it_has_the_hash_and_the_instances_of_the_server(
        self, changes: list[tuple[str, int, str, bool]]
    ) -> None:
        server: dict[str, dict[int, dict[str, Any]]] = {}
        copy = RegistryCopy(["WEB"], "")
        for name, number, status, leaves in changes:
            one = instance(number, status, action="DELETED" if leaves else "MODIFIED")
            if leaves:
                server.get(name, {}).pop(number, None)
            else:
                server.setdefault(name, {})[number] = one
            await copy.apply_delta(parsed({name: [one]}))
        apps = {name: list(rows.values()) for name, rows in server.items()}
        assert copy.hashcode == hash_of(apps)
        expected = [(f"web-{n}", one["status"]) for n, one in sorted(server.get("WEB", {}).items())]
        assert [(one.metadata["instanceId"], one.status) for one in copy.instances("WEB")] == expected
        assert copy.instances("OTHER") == ()

    async def test_only_real_changes_are_named(self) -> None:
        copy = RegistryCopy(["WEB"], "")
        await copy.load(parsed({"WEB": four(), "OTHER": [instance(9)]}), NOW)
        assert await copy.apply_delta(parsed({"WEB": four(), "OTHER": [instance(9, "DOWN")]})) == frozenset()
        assert await copy.apply_delta(parsed({"WEB": [instance(8, action="DELETED")]})) == frozenset()
        assert await copy.apply_delta(parsed({"WEB": four(2)})) == {"WEB"}

    async def test_a_list_shares_what_it_has_in_common_with_the_one_before(self) -> None:
        before, copy = RegistryCopy(["WEB"], ""), RegistryCopy(["WEB"], "")
        await before.load(parsed({"WEB": four()}), NOW)
        await copy.load(parsed({"WEB": four(2)}), NOW, before)
        shared = [one is other for one, other in zip(copy.instances("WEB"), before.instances("WEB"), strict=True)]
        assert shared == [True, True, False, True]


class TestLeftovers:
    """A process that was killed leaves its registration behind, for ever where Eureka protects itself."""

    @staticmethod
    def at(name: str, status: str, registered: float | None, **more: Any) -> dict[str, Any]:
        """An instance of web-1's address that was registered at that time."""
        lease = {} if registered is None else {"registrationTimestamp": int(registered * 1000)}
        return instance(1, status, instanceId=name, leaseInfo=lease, **more)

    @pytest.mark.parametrize("old", ["a-before", "z-before"])
    async def test_of_one_address_and_port_the_newest_registration_counts(self, old: str) -> None:
        copy = RegistryCopy(["WEB"], "")
        await copy.load(
            parsed({"WEB": [self.at(old, "UP", NOW), self.at("new", "OUT_OF_SERVICE", NOW + 9), instance(2)]}), NOW
        )
        assert [(one.ip, one.status) for one in copy.instances("WEB")] == [
            ("10.0.0.11", "OUT_OF_SERVICE"),
            ("10.0.0.12", "UP"),
        ]
        assert copy.hashcode == "OUT_OF_SERVICE_1_UP_2_"
        assert await copy.apply_delta(parsed({"WEB": [self.at("new", "UP", NOW + 9, action="DELETED")]})) == {"WEB"}
        assert [one.status for one in copy.instances("WEB")] == ["UP", "UP"]

    @pytest.mark.parametrize(
        ("registered", "other"),
        [
            (None, {}),
            (NOW, {"port": {"$": 8081, "@enabled": "true"}}),
            (NOW, {"ipAddr": "", "hostName": "a"}),
            (NOW, {"hostName": "web-7"}),
        ],
    )
    async def test_what_is_not_older_or_another_place_counts_too(
        self, registered: float | None, other: dict[str, Any]
    ) -> None:
        copy = RegistryCopy(["WEB"], "hostName")
        later = self.at("b", "DOWN", registered and registered + 9)
        await copy.load(parsed({"WEB": [self.at("a", "UP", registered, **other), later]}), NOW)
        assert len(copy.instances("WEB")) == 2


def parsed(apps: dict[str, list[dict[str, Any]]]) -> Any:
    rows = [{"name": name, "instance": instances} for name, instances in apps.items()]
    return Applications(Body(json.dumps({"applications": {"application": rows}}).encode()))


def leased(number: int, heard: float, *, renewed: bool = True, duration: int = 90) -> dict[str, Any]:
    """An instance that gave its last sign of life at that time. A renewal is dated ahead by the duration."""
    stamp = int((heard + duration * renewed) * 1000)
    return instance(number, leaseInfo={"durationInSecs": duration, "lastRenewalTimestamp": stamp})


class TestSelfPreservation:
    @pytest.mark.parametrize(
        ("ended_for", "protected"), [(-200, False), (0, False), (EVICTION_SECONDS, False), (EVICTION_SECONDS + 1, True)]
    )
    @pytest.mark.parametrize("renewed", [True, False])
    async def test_it_shows_by_a_lease_that_ended_long_before_the_last_sign_of_life(
        self, ended_for: float, protected: bool, renewed: bool
    ) -> None:
        last_heard = NOW - ended_for - 90 * (1 + renewed)
        copy = RegistryCopy(["WEB", "OTHER"], "")
        await copy.load(parsed({"WEB": [leased(1, last_heard, renewed=renewed)], "OTHER": [leased(2, NOW)]}), NOW)
        assert copy.protected == ({"WEB"} if protected else set())

    @pytest.mark.parametrize(("beyond", "protected"), [(0, False), (1, True)])
    async def test_where_nobody_gives_a_sign_of_life_the_age_of_the_list_is_allowed_for(
        self, beyond: float, protected: bool
    ) -> None:
        heard = NOW - LONGEST_CACHE_SECONDS - EVICTION_SECONDS - 180 - beyond
        copy = RegistryCopy(["WEB"], "")
        await copy.load(parsed({"WEB": [leased(1, heard)]}), NOW)
        assert copy.protected == ({"WEB"} if protected else set())

    async def test_a_service_whose_dead_linger_is_told_as_protected_and_all_stay_in(self, fake: FakeEureka) -> None:
        now = Clock()()
        fake.apps = {"WEB": [leased(0, now), leased(1, now), leased(2, now - 900), leased(3, now - 900)]}
        async with following(fake.url) as followed:
            await followed.until_listed(4)
            assert followed.roster.protected
            assert followed.states() == [PodState.SERVING] * 4
