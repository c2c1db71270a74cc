"""The adapter's own health: silent watches, errors to HPAs, statuses that are not written, servers not ready."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from adapter.check.load_sources import symptom_of
from adapter.check.report import ReportSection, SubjectKind, all_ok
from adapter.kube.cluster import ListedPolicy
from adapter.kube.objects import Condition
from adapter.load.conditions import ConditionType, Reason
from adapter.runtime.outbound import Access, Client
from adapter.runtime.source_errors import SourceUnreachable
from adapter.runtime.times import parse_time

STALE_STATUS_SECONDS = 180.0
"""The companion writes every status at least every two minutes, so one older than this is no longer written."""
_NAMED = 5
_ASK_SECONDS = 3.0
_WITHHELD = "reason withheld"
_REMEDY = "its log has the reason, and accounts that may get /readyz/* see it: run the check in a pod of the server"


class ServerAccess(NamedTuple):
    """The account to ask a server as once it presented a certificate of `authority` (PEM) for `server_name`."""

    token_file: str
    authority: str
    server_name: str


def status_sections(policies: Sequence[ListedPolicy], now: float, *, written: bool) -> list[ReportSection]:
    """The silent watches that statuses report, and the statuses that are stale or missing.

    `written`: whether the settings have the companion write statuses.
    """
    return [one for one in (_silent(policies, now), _unwritten(policies, now, written=written)) if one.findings]


def add_policy_error(section: ReportSection, policy: ListedPolicy, now: float) -> None:
    """Add the error that the policy's status reports, unless something else is wrong or the status is stale."""
    if _age(policy, now) > STALE_STATUS_SECONDS or not all_ok([section]):
        return
    for one in policy.status.conditions:
        if (one.type, one.status) == (ConditionType.READY, "False") and one.reason != Reason.WATCH_SILENT:
            since = f" since {one.last_transition_time}" if one.last_transition_time else ""
            text = f"its HPA gets an error{since} ({one.reason}): {one.message}"
            section.wrong(text, symptom_of=("rights/server", "servers", *symptom_of(one.message)))


async def server_sections(addresses: Sequence[str], account: ServerAccess | None = None) -> list[ReportSection]:
    """The readiness of each server (host:port); one note names the servers that cannot be reached from here.

    Servers give reasons only to accounts with the right to them. Without `account`, or where a server's certificate
    does not prove its identity, the request has no credentials.
    """
    replies = await asyncio.gather(*(_ready(address, account) for address in addresses))
    sections = [_server(address, reply) for address, reply in zip(addresses, replies, strict=True) if reply is not None]
    unreachable = [address for address, reply in zip(addresses, replies, strict=True) if reply is None]
    if unreachable:
        section = ReportSection("servers")
        section.note(
            f"{', '.join(unreachable)} cannot be asked from here whether all watches are alive; "
            "run the check in a pod of the server"
        )
        sections.append(section)
    return sections


async def _ready(address: str, account: ServerAccess | None) -> str | None:
    if account is not None:
        proven = Access(bearer_token_file=account.token_file, ca=account.authority)
        reply = await _get_readiness(proven, address, account.server_name)
        if reply is not None:
            return reply
    return await _get_readiness(Access(insecure_skip_verify=True), address)  # without credentials


async def _get_readiness(access: Access, address: str, server_name: str | None = None) -> str | None:
    client = Client(access, timeout=_ASK_SECONDS)
    try:
        reply = await client.send("GET", f"https://{address}/readyz?verbose", server_hostname=server_name)
    except SourceUnreachable:
        return None
    finally:
        await client.close()
    return reply.body.decode(errors="replace")


def _server(address: str, reply: str) -> ReportSection:
    section = ReportSection(f"server {address}", SubjectKind.SERVER)
    for line in reply.splitlines():
        name, _, text = line[3:].partition(" ")
        if line.startswith("[-]"):
            text = f"it is not ready ({name}): {_reason(text.removeprefix('failed: '))}"
            section.wrong(text, cause="servers", symptom_of=("rights/server",))
        elif line.startswith("[!]"):  # a fault that every replica shares: it stays ready
            section.wrong(f"{name} {_reason(text)}" if text == _WITHHELD else text)
    if not section.findings:
        section.ok("it is ready")
    return section


def _reason(text: str) -> str:
    return f"{text}; {_REMEDY}" if text == _WITHHELD else text


def _silent(policies: Sequence[ListedPolicy], now: float) -> ReportSection:
    section, concerned = ReportSection("watches"), dict[str, list[str]]()
    for policy in policies:
        if _age(policy, now) <= STALE_STATUS_SECONDS:
            for text in dict.fromkeys(one.message for one in policy.status.conditions if _is_silent(one)):
                concerned.setdefault(text, []).append(str(policy))
    for text, names in concerned.items():
        section.wrong(f"{text} (reported by the status of {listed(names)})")
    return section


def _is_silent(one: Condition) -> bool:
    return one.reason == Reason.WATCH_SILENT and one.status != "True"


def _unwritten(policies: Sequence[ListedPolicy], now: float, *, written: bool) -> ReportSection:
    section = ReportSection("companion")
    if not written:
        return section
    without = [str(one) for one in policies if not one.status.assessed_at]
    old = [one for one in policies if one.status.assessed_at and _age(one, now) > STALE_STATUS_SECONDS]
    if old:
        oldest = max(_age(one, now) for one in old)
        section.wrong(
            f"it writes every status within two minutes, and these are older, up to {oldest:.0f} s: "
            f"{listed([str(one) for one in old])}; check that it runs, and its log"
        )
    if without:
        section.note(f"no status is written yet, so the adapter's view of it is unknown: {listed(without)}")
    return section


def _age(policy: ListedPolicy, now: float) -> float:
    """The age of a policy's status in seconds; 0 where it has none."""
    at = parse_time(policy.status.assessed_at)
    return 0.0 if at is None else now - at


def listed(names: Sequence[str]) -> str:
    """The first names, and the number of the rest."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
