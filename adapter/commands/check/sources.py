"""The sources of the load: whether metrics.k8s.io and the Prometheus servers of the settings answer."""

from collections.abc import Iterator, Sequence

from adapter.commands.check.report import Finding, error, ok, reason, skipped
from adapter.kube.api import POD_METRICS
from adapter.kube.errors import Forbidden, KubeError
from adapter.kube.session import Session
from adapter.load.spec import Policy
from adapter.runtime.http import MIB
from adapter.runtime.source_errors import SourceError
from adapter.settings import PrometheusServer, Settings
from adapter.usage.prometheus_api import PrometheusClient
from adapter.usage.query_catalog import INLINE_MAX_AGE_SECONDS

NOT_FROM_HERE = "what the cluster's settings name is asked only where they are made for"
HOW_TO_ASK = "run the check in a pod of the server, or give --settings"
_SKEW_SECONDS = 10.0
_CREDENTIALS = "give the server username and passwordFile, or bearerTokenFile, that it accepts"
_ELSEWHERE = "url leads to something else, such as a page to log in: name the server's own address"
_REMEDIES = {
    "HTTP 401": _CREDENTIALS,
    "HTTP 403": _CREDENTIALS,
    "HTTP 404": "url needs the path under which its API is, and no more",
    "HTTP 3": _ELSEWHERE,
    "not what is expected": _ELSEWHERE,
    "connection refused": "nothing listens there: compare url with kubectl get services",
    "cannot be resolved": "correct the name in url",
    "not trusted": "give the CA that signed it as caFile",
    "TLS failed": "check that it speaks https, as url says",
    "timed out": "check its load, timeoutSeconds, and whether a network policy drops the connection",
}
"""What to do about a Prometheus server, by a part of its public error."""


async def check_usage(session: Session, settings: Settings, policies: Sequence[Policy]) -> list[Finding]:
    """Whether metrics.k8s.io answers, if a policy needs it; in the namespace of the first such policy."""
    about, options = "metrics.k8s.io", settings.resource_metrics
    namespace = next((one.namespace for one in policies if any(metric.resource for metric in one.metrics)), None)
    if namespace is None:
        return []
    try:
        await session.get(
            POD_METRICS.collection(namespace), timeout=options.timeout_seconds, largest=options.max_answer_mib * MIB,
            aggregated=True,
        )  # fmt: skip
    except Forbidden as refusal:
        return [skipped(about, f"the usage of pods, for {reason(refusal)}")]
    except KubeError as fault:
        text = f"it does not answer, so policies on cpu and memory hold their counts: {fault}"
        look = "kubectl -n kube-system get pods -l k8s-app=metrics-server, and kubectl top pods"
        return [error(about, text, f"install metrics-server, or find out why it fails ({look})")]
    return [ok(about, f"it answers for namespace {namespace}")]


async def check_prometheus(servers: Sequence[PrometheusServer], now: float, *, may_contact: bool) -> list[Finding]:
    """Whether each Prometheus server answers, and its clock. `now`: the time here, epoch seconds.

    Without `may_contact` none is asked: the settings are not from this place, and the credentials that they name must
    not be sent from here to where they say.
    """
    found = list[Finding]()
    for server in servers:
        about = f"Prometheus {server.name}"
        if not may_contact:
            found.append(skipped(about, f"{server.url}: {NOT_FROM_HERE}", HOW_TO_ASK))
            continue
        client = PrometheusClient(server)
        try:
            samples = await client.query("vector(1)", max_age=INLINE_MAX_AGE_SECONDS)
            at = next((sample.value[0] for sample in samples if sample.value is not None), now)
            found += _clock(about, server.url, at - now)
        except SourceError as fault:
            why = str(fault).removeprefix(f"{client.url}: ")
            text = f"{server.url} cannot be asked: {why}; policies with its queries hold their counts"
            found.append(error(about, text, remedy_of(fault)))
        finally:
            await client.close()
    return found


def _clock(about: str, url: str, skew: float) -> Iterator[Finding]:
    if abs(skew) > _SKEW_SECONDS:
        ahead = "ahead of" if skew > 0 else "behind"
        text = f"its clock is {abs(skew):.0f} s {ahead} the one here, so samples seem old or new"
        yield error(about, text, "set both by NTP")
    else:
        yield ok(about, f"{url} answers")


def remedy_of(trouble: SourceError | str) -> str:
    """What to do about the error of a Prometheus server, or its public text; empty where nothing is known."""
    trouble = trouble.public if isinstance(trouble, SourceError) else trouble
    return next((text for part, text in _REMEDIES.items() if part in trouble), "")
