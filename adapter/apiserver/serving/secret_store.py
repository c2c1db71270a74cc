"""Stores our own certificates in one Secret; the first replica creates it and all others use it."""

import base64
import binascii

import msgspec

from adapter.apiserver.serving.certificates import CertificateBundle, KeyPair
from adapter.apiserver.status import CertificateError
from adapter.kube.api import JSON, MERGE_PATCH, SECRETS
from adapter.kube.errors import Forbidden, NotFound
from adapter.kube.objects import ObjectMeta
from adapter.kube.session import Session

_DEADLINE = 5.0
_FIELDS = ("tls.crt", "tls.key", "ca.crt", "ca.key")


class _Secret(msgspec.Struct):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None


class SecretStore:
    """Reads and writes the Secret. Raises KubeError; a lost race is a Conflict."""

    def __init__(self, api: Session, namespace: str, name: str) -> None:
        self._api = api
        self._collection = SECRETS.collection(namespace)
        self._path = SECRETS.path(namespace, name)
        self._metadata = {"name": name, "namespace": namespace}

    async def read(self) -> tuple[_Secret | None, CertificateBundle | None]:
        """The Secret as a handle for `write`, and its certificates; None for a Secret or content that is missing."""
        try:
            body = await self._api.get(self._path, timeout=_DEADLINE)
        except NotFound:
            return None, None
        secret = msgspec.json.decode(body, type=_Secret)
        try:
            return secret, _parse(secret.data or {})
        except CertificateError:
            return secret, None

    async def write(self, before: _Secret | None, bundle: CertificateBundle) -> None:
        """Replace the content read before. Raises Conflict if another replica has written since.

        Raises CertificateError if the Secret was deleted: the manifests create it, and our rights, which are for that
        one name, do not include creating it again.
        """
        if before is None:
            secret = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": self._metadata}
            method, path, content_type = "POST", self._collection, JSON
        else:  # a merge patch keeps the type and the labels that a manifest gave it
            secret = {"metadata": {"resourceVersion": before.metadata.resource_version}}
            method, path, content_type = "PATCH", self._path, MERGE_PATCH
        body = msgspec.json.encode({**secret, "data": _encode(bundle)})
        try:
            await self._api.request(method, path, body=body, content_type=content_type, timeout=_DEADLINE)
        except Forbidden:
            if before is None:
                raise CertificateError(self._missing()) from None
            raise

    def _missing(self) -> str:
        return (
            f"Secret {self._metadata['name']} of namespace {self._metadata['namespace']}, which keeps the serving "
            "certificate, does not exist, and the server may not create it: apply the manifests again"
        )


def _encode(bundle: CertificateBundle) -> dict[str, str]:
    texts = (bundle.serving.certificate, bundle.serving.key, bundle.ca_certificates, bundle.ca_key)
    return {name: base64.b64encode(text.encode()).decode() for name, text in zip(_FIELDS, texts, strict=True)}


def _parse(data: dict[str, str]) -> CertificateBundle:
    try:
        texts = [base64.b64decode(data[name], validate=True).decode() for name in _FIELDS]
    except (KeyError, binascii.Error, UnicodeDecodeError) as error:
        raise CertificateError(f"the Secret lacks a part: {error}") from None
    certificate, key, ca_certificates, ca_key = texts
    return CertificateBundle(KeyPair(certificate, key), ca_certificates, ca_key)
