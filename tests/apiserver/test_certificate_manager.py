"""The certificate manager: one Secret for all replicas, its CA in the APIServices, or given files."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import trustme
from structlog.testing import capture_logs

from adapter.apiserver import certificates as cs
from adapter.apiserver.certificates import DAY, FILES_SECONDS, SECRET_SECONDS, CertificateManager, KeyPair
from adapter.apiserver.status import CertificateError
from adapter.kube.errors import Conflict, Forbidden
from adapter.kube.session import Session
from adapter.settings.server import ServerSettings, Tls
from adapter.telemetry.metrics import Metrics
from tests.apiserver.cluster import SECRET, SECRETS, SERVICES, Cluster

V2, V1 = "v1beta2.custom.metrics.k8s.io", "v1beta1.custom.metrics.k8s.io"
SETTINGS = ServerSettings(tls=Tls(namespace="adapter"))


class Replica:
    """A manager that records what it publishes."""

    def __init__(self, session: Session, settings: ServerSettings = SETTINGS) -> None:
        self.published: list[KeyPair] = []
        self.slept: list[float] = []
        self.metrics = Metrics()
        self.manager = CertificateManager(session, settings, self.metrics, self.published.append, sleep=self._sleep)
        self.rounds = 1

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if len(self.slept) >= self.rounds:
            await asyncio.Event().wait()
        await asyncio.sleep(0)

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"effective_load_{name}", labels) or 0

    async def run(self, rounds: int) -> None:
        """Run for a number of rounds."""
        self.rounds = rounds
        task = asyncio.create_task(self.manager.run())
        async with asyncio.timeout(30):
            while len(self.slept) < rounds:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def replica(session: Session) -> Replica:
    return Replica(session)


def later(session: Session, seconds: float) -> None:
    """Move the API server's clock."""
    shown = session.now() + seconds
    session.now = lambda: shown  # type: ignore[method-assign]


async def test_the_first_replica_creates_the_secret_and_publishes_its_ca_and_expiry(
    replica: Replica, cluster: Cluster
) -> None:
    cluster.register(V2)
    cluster.register(V1)
    await replica.manager.sync_secret()
    [pair] = replica.published
    assert (pair.certificate, pair.key) == (cluster.secret("tls.crt"), cluster.secret("tls.key"))
    assert cluster.bundle(V2) == cluster.bundle(V1) == cluster.secret("ca.crt")
    assert cluster.objects[SECRET]["type"] == "Opaque"  # as the manifests have it: a type cannot be changed later
    assert cs.dns_names(pair.leaf)[0] == "effective-load.adapter.svc"
    assert replica.metric("certificate_expiry_timestamp_seconds", certificate="serving") == pair.expires_at
    assert replica.metric("certificate_expiry_timestamp_seconds", certificate="authority") > pair.expires_at


async def test_nothing_is_written_while_nothing_is_due(session: Session, cluster: Cluster) -> None:
    cluster.register(V2)
    first, second = Replica(session), Replica(session)
    for each in (first, second, first):
        await each.manager.sync_secret()
    assert first.published == second.published
    written = (f"POST {SECRETS}", f"PATCH {SECRET}", f"PATCH {SERVICES}/{V2}")
    assert [cluster.asked[each] for each in written] == [1, 0, 1]
    assert len(first.published) == 1


@pytest.mark.parametrize("broken", [{"tls.crt": "!!"}, {"tls.crt": "AAAA"}, {"ca.key": "AAAA"}, {"tls.key": "/w=="}])
async def test_an_invalid_secret_is_replaced(replica: Replica, cluster: Cluster, broken: dict[str, str]) -> None:
    await replica.manager.sync_secret()
    cluster.objects[SECRET]["data"].update(broken)
    await replica.manager.sync_secret()
    assert len(replica.published) == 2
    assert cluster.secret("tls.crt") == replica.published[1].certificate


GONE = (
    "Secret effective-load-tls of namespace adapter, which keeps the serving certificate, does not exist, and the "
    "server may not create it: apply the manifests again"
)


