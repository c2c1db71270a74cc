"""Why something cannot be read, and what to do: a line each, for people on a laptop."""

from typing import NamedTuple

from adapter.kube.errors import (
    ApiStatusError,
    CredentialsError,
    Forbidden,
    KubeError,
    NotFound,
    ServerError,
    Unauthorized,
)
from adapter.telemetry.metrics import package_version

READER_ROLE = "effective-load-metrics-reader"
_API_SERVICE = "v1beta2.custom.metrics.k8s.io"
_FROM_AGGREGATOR = ("service unavailable", "error trying to reach service")
_NOT_SERVED = ("the server could not find the requested resource", "404 page not found")
"""Of the API server: no group of this name, or no longer."""
_OTHER_ADAPTER = "the server could not find the metric decision for"
"""Of every adapter that is made with custom-metrics-apiserver, such as prometheus-adapter."""
_OLD_SERVER = "has no metric decision"
_NO_POLICY = "there is no WatermarkPolicy"
_OF_HPAS = frozenset({404, 409, 500, 503})
"""The codes that a request for `desired_replicas` gets for want of a count."""
_OF_DOCUMENT = ("other decisions took", "the inputs of WatermarkPolicy")
"""The server has no document to hand out, whatever HPAs get."""
_HPAS_APART = "what HPAs are served does not depend on it; the HPA's condition ScalingActive has that"


class Place(NamedTuple):
    """An object by its namespace and name."""

    namespace: str
    name: str


def refusal(error: KubeError) -> str:
    """The error that HPAs get as well, where this is one of the adapter; else empty."""
    if not isinstance(error, ApiStatusError) or error.code not in _OF_HPAS:
        return ""
    others = (*_FROM_AGGREGATOR, *_NOT_SERVED, *_OF_DOCUMENT, _NO_POLICY, _OTHER_ADAPTER)
    if error.message.startswith(others) or _OLD_SERVER in error.message:
        return ""
    return f"{error.code} {error.reason}: {error.message}"


def of_server(error: KubeError, policy: Place) -> tuple[str, ...]:
    """Why the server's decision on a policy cannot be read."""
    if isinstance(error, Forbidden):
        right = "get watermarkpolicies.effective-load.io/decision of custom.metrics.k8s.io"
        return (
            f"you may not read the decision: {error.message}",
            f"missing: the right to {right} in namespace {policy.namespace}",
            f"ClusterRole {READER_ROLE} has it, and with it the role view; an administrator binds it by",
            f"  kubectl create rolebinding {READER_ROLE} -n {policy.namespace} --clusterrole={READER_ROLE} --user=YOU",
        )
    if isinstance(error, ApiStatusError) and (lines := _of_answer(error)):
        return lines
    if said := refusal(error):
        return (f"the server has no decision, and HPAs get this error: {said}",)
    if isinstance(error, ApiStatusError) and not isinstance(error, Unauthorized):
        return (f"the server hands out no document: {error.code} {error.reason}: {error.message}", _HPAS_APART)
    return of_connection(error)


def _of_answer(error: ApiStatusError) -> tuple[str, ...]:
    """Why the API server or the server has no decision; empty for an error that HPAs get as well."""
    if _OLD_SERVER in error.message:
        return (
            "the server is older than this command and serves no decisions",
            "upgrade the server, or use `effective-load decide` on a document made by hand (docs/decide.md)",
        )
    if isinstance(error, NotFound) and error.message.startswith(_NO_POLICY):
        return (error.message,)
    if isinstance(error, NotFound) and error.message.startswith(_NOT_SERVED):
        return (
            "custom.metrics.k8s.io/v1beta2 is not served: effective-load is not installed here",
            f"  kubectl get apiservice {_API_SERVICE}",
        )
    if isinstance(error, NotFound) and error.message.startswith(_OTHER_ADAPTER):
        return (
            f"another adapter serves custom.metrics.k8s.io/v1beta2: {error.message}",
            f"  kubectl get apiservice {_API_SERVICE} -o jsonpath='{{.spec.service}}'",
        )
    if isinstance(error, ServerError) and error.message.startswith(_FROM_AGGREGATOR):
        return (
            f"the API server does not reach effective-load: {error.message}",
            f"  kubectl get apiservice {_API_SERVICE} -o jsonpath='{{.status.conditions}}'",
            "  kubectl get pods,endpointslices -n effective-load",
        )
    return ()


def of_connection(error: KubeError) -> tuple[str, ...]:
    """Why the API server cannot be asked at all."""
    if isinstance(error, CredentialsError):
        return (f"no cluster can be asked: {error}", "name a kubeconfig by --kubeconfig or $KUBECONFIG")
    if isinstance(error, Unauthorized):
        return (f"the API server does not accept your credentials: {error.message}", "log in again, as for kubectl")
    return (f"the API server cannot be asked: {error}", "  kubectl get --raw /version")


def of_object(error: KubeError, right: str, place: Place) -> tuple[str, ...]:
    """Why an object cannot be read; `right` is what reading it takes."""
    if isinstance(error, Forbidden):
        return (
            f"you may not read it: {error.message}",
            f"missing: the right to {right} in namespace {place.namespace}, which the role view has",
        )
    if isinstance(error, NotFound):
        return (f"there is none of the name {place.name} in namespace {place.namespace}",)
    return (f"it cannot be read: {error}",)


def of_version(error: str, server_version: str) -> tuple[str, ...]:
    """The server's answer has another form than this command knows, or more in it than it reads."""
    cannot = f"the server's document cannot be read: {error}"
    if server_version == package_version():
        return (cannot, _HPAS_APART)
    return (cannot, "the server is of another version: use that version of the command, as in its image")
