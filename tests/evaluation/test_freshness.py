"""Which watches are stale, which policies that affects, and the sentences that say so."""

import asyncio
from dataclasses import dataclass, field

import pytest

from adapter.evaluation.freshness import Freshness, KindKey, silence_of
from adapter.kube.errors import Forbidden, KubeError, NotFound, TimedOut
from adapter.policy.linking import TargetRef
from adapter.telemetry.metrics import Metrics
from tests.load.kit import NOW

WIDGET = KindKey("example.com/v1", "Widget")
FORBIDDEN = Forbidden(
    403,
    "Forbidden",
    'pods is forbidden: User "me" cannot list resource "pods" in API group "" at the cluster scope',
    request="GET /api/v1/pods",
)


@dataclass
class FakeWatch:
    """A reflector with the attributes that are checked."""

    name: str = "pods"
    namespace: str = ""
    silent: bool = False
    confirmed_at: float | None = NOW
    trouble: KubeError | None = None
    synced: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        if self.confirmed_at is not None:
            self.synced.set()


class Checked:
    """The freshness of these watches, and the calls that it made."""

    def __init__(self, *shared: FakeWatch, **kinds: FakeWatch) -> None:
        self.kinds = {KindKey("example.com/v1", kind): {one.namespace: one} for kind, one in kinds.items()}
        self.namespaces: list[str] = []
        self.changed_kinds: list[KindKey] = []
        self.metrics = Metrics()
        self.freshness = Freshness(
            shared, lambda: self.kinds, self.namespaces.append, self.changed_kinds.append, self.metrics
        )
        self.freshness.check()

    def policy(self, namespace: str = "shop", kind: str = "Deployment") -> str | None:
        version = "example.com/v1" if kind == "Widget" else "apps/v1"
        return self.freshness.policy(namespace, TargetRef(namespace, version, kind, "web"))

    def count(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value("effective_load_watch_stale", {"resource": name})


def test_a_silent_watch_of_a_kind_affects_the_policies_of_that_kind() -> None:
    checked = Checked(FakeWatch(), Widget=FakeWatch("widgets.example.com", silent=True))
    assert checked.policy() is None
    assert "widgets.example.com" in (checked.policy(kind="Widget") or "")
    assert (checked.freshness.unready(), checked.freshness.warning()) == (None, None)
    assert (checked.changed_kinds, checked.namespaces) == ([WIDGET], [])
    assert checked.count("widgets.example.com") == 1


def test_a_replica_whose_watches_are_all_silent_is_unready() -> None:
    watches = [FakeWatch(namespace="shop", silent=True), FakeWatch(namespace="cart")]
    checked = Checked(*watches)
    watches[1].silent = True
    checked.freshness.check()
    assert checked.freshness.unready() == checked.freshness.warning() is not None
    assert (checked.policy() is not None, checked.policy("cart") is not None) == (True, True)


def test_a_silent_watch_of_endpoint_slices_is_no_policys_error_and_a_warning() -> None:
    checked = Checked(FakeWatch(), FakeWatch("endpointslices", silent=True))
    assert (checked.policy(), checked.policy("cart"), checked.freshness.unready()) == (None, None, None)
    assert "endpointslices" in (checked.freshness.warning() or "")
    assert checked.freshness.endpoints_silent("shop")
    assert checked.namespaces == [""], "its policies are assessed again"


def test_a_silent_watch_is_silent_during_a_check_too_when_a_thread_may_ask() -> None:
    seen: list[bool] = []

    class Asking(FakeWatch):
        """It is looked at first, and the assessment in the thread asks at that moment."""

        @property  # type: ignore[override]
        def silent(self) -> bool:
            if checked is not None:
                seen.append(checked.freshness.endpoints_silent("shop"))
            return False

        @silent.setter
        def silent(self, _: bool) -> None: ...

    checked: Checked | None = None
    checked = Checked(Asking(), FakeWatch("endpointslices", silent=True))
    checked.freshness.check()
    assert seen
    assert all(seen)


def test_a_revoked_right_is_a_warning_and_makes_no_replica_unready() -> None:
    checked = Checked(FakeWatch(silent=True, trouble=FORBIDDEN))
    assert checked.freshness.unready() is None
    assert "ClusterRole" in (checked.freshness.warning() or "")


def test_a_right_that_was_never_granted_makes_the_replica_unready() -> None:
    checked = Checked(FakeWatch(silent=True, confirmed_at=None, trouble=FORBIDDEN))
    assert "ClusterRole" in (checked.freshness.unready() or "")


def test_a_change_is_reported_once() -> None:
    watch = FakeWatch()
    checked = Checked(watch)
    watch.silent = True
    for _ in range(3):
        checked.freshness.check()
    assert checked.namespaces == [""]
    watch.trouble = FORBIDDEN
    checked.freshness.check()
    watch.silent, watch.trouble = False, None
    checked.freshness.check()
    checked.freshness.check()
    assert checked.namespaces == [""] * 3


def test_the_sentence_has_the_time_of_the_last_proof_and_stays_the_same() -> None:
    sentence = silence_of(FakeWatch(silent=True, confirmed_at=NOW))
    assert sentence is not None
    assert sentence.startswith("the watch of pods has shown no life since 20")
    assert sentence == silence_of(FakeWatch(silent=True, confirmed_at=NOW + 0.2))


@pytest.mark.parametrize(
    ("watch", "says"),
    [
        (
            FakeWatch(confirmed_at=None, silent=True, trouble=FORBIDDEN),
            'pods have not been listed yet: pods is forbidden: User "me" cannot list resource "pods" in API group ""',
        ),
        (
            FakeWatch(confirmed_at=None, silent=True, trouble=FORBIDDEN),
            "watch pods; ClusterRole effective-load-server (manifests/base/rbac.yaml) has",
        ),
        (
            FakeWatch(confirmed_at=None, silent=True, trouble=FORBIDDEN, namespace="shop"),
            "let the service account list and watch pods in namespace shop; ",
        ),
        (
            FakeWatch("watermarkpolicies", confirmed_at=None, silent=True, trouble=NotFound(404, "NotFound", "none")),
            "watermarkpolicies have not been listed yet: the API server does not serve them; apply manifests/crd",
        ),
        (FakeWatch(silent=True, trouble=TimedOut("GET /api/v1/pods: silent")), "said: no answer in time"),
    ],
)
def test_the_cause_is_named_with_a_remedy(watch: FakeWatch, says: str) -> None:
    assert says in (silence_of(watch) or "")
