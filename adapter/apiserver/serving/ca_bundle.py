"""Writes the serving CA to `spec.caBundle` of our APIServices, by which the aggregator trusts us."""

import base64
from typing import Any

import msgspec
import structlog

from adapter.kube.api import API_SERVICES, MERGE_PATCH
from adapter.kube.errors import NotFound
from adapter.kube.objects import ObjectMeta
from adapter.kube.session import Session

_log = structlog.get_logger(__name__)
_DEADLINE = 5.0
_CERT_MANAGER_ANNOTATIONS = (
    "cert-manager.io/inject-ca-from",
    "cert-manager.io/inject-ca-from-secret",
    "cert-manager.io/inject-apiserver-ca",
)


class _Service(msgspec.Struct):
    namespace: str = ""
    name: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    service: _Service | None = None
    ca_bundle: str = ""
    insecure_skip_tls_verify: bool = msgspec.field(default=False, name="insecureSkipTLSVerify")


class _ApiService(msgspec.Struct):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = msgspec.field(default_factory=_Spec)


class CaBundlePublisher:
    """Keeps the CA bundle in the named APIServices that point at our Service, unless cert-manager manages it."""

    def __init__(self, api: Session, names: tuple[str, ...], namespace: str, service: str) -> None:
        self._api = api
        self._names = names
        self._service = _Service(namespace, service)
        self._left_alone: set[str] = set()

    async def publish(self, bundle: str) -> None:
        """Write the PEM bundle where it differs; APIServices that do not exist are skipped. Raises KubeError."""
        encoded = base64.b64encode(bundle.encode()).decode()
        for name in self._names:
            try:
                body = await self._api.get(API_SERVICES.path("", name), timeout=_DEADLINE)
            except NotFound:
                continue
            api_service = msgspec.json.decode(body, type=_ApiService)
            if self._is_ours(name, api_service) and (
                api_service.spec.ca_bundle != encoded or api_service.spec.insecure_skip_tls_verify
            ):
                await self._write(name, api_service, encoded)

    def _is_ours(self, name: str, api_service: _ApiService) -> bool:
        if api_service.spec.service != self._service:
            reason = "it points at another Service"
        elif any(key in _CERT_MANAGER_ANNOTATIONS for key in api_service.metadata.annotations or {}):
            reason = "cert-manager keeps its caBundle"
        else:
            self._left_alone.discard(name)
            return True
        if name not in self._left_alone:
            self._left_alone.add(name)
            _log.info("apiservice_left_alone", apiservice=name, reason=reason)
        return False

    async def _write(self, name: str, api_service: _ApiService, encoded: str) -> None:
        spec: dict[str, Any] = {"caBundle": encoded}
        if api_service.spec.insecure_skip_tls_verify:  # the two exclude each other
            spec["insecureSkipTLSVerify"] = None
        patch = {"metadata": {"resourceVersion": api_service.metadata.resource_version}, "spec": spec}
        await self._api.request(
            "PATCH",
            API_SERVICES.path("", name),
            body=msgspec.json.encode(patch),
            content_type=MERGE_PATCH,
            timeout=_DEADLINE,
        )
        _log.info("apiservice_ca_written", apiservice=name)
