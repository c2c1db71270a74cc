"""Which watches are not believed, whom that concerns, and in which words."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from adapter.evaluation.freshness import GRANTED, MANIFEST, Freshness, KindKey, silence_of
from adapter.kube.errors import Forbidden, KubeError, NotFound, TimedOut
from adapter.policy.linking import TargetRef
from adapter.telemetry.metrics import Metrics
from tests.load.world import NOW

WIDGET = KindKey("example.com/v1", "Widget")
FORBIDDEN = Forbidden(
    403,
    "Forbidden",
    'pods is forbidden: User "me" cannot list resource "pods" in API group "" at the cluster scope',
    request="GET /api/v1/pods",
)


@dataclass
class FakeWatch:
    """A watch as far as it is looked at."""

    name: str = "pods"
    namespace: str = ""
    silent: bool = False
    proven_at: float | None = NOW
    trouble: KubeError | None = None
    synced: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        if self.proven_at is not None:
            self.synced.set()


class Told:
    """A freshness over these watches, and of what it told."""

    def __init__(self, *shared: FakeWatch, **kinds: FakeWatch) -> None:
        self.kinds = {KindKey("example.com/v1", kind): {one.namespace: one} for kind, one in kinds.items()}
        self.namespaces: list[str] = []
        self.told_kinds: list[KindKey] = []
        self.metrics = Metrics()
        self.freshness = Freshness(
            shared, lambda: self.kinds, self.namespaces.append, self.told_kinds.append, self.metrics
        )
        self.freshness.check()

    def policy(self, namespace: str = "shop", kind: str = "Deployment") -> str | None:
        version = "example.com/v1" if kind == "Widget" else "apps/v1"
        return self.freshness.policy(namespace, TargetRef(namespace, version, kind, "web"))

    def count(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value("effective_load_watch_silent", {"resource": name})


def test_while_all_watches_are_alive_everything_may_be_decided() -> None:
    told = Told(FakeWatch(), Widget=FakeWatch("widgets.example.com"))
    assert (told.policy(), told.policy(kind="Widget"), told.freshness.unready()) == (None, None, None)
    assert (told.count("pods"), told.count("widgets.example.com")) == (0, 0)


def test_a_silent_watch_of_a_kind_concerns_the_policies_of_that_kind() -> None:
    told = Told(FakeWatch(), Widget=FakeWatch("widgets.example.com", silent=True))
    assert told.policy() is None
    assert "widgets.example.com" in (told.policy(kind="Widget") or "")
    assert (told.freshness.unready(), told.freshness.warning()) == (None, None)
    assert (told.told_kinds, told.namespaces) == ([WIDGET], [])
    assert told.count("widgets.example.com") == 1


def test_a_silent_watch_of_one_namespace_concerns_that_namespace() -> None:
    told = Told(FakeWatch(namespace="shop", silent=True), FakeWatch(namespace="cart"))
    assert "pods in namespace shop" in (told.policy() or "")
    assert (told.policy("cart"), told.freshness.unready()) == (None, None)
    assert told.freshness.warning() == told.policy()
    assert told.namespaces == ["shop"]


def test_where_every_namespace_is_silent_nothing_can_be_decided() -> None:
    watches = [FakeWatch(namespace="shop", silent=True), FakeWatch(namespace="cart")]
    told = Told(*watches)
    watches[1].silent = True
    told.freshness.check()
    assert told.freshness.unready() is not None


def test_a_silent_watch_of_the_whole_cluster_concerns_everybody() -> None:
    told = Told(FakeWatch(), FakeWatch("horizontalpodautoscalers", silent=True))
    assert told.policy() == told.policy("cart", "Widget") == told.freshness.unready() is not None


def test_a_right_that_was_taken_away_from_all_replicas_makes_none_unready_and_is_told() -> None:
    told = Told(FakeWatch(silent=True, trouble=FORBIDDEN))
    assert told.freshness.unready() is None
    assert "bind ClusterRole" in (told.freshness.warning() or "")


def test_a_right_that_was_never_there_makes_a_replica_unready_so_that_those_of_before_go_on() -> None:
    told = Told(FakeWatch(silent=True, proven_at=None, trouble=FORBIDDEN))
    assert "bind ClusterRole" in (told.freshness.unready() or "")


def test_a_change_is_told_once() -> None:
    watch = FakeWatch()
    told = Told(watch)
    watch.silent = True
    for _ in range(3):
        told.freshness.check()
    assert told.namespaces == [""]
    watch.trouble = FORBIDDEN
    told.freshness.check()
    watch.silent, watch.trouble = False, None
    told.freshness.check()
    told.freshness.check()
    assert told.namespaces == [""] * 3


def test_a_kind_that_is_let_go_leaves_no_series_behind() -> None:
    told = Told(FakeWatch(), Widget=FakeWatch("widgets.example.com"))
    told.metrics.watch_proof.labels("widgets.example.com").set(1)
    told.metrics.watch_restarts.labels("widgets.example.com", "refused").inc()
    told.kinds.clear()
    told.freshness.check()
    assert told.count("widgets.example.com") is None
    assert told.count("pods") == 0
    for metric in (told.metrics.watch_proof, told.metrics.watch_restarts):
        assert not [one for family in metric.collect() for one in family.samples if "widgets" in str(one.labels)]


def test_the_sentence_says_since_when_and_stays_the_same() -> None:
    sentence = silence_of(FakeWatch(silent=True, proven_at=NOW))
    assert sentence is not None
    assert sentence.startswith("the watch of pods has shown no life since 20")
    assert sentence == silence_of(FakeWatch(silent=True, proven_at=NOW + 0.2))


@pytest.mark.parametrize(
    ("watch", "says"),
    [
        (
            FakeWatch(proven_at=None, silent=True, trouble=FORBIDDEN),
            'pods have not been listed yet: pods is forbidden: User "me" cannot list resource "pods" in API group ""',
        ),
        (
            FakeWatch(proven_at=None, silent=True, trouble=FORBIDDEN),
            "; bind ClusterRole effective-load-server to the service account (manifests/base/rbac.yaml)",
        ),
        (
            FakeWatch(proven_at=None, silent=True, trouble=FORBIDDEN, namespace="shop"),
            "bind ClusterRole effective-load-server to the service account in namespace shop (",
        ),
        (
            FakeWatch("widgets.example.com", proven_at=None, silent=True, trouble=FORBIDDEN),
            "let the service account list and watch widgets.example.com",
        ),
        (
            FakeWatch("watermarkpolicies", proven_at=None, silent=True, trouble=NotFound(404, "NotFound", "none")),
            "watermarkpolicies have not been listed yet: the API server does not serve them; apply manifests/crd",
        ),
        (FakeWatch(silent=True, trouble=TimedOut("GET /api/v1/pods: silent")), "said: no answer in time"),
    ],
)
def test_the_cause_is_named_with_what_to_do(watch: FakeWatch, says: str) -> None:
    assert says in (silence_of(watch) or "")


def test_what_the_role_is_said_to_grant_it_grants() -> None:
    rules = [
        rule
        for item in yaml.safe_load_all((Path(__file__).parents[2] / MANIFEST).read_text())
        if item["metadata"]["name"] == "effective-load-server"
        for rule in item.get("rules", ())
    ]
    granted = {
        plural if group != "apps" else f"{plural}.{group}"
        for rule in rules
        if {"list", "watch"} <= set(rule["verbs"])
        for group in rule["apiGroups"]
        for plural in rule["resources"]
    }
    assert granted == GRANTED
