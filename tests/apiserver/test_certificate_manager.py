"""The certificate manager: one Secret for all replicas, its CA in the APIServices, or given files."""

import asyncio
import dataclasses
from pathlib import Path

import pytest
import trustme
from structlog.testing import capture_logs

from adapter.apiserver import certificates as cs
from adapter.apiserver.certificate_manager import FILES_SECONDS, SECRET_SECONDS, CertificateManager, SecretStore
from adapter.apiserver.certificates import DAY, KeyPair
from adapter.apiserver.status import CertificateError
from adapter.kube.errors import Conflict, Forbidden, KubeError
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


async def test_the_first_replica_creates_the_secret_and_publishes_its_ca(replica: Replica, cluster: Cluster) -> None:
    cluster.register(V2)
    cluster.register(V1)
    await replica.manager.sync_secret()
    [pair] = replica.published
    assert pair.certificate == cluster.secret("tls.crt")
    assert pair.key == cluster.secret("tls.key")
    assert cluster.bundle(V2) == cluster.bundle(V1) == cluster.secret("ca.crt")
    assert cluster.objects[SECRET]["type"] == "Opaque"  # as the manifests have it: a type cannot be changed later
    assert cs.dns_names(pair.leaf)[0] == "effective-load.adapter.svc"


async def test_the_second_replica_uses_the_existing_secret(session: Session, cluster: Cluster) -> None:
    first, second = Replica(session), Replica(session)
    await first.manager.sync_secret()
    await second.manager.sync_secret()
    assert first.published == second.published
    assert cluster.asked[f"POST {SECRETS}"] == 1


async def test_replicas_that_start_together_end_with_one_certificate(session: Session, cluster: Cluster) -> None:
    replicas = [Replica(session) for _ in range(5)]
    await asyncio.gather(*(each.manager.sync_secret() for each in replicas))
    assert {each.published[-1].certificate for each in replicas} == {cluster.secret("tls.crt")}


