"""Tells the aggregator which authority to trust: `spec.caBundle` of our own APIServices."""

import base64
from typing import Any

import msgspec
import structlog

from adapter.apiserver.ports import Api
from adapter.kube.api import API_SERVICES, MERGE_PATCH
from adapter.kube.errors import NotFound
from adapter.kube.objects import ObjectMeta

_log = structlog.get_logger(__name__)
_DEADLINE = 5.0
_OTHERS = (
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
    """Keeps the bundle in the APIServices named, where they point at our Service and nobody else keeps it."""

    def __init__(self, api: Api, names: tuple[str, ...], namespace: str, service: str) -> None:
        self._api = api
        self._names = names
        self._service = _Service(namespace, service)
        self._left_alone: set[str] = set()

    async def announce(self, bundle: str) -> None:
        """Write the PEM bundle where it differs. Raises KubeError; what is not installed is passed over."""
        encoded = base64.b64encode(bundle.encode()).decode()
        for name in self._names:
            try:
                body = await self._api.get(API_SERVICES.path("", name), timeout=_DEADLINE)
            except NotFound:
                continue
            found = msgspec.json.decode(body, type=_ApiService)
            if self._is_ours(name, found) and (found.spec.ca_bundle != encoded or found.spec.insecure_skip_tls_verify):
                await self._write(name, found, encoded)

    def _is_ours(self, name: str, found: _ApiService) -> bool:
        if found.spec.service != self._service:
            reason = "it points at another Service"
        elif any(key in _OTHERS for key in found.metadata.annotations or {}):
            reason = "cert-manager keeps its caBundle"
        else:
            self._left_alone.discard(name)
            return True
        if name not in self._left_alone:
            self._left_alone.add(name)
            _log.info("apiservice_left_alone", apiservice=name, reason=reason)
        return False

    async def _write(self, name: str, found: _ApiService, encoded: str) -> None:
        spec: dict[str, Any] = {"caBundle": encoded}
        if found.spec.insecure_skip_tls_verify:  # the two exclude each other
            spec["insecureSkipTLSVerify"] = None
        patch = {"metadata": {"resourceVersion": found.metadata.resource_version}, "spec": spec}
        await self._api.request(
            "PATCH",
            API_SERVICES.path("", name),
            body=msgspec.json.encode(patch),
            content_type=MERGE_PATCH,
            timeout=_DEADLINE,
        )
        _log.info("apiservice_ca_written", apiservice=name)
