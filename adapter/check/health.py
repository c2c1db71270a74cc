"""What a running adapter says of itself: silent watches, answers that are errors, statuses that nobody writes."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from adapter.check.cluster import ListedPolicy
from adapter.check.report import ReportSection, SubjectKind, all_ok
from adapter.kube.objects import Condition
from adapter.runtime.outbound import Access, Client
from adapter.runtime.source_errors import SourceUnreachable
from adapter.runtime.times import parse_time

STALE_SECONDS = 180.0
"""A status is written anew every two minutes; one that is older than this is no longer written."""
SILENT = "WatchSilent"
"""The reason of conditions that say which watch has shown no life."""
_NAMED = 5
_ASK_SECONDS = 3.0
_WITHHELD = "reason withheld"
_REMEDY = "its log has it, and accounts that may get /readyz/* are told: run the check in a pod of the server"


class ServerAccess(NamedTuple):
    """Who asks a server, which has to prove itself first: by a certificate of `authority` (PEM) to `server_name`."""

    token_file: str
    authority: str
    server_name: str


def status_sections(policies: Sequence[ListedPolicy], now: float, *, written: bool) -> list[ReportSection]:
    """What the statuses say together: which watches are silent, and which of them are too old to be believed.

    `written`: whether the settings have the companion write them.
    """
    return [one for one in (_silent(policies, now), _unwritten(policies, now, written=written)) if one.findings]


def add_policy_error(section: ReportSection, policy: ListedPolicy, now: float) -> None:
    """What a policy's own status says where nothing else that is wrong was found."""
    if _age(policy, now) > STALE_SECONDS or not all_ok([section]):
        return
    for one in policy.status.conditions:
        if (one.type, one.status) == ("Ready", "False") and one.reason != SILENT:
            since = f" since {one.last_transition_time}" if one.last_transition_time else ""
            section.wrong(f"its HPA is told an error{since} ({one.reason}): {one.message}")


async def server_sections(addresses: Sequence[str], account: ServerAccess | None = None) -> list[ReportSection]:
    """What each server (host:port) says of its readiness; those that cannot be asked from here are noted together.

    Servers give reasons to accounts with the right to them; without `account`, or where a server does not prove that
    it is one, it is asked as a stranger.
    """
    replies = await asyncio.gather(*(_ready(address, account) for address in addresses))
    sections = [_server(address, said) for address, said in zip(addresses, replies, strict=True) if said is not None]
    silent = [address for address, said in zip(addresses, replies, strict=True) if said is None]
    if silent:
        section = ReportSection("servers")
        section.note(
            f"{', '.join(silent)} cannot be asked from here whether all watches are alive; "
            "run the check in a pod of the server"
        )
        sections.append(section)
    return sections


async def _ready(address: str, account: ServerAccess | None) -> str | None:
    if account is not None:
        proven = Access(bearer_token_file=account.token_file, ca=account.authority)
        said = await _asked(proven, address, account.server_name)
        if said is not None:
            return said
    return await _asked(Access(insecure_skip_verify=True), address)  # nothing secret is said to it


async def _asked(access: Access, address: str, server_name: str | None = None) -> str | None:
    client = Client(access, timeout=_ASK_SECONDS)
    try:
        reply = await client.send("GET", f"https://{address}/readyz?verbose", server_hostname=server_name)
    except SourceUnreachable:
        return None
    finally:
        await client.close()
    return reply.body.decode(errors="replace")


def _server(address: str, said: str) -> ReportSection:
    section = ReportSection(f"server {address}", SubjectKind.SERVER)
    for line in said.splitlines():
        name, _, text = line[3:].partition(" ")
        if line.startswith("[-]"):
            section.wrong(f"it is not ready ({name}): {_reason(text.removeprefix('failed: '))}")
        elif line.startswith("[!]"):  # it is ready all the same: no other replica would do better
            section.wrong(f"{name} {_reason(text)}" if text == _WITHHELD else text)
    if not section.findings:
        section.ok("it is ready")
    return section


def _reason(text: str) -> str:
    return f"{text}; {_REMEDY}" if text == _WITHHELD else text


def _silent(policies: Sequence[ListedPolicy], now: float) -> ReportSection:
    section, concerned = ReportSection("watches"), dict[str, list[str]]()
    for policy in policies:
        if _age(policy, now) <= STALE_SECONDS:
            for text in dict.fromkeys(one.message for one in policy.status.conditions if _is_silent(one)):
                concerned.setdefault(text, []).append(str(policy))
    for text, names in concerned.items():
        section.wrong(f"{text} (said by the status of {_listed(names)})")
    return section


def _is_silent(one: Condition) -> bool:
    return one.reason == SILENT and one.status != "True"


def _unwritten(policies: Sequence[ListedPolicy], now: float, *, written: bool) -> ReportSection:
    section = ReportSection("companion")
    if not written:
        return section
    without = [str(one) for one in policies if not one.status.assessed_at]
    old = [one for one in policies if one.status.assessed_at and _age(one, now) > STALE_SECONDS]
    if old:
        oldest = max(_age(one, now) for one in old)
        section.wrong(
            f"it writes every status within two minutes, and these are older, up to {oldest:.0f} s: "
            f"{_listed([str(one) for one in old])}; look whether it runs, and at its log"
        )
    if without:
        section.note(f"no status is written yet, so what the adapter makes of it is not known: {_listed(without)}")
    return section


def _age(policy: ListedPolicy, now: float) -> float:
    """How old a policy's status is, in seconds; 0 where it has none."""
    at = parse_time(policy.status.assessed_at)
    return 0.0 if at is None else now - at


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
