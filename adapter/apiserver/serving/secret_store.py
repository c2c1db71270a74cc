"""Where our own certificate lives: one Secret, made by whoever comes first, adopted by all others."""

import base64
import binascii

import msgspec

from adapter.apiserver.ports import Api
from adapter.apiserver.serving.certificates import KeyPair, Stock
from adapter.apiserver.status import CertificateError
from adapter.kube.api import JSON, MERGE_PATCH, SECRETS
from adapter.kube.errors import Forbidden, NotFound
from adapter.kube.objects import ObjectMeta

_DEADLINE = 5.0
_FIELDS = ("tls.crt", "tls.key", "ca.crt", "ca.key")


class _Secret(msgspec.Struct):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None


class SecretStore:
    """Reads and writes the Secret. It raises KubeErrors, a lost race is a Conflict."""

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self._api = api
        self._collection = SECRETS.collection(namespace)
        self._path = SECRETS.path(namespace, name)
        self._metadata = {"name": name, "namespace": namespace}

    async def read(self) -> tuple[_Secret | None, Stock | None]:
        """The Secret as a handle for `write`, and what it holds; None for what is not there or cannot be read."""
        try:
            body = await self._api.get(self._path, timeout=_DEADLINE)
        except NotFound:
            return None, None
        secret = msgspec.json.decode(body, type=_Secret)
        try:
            return secret, _stock(secret.data or {})
        except CertificateError:
            return secret, None

    async def write(self, before: _Secret | None, stock: Stock) -> None:
        """Write what was read before, changed. Raises Conflict where somebody else wrote meanwhile.

        Raises CertificateError where the Secret is gone and may not be created: the manifests bring it, and by our own
        rights, which are for that one name, it cannot be made anew.
        """
        if before is None:
            secret = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": self._metadata}
            method, path, content_type = "POST", self._collection, JSON
        else:  # a merge patch keeps the type and the labels that a manifest gave it
            secret = {"metadata": {"resourceVersion": before.metadata.resource_version}}
            method, path, content_type = "PATCH", self._path, MERGE_PATCH
        body = msgspec.json.encode({**secret, "data": _data(stock)})
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


def _data(stock: Stock) -> dict[str, str]:
    texts = (stock.serving.certificate, stock.serving.key, stock.authorities, stock.authority_key)
    return {name: base64.b64encode(text.encode()).decode() for name, text in zip(_FIELDS, texts, strict=True)}


def _stock(data: dict[str, str]) -> Stock:
    try:
        texts = [base64.b64decode(data[name], validate=True).decode() for name in _FIELDS]
    except (KeyError, binascii.Error, UnicodeDecodeError) as error:
        raise CertificateError(f"the Secret lacks a part: {error}") from None
    certificate, key, authorities, authority_key = texts
    return Stock(KeyPair(certificate, key), authorities, authority_key)