async def test_a_missing_secret_is_reported_with_the_remedy_and_the_certificate_in_use_stays(
    replica: Replica, cluster: Cluster
) -> None:
    assert replica.manager.check() == "there is no serving certificate yet"
    cluster.faults[SECRETS] = 403  # as the manifests have it: no right to create
    await replica.run(rounds=1)
    assert replica.manager.check() == f"there is no serving certificate: {GONE}"
    cluster.put(SECRET, {"type": "Opaque"})
    await replica.run(rounds=2)
    del cluster.objects[SECRET]
    with capture_logs() as logs:
        await replica.run(rounds=3)
    assert [log["error"] for log in logs if log["event"] == "serving_certificate_failed"] == [GONE]
    assert replica.manager.check() is None
    assert len(replica.published) == 1


async def test_replicas_that_start_together_end_with_one_certificate(session: Session, cluster: Cluster) -> None:
    replicas = [Replica(session) for _ in range(5)]
    await asyncio.gather(*(each.manager.sync_secret() for each in replicas))
    assert {each.published[-1].certificate for each in replicas} == {cluster.secret("tls.crt")}


async def test_after_a_conflict_a_replica_uses_the_other_replicas_content(
    session: Session, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    winner, loser = Replica(session), Replica(session)
    request = session.request

    async def slow(method: str, path: str, **more: object) -> object:
        monkeypatch.setattr(session, "request", request)
        await winner.manager.sync_secret()
        return await request(method, path, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(session, "request", slow)
    await loser.manager.sync_secret()
    assert loser.published == winner.published
    assert cluster.asked[f"POST {SECRETS}"] == 2


async def test_an_empty_secret_from_a_manifest_is_filled_and_keeps_its_type_and_labels(
    replica: Replica, cluster: Cluster
) -> None:
    cluster.put(SECRET, {"type": "Opaque", "metadata": {"labels": {"app": "x"}}})
    await replica.manager.sync_secret()
    found = cluster.objects[SECRET]
    assert (found["type"], found["metadata"]["labels"]) == ("Opaque", {"app": "x"})
    assert cluster.secret("tls.crt") == replica.published[0].certificate


@pytest.mark.parametrize("days", [61, 100], ids=["past two thirds of its life", "expired, and a replica wakes up"])
async def test_a_certificate_that_is_due_is_renewed_and_published(
    replica: Replica, cluster: Cluster, session: Session, days: int
) -> None:
    cluster.register(V2)
    await replica.manager.sync_secret()
    later(session, days * DAY)
    await replica.manager.sync_secret()
    old, new = replica.published
    assert new.expires_at > max(old.expires_at, session.now())
    assert cluster.secret("tls.crt") == new.certificate
    assert cluster.asked[f"PATCH {SERVICES}/{V2}"] == 1  # the authority is the same


@pytest.mark.parametrize(
    "spec",
    [
        {"annotations": {"cert-manager.io/inject-ca-from": "ns/name"}},
        {"annotations": {"cert-manager.io/inject-ca-from-secret": "ns/name"}},
        {"annotations": {"cert-manager.io/inject-apiserver-ca": "true"}},
        {"service": "prometheus-adapter"},
    ],
    ids=str,
)
async def test_an_api_service_of_another_service_or_that_cert_manager_keeps_is_left_alone(
    replica: Replica, cluster: Cluster, spec: dict[str, Any]
) -> None:
    cluster.register(V2, caBundle="b3RoZXI=", **spec)
    cluster.put(f"{SERVICES}/{V1}", {"spec": {"group": "a local one"}})
    await replica.manager.sync_secret()
    assert cluster.bundle(V2) == "other"
    assert "caBundle" not in cluster.objects[f"{SERVICES}/{V1}"]["spec"]


async def test_a_ca_bundle_changed_by_others_is_restored_without_insecure_skip_tls_verify(
    replica: Replica, cluster: Cluster
) -> None:
    cluster.register(V2, caBundle="b3RoZXI=", groupPriorityMinimum=100)
    cluster.register(V1, insecureSkipTLSVerify=True)
    await replica.manager.sync_secret()
    assert cluster.bundle(V2) == cluster.bundle(V1) == cluster.secret("ca.crt")
    assert cluster.objects[f"{SERVICES}/{V2}"]["spec"]["groupPriorityMinimum"] == 100
    assert "insecureSkipTLSVerify" not in cluster.objects[f"{SERVICES}/{V1}"]["spec"]


async def test_a_ca_that_would_end_before_a_new_certificate_is_replaced_and_published(
    replica: Replica, cluster: Cluster, session: Session
) -> None:
    cluster.register(V2)
    await replica.manager.sync_secret()
    old = cluster.bundle(V2)
    later(session, 3561 * DAY)
    await replica.manager.sync_secret()
    [fresh] = cs.load_certificates(cluster.bundle(V2))
    assert cluster.bundle(V2) != old
    replica.published[-1].leaf.verify_directly_issued_by(fresh)


async def test_a_published_ca_goes_on_signing_while_api_services_cannot_be_written(
    replica: Replica, cluster: Cluster, session: Session
) -> None:
    await replica.manager.sync_secret()
    later(session, 61 * DAY)
    cluster.faults[f"{SERVICES}/{V2}"] = 403
    with pytest.raises(Forbidden):
        await replica.manager.sync_secret()
    assert len(replica.published) == 2


async def test_an_api_service_changed_meanwhile_is_a_conflict_not_an_overwrite(
    replica: Replica, cluster: Cluster, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.register(V2)
    request = session.request

    async def raced(method: str, path: str, **more: object) -> object:
        if method == "PATCH":
            cluster.register(V2, caBundle="b3RoZXI=")
        return await request(method, path, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(session, "request", raced)
    with pytest.raises(Conflict):
        await replica.manager.sync_secret()
    assert cluster.bundle(V2) == "other"


@pytest.mark.parametrize("fault", [401, 403, 409, 422, 429, 500, 503])
async def test_failures_are_counted_and_retried_with_backoff(replica: Replica, cluster: Cluster, fault: int) -> None:
    cluster.faults[SECRETS] = fault
    await replica.run(rounds=8)
    assert "no serving certificate" in (replica.manager.check() or "")
    assert replica.metric("errors_total", reason="certificate") == 8
    assert replica.slept[:6] == sorted(set(replica.slept[:6]))
    assert max(replica.slept) <= 1.2 * SECRET_SECONDS
    del cluster.faults[SECRETS]
    await replica.run(rounds=9)
    assert (replica.manager.check(), len(replica.published)) == (None, 1)
    assert replica.slept[-1] == SECRET_SECONDS


@dataclasses.dataclass
class Files:
    certificate: Path
    key: Path

    def write(self, authority: trustme.CA) -> KeyPair:
        leaf = authority.issue_cert("effective-load.adapter.svc")
        self.key.write_bytes(leaf.private_key_pem.bytes())
        self.certificate.write_bytes(leaf.cert_chain_pems[0].bytes())
        return KeyPair(self.certificate.read_text(), self.key.read_text())


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "tls.crt", tmp_path / "tls.key")


@pytest.fixture
def given(session: Session, files: Files) -> Replica:
    tls = Tls(mode="Files", namespace="adapter", cert_file=str(files.certificate), key_file=str(files.key))
    return Replica(session, ServerSettings(tls=tls))


async def test_given_files_are_served_and_no_secret_is_touched(given: Replica, files: Files, cluster: Cluster) -> None:
    cluster.register(V2)
    pair = files.write(trustme.CA())
    await given.run(rounds=2)
    assert given.published == [pair]
    assert not cluster.asked
    assert given.slept[0] == FILES_SECONDS


async def test_changed_files_are_published_once_the_key_belongs_to_its_certificate(
    given: Replica, files: Files
) -> None:
    first = files.write(trustme.CA())
    await given.manager.sync_files()
    old_key = files.key.read_bytes()
    second = files.write(trustme.CA())
    files.key.write_bytes(old_key)
    with pytest.raises(CertificateError):
        await given.manager.sync_files()
    assert given.manager.current == first
    files.key.write_text(second.key)
    await given.manager.sync_files()
    assert given.published == [first, second]


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"no pem"])
async def test_files_that_are_broken_or_gone_change_nothing(given: Replica, files: Files, content: bytes) -> None:
    pair = files.write(trustme.CA())
    await given.run(rounds=1)
    files.certificate.write_bytes(content)
    await given.run(rounds=2)
    files.key.unlink()
    await given.run(rounds=3)
    assert given.published == [pair]