async def test_after_a_conflict_a_replica_uses_the_other_replicas_content(
    session: Session, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    winner, loser = Replica(session), Replica(session)
    read = SecretStore.read

    async def slow(store: SecretStore) -> object:
        monkeypatch.setattr(SecretStore, "read", read)
        found = await read(store)
        await winner.manager.sync_secret()
        return found

    monkeypatch.setattr(SecretStore, "read", slow)
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


async def test_a_deleted_secret_is_reported_with_the_remedy_and_the_certificate_in_use_stays(
    replica: Replica, cluster: Cluster
) -> None:
    await replica.run(rounds=1)
    del cluster.objects[SECRET]
    cluster.faults[SECRETS] = 403  # as the manifests have it: no right to create
    with capture_logs() as logs:
        await replica.run(rounds=2)
    assert [log["error"] for log in logs if log["event"] == "serving_certificate_failed"] == [GONE]
    assert replica.manager.check() is None
    assert len(replica.published) == 1
    cluster.put(SECRET, {"type": "Opaque"})
    await replica.run(rounds=3)
    assert cluster.secret("tls.crt") == replica.published[-1].certificate


async def test_a_server_without_the_secret_says_so_in_its_readiness_check(replica: Replica, cluster: Cluster) -> None:
    assert replica.manager.check() == "there is no serving certificate yet"
    cluster.faults[SECRETS] = 403
    await replica.run(rounds=1)
    assert replica.manager.check() == f"there is no serving certificate: {GONE}"


async def test_nothing_is_written_while_nothing_is_due(replica: Replica, cluster: Cluster) -> None:
    cluster.register(V2)
    for _ in range(3):
        await replica.manager.sync_secret()
    assert cluster.asked[f"PATCH {SECRET}"] == 0
    assert cluster.asked[f"PATCH {SERVICES}/{V2}"] == 1
    assert len(replica.published) == 1


async def test_a_certificate_past_two_thirds_of_its_life_is_renewed_and_published(
    replica: Replica, cluster: Cluster, session: Session
) -> None:
    cluster.register(V2)
    await replica.manager.sync_secret()
    later(session, 61 * DAY)
    await replica.manager.sync_secret()
    old, new = replica.published
    assert new.expires_at > old.expires_at
    assert cluster.secret("tls.crt") == new.certificate
    assert cluster.asked[f"PATCH {SERVICES}/{V2}"] == 1  # the authority is the same


async def test_an_expired_certificate_is_replaced_by_the_replica_that_wakes_up(
    replica: Replica, cluster: Cluster, session: Session
) -> None:
    await replica.manager.sync_secret()
    later(session, 100 * DAY)
    woken = Replica(session)
    await woken.manager.sync_secret()
    assert woken.published[-1].expires_at > session.now()
    assert cluster.secret("tls.crt") == woken.published[-1].certificate


async def test_a_new_ca_is_in_the_bundle_beside_the_old_one_before_it_signs(
    replica: Replica, cluster: Cluster, session: Session
) -> None:
    cluster.register(V2)
    cluster.register(V1)
    await replica.manager.sync_secret()
    old = cluster.bundle(V2)
    later(session, 2500 * DAY)
    cluster.faults[f"{SERVICES}/{V1}"] = 500
    with pytest.raises(KubeError):
        await replica.manager.sync_secret()
    assert old in cluster.bundle(V2)
    assert len(cs.load_certificates(cluster.bundle(V2))) == 2
    [authority] = cs.load_certificates(old)
    replica.published[-1].leaf.verify_directly_issued_by(authority)

    del cluster.faults[f"{SERVICES}/{V1}"]
    await replica.manager.sync_secret()
    fresh = cs.load_certificates(cluster.bundle(V1))[0]
    replica.published[-1].leaf.verify_directly_issued_by(fresh)
    assert cluster.bundle(V1) == cluster.bundle(V2)


async def test_a_published_ca_goes_on_signing_while_api_services_cannot_be_written(
    replica: Replica, cluster: Cluster, session: Session
) -> None:
    await replica.manager.sync_secret()
    later(session, 61 * DAY)
    cluster.faults[f"{SERVICES}/{V2}"] = 403
    with pytest.raises(Forbidden):
        await replica.manager.sync_secret()
    assert len(replica.published) == 2


@pytest.mark.parametrize(
    "annotation",
    ["cert-manager.io/inject-ca-from", "cert-manager.io/inject-ca-from-secret", "cert-manager.io/inject-apiserver-ca"],
)
async def test_an_api_service_that_cert_manager_keeps_is_left_alone(
    replica: Replica, cluster: Cluster, annotation: str
) -> None:
    cluster.register(V2, annotations={annotation: "ns/name"})
    await replica.manager.sync_secret()
    assert cluster.bundle(V2) == ""


async def test_an_api_service_of_another_service_is_left_alone(replica: Replica, cluster: Cluster) -> None:
    cluster.register(V2, service="prometheus-adapter", caBundle="b3RoZXI=")
    await replica.manager.sync_secret()
    assert cluster.bundle(V2) == "other"


async def test_a_local_api_service_is_left_alone(replica: Replica, cluster: Cluster) -> None:
    cluster.put(f"{SERVICES}/{V2}", {"spec": {"group": "x"}})
    await replica.manager.sync_secret()
    assert "caBundle" not in cluster.objects[f"{SERVICES}/{V2}"]["spec"]


async def test_a_ca_bundle_changed_by_others_is_restored(replica: Replica, cluster: Cluster) -> None:
    cluster.register(V2, caBundle="b3RoZXI=")
    await replica.manager.sync_secret()
    assert cluster.bundle(V2) == cluster.secret("ca.crt")


async def test_writing_the_ca_bundle_removes_insecure_skip_tls_verify(replica: Replica, cluster: Cluster) -> None:
    cluster.register(V2, insecureSkipTLSVerify=True, groupPriorityMinimum=100)
    await replica.manager.sync_secret()
    spec = cluster.objects[f"{SERVICES}/{V2}"]["spec"]
    assert "insecureSkipTLSVerify" not in spec
    assert spec["groupPriorityMinimum"] == 100


async def test_api_services_that_are_not_installed_are_no_error(replica: Replica) -> None:
    await replica.manager.sync_secret()
    assert replica.manager.check() is None


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


# --- running


async def test_failures_are_counted_and_retried_with_backoff_and_the_certificate_in_use_stays(
    replica: Replica, cluster: Cluster
) -> None:
    cluster.faults[SECRET] = 500
    await replica.run(rounds=8)
    assert "no serving certificate" in (replica.manager.check() or "")
    assert replica.metrics.registry.get_sample_value("effective_load_errors_total", {"reason": "certificate"}) == 8
    for before, after in zip(replica.slept[:5], replica.slept[1:6], strict=True):
        assert after > before
    assert max(replica.slept) <= 72
    del cluster.faults[SECRET]
    await replica.run(rounds=9)
    assert replica.manager.check() is None
    assert replica.slept[-1] == SECRET_SECONDS


@pytest.mark.parametrize("fault", [401, 403, 409, 422, 429, 500, 503])
async def test_no_answer_of_the_api_server_ends_the_manager(replica: Replica, cluster: Cluster, fault: int) -> None:
    cluster.faults[SECRETS] = fault
    await replica.run(rounds=2)
    del cluster.faults[SECRETS]
    await replica.run(rounds=3)
    assert len(replica.published) == 1


async def test_expiry_times_are_exposed_as_metrics(replica: Replica) -> None:
    await replica.manager.sync_secret()
    found = {
        name: replica.metrics.registry.get_sample_value(
            "effective_load_certificate_expiry_timestamp_seconds", {"certificate": name}
        )
        for name in ("serving", "authority")
    }
    assert found["serving"] == replica.published[0].expires_at
    assert (found["authority"] or 0) > replica.published[0].expires_at


# --- files


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


async def test_changed_files_are_published(given: Replica, files: Files) -> None:
    first = files.write(trustme.CA())
    await given.manager.sync_files()
    second = files.write(trustme.CA())
    await given.manager.sync_files()
    assert given.published == [first, second]


async def test_a_key_that_is_one_step_behind_its_certificate_is_waited_for(given: Replica, files: Files) -> None:
    first = files.write(trustme.CA())
    await given.manager.sync_files()
    old_key = files.key.read_bytes()
    second = files.write(trustme.CA())
    new_key = files.key.read_bytes()
    files.key.write_bytes(old_key)
    with pytest.raises(CertificateError):
        await given.manager.sync_files()
    assert given.manager.current == first
    files.key.write_bytes(new_key)
    await given.manager.sync_files()
    assert given.manager.current == second


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"no pem"])
async def test_files_that_are_broken_or_gone_change_nothing(given: Replica, files: Files, content: bytes) -> None:
    pair = files.write(trustme.CA())
    await given.run(rounds=1)
    files.certificate.write_bytes(content)
    await given.run(rounds=2)
    files.key.unlink()
    await given.run(rounds=3)
    assert given.published == [pair]
