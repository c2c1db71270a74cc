"""When certificates end: the server's own, the CA in its APIServices, and the front proxy's."""

import asyncio
import contextlib
import ssl
from collections.abc import Mapping, Sequence

import msgspec
from cryptography import x509

from adapter.check.api_services import ApiService
from adapter.check.refusals import reason
from adapter.check.report import ReportSection
from adapter.kube.api import CONFIG_MAPS
from adapter.kube.errors import KubeError
from adapter.kube.session import Session
from adapter.runtime.decoding import decode

DAY = 86_400.0
SOON = 14 * DAY
"""Our own certificates live 90 days and are renewed a month before their end: one that ends sooner was not."""
_CONNECT_SECONDS = 3.0
_NAMESPACE, _CONFIG_MAP, _KEY = "kube-system", "extension-apiserver-authentication", "requestheader-client-ca-file"


class _ConfigMap(msgspec.Struct, frozen=True):
    data: dict[str, str] | None = None


async def certificate_section(
    session: Session, api_services: Mapping[str, ApiService], addresses: Sequence[str]
) -> ReportSection:
    """The findings about every certificate that can be seen from here; `addresses` are the servers' (host:port)."""
    section, now = ReportSection("certificates"), session.now()
    for pem, names in _by_bundle(api_services).items():
        _add(section, f"the CA in the caBundle of APIService {' and '.join(names)}", _newest(pem), now, own=True)
    served = await asyncio.gather(*(_served(one) for one in addresses))
    for address, certificate in zip(addresses, served, strict=True):
        if certificate is not None:
            _add(section, f"the serving certificate of {address}", certificate, now, own=True)
    if addresses and not any(served):
        section.skipped("the ends of the serving certificates, for no server can be reached from here")
    await _add_front_proxy(section, session, now)
    return section


def _by_bundle(api_services: Mapping[str, ApiService]) -> dict[str, list[str]]:
    bundles: dict[str, list[str]] = {}
    for name, one in api_services.items():
        if one.spec.service is not None and one.authority:
            bundles.setdefault(one.authority, []).append(name)
    return bundles


def _parsed(pem: str) -> list[x509.Certificate]:
    with contextlib.suppress(ValueError):
        return x509.load_pem_x509_certificates(pem.encode())
    return []


def _newest(pem: str) -> x509.Certificate | None:
    """The certificate of a bundle that ends last: one that is valid is enough."""
    return max(_parsed(pem), key=lambda one: one.not_valid_after_utc, default=None)


async def _served(address: str) -> x509.Certificate | None:
    """The certificate that a server presents; None where it cannot be reached. Nothing is sent to it."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
    except (OSError, TimeoutError):
        return None
    try:
        presented = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(presented)
    except (ValueError, TypeError):
        return None
    finally:
        writer.transport.abort()


async def _add_front_proxy(section: ReportSection, session: Session, now: float) -> None:
    """The CA by which every server of an aggregated API knows the API server."""
    try:
        data = decode(await session.get(CONFIG_MAPS.path(_NAMESPACE, _CONFIG_MAP)), _ConfigMap).data or {}
    except (KubeError, msgspec.MsgspecError) as error:
        section.skipped(f"the end of the front proxy's CA, for {reason(error)}")
        return
    if not data.get(_KEY):
        section.wrong(
            f"ConfigMap {_NAMESPACE}/{_CONFIG_MAP} names no {_KEY}: no aggregated API knows who asks; start the API "
            "server with --requestheader-client-ca-file"
        )
        return
    _add(section, "the front proxy's CA", _newest(data[_KEY]), now, own=False)


def _add(section: ReportSection, what: str, one: x509.Certificate | None, now: float, *, own: bool) -> None:
    remedy = "see serving_certificate_failed in the server's log" if own else "renew it (kubeadm certs renew)"
    if one is None:
        section.wrong(f"{what} cannot be read; {remedy}")
        return
    end = one.not_valid_after_utc
    left, on = end.timestamp() - now, end.strftime("%Y-%m-%d")
    if left <= 0:
        section.wrong(f"{what} has expired on {on}: {remedy}")
    elif one.not_valid_before_utc.timestamp() > now:
        begins = one.not_valid_before_utc.strftime("%Y-%m-%d %H:%M:%S")
        section.wrong(f"{what} is valid from {begins} on only: clocks differ, set them by NTP")
    elif left < SOON:
        section.note(f"{what} ends in {left / DAY:.0f} days ({on}) and is not renewed yet: {remedy}")
    else:
        section.ok(f"{what} is valid until {on}")
