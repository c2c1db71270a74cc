"""The API server itself: its version, whether HPAs have a tolerance there, and its clock."""

import re
from collections.abc import Iterable

import msgspec

from adapter.check.refusals import reason
from adapter.check.report import ReportSection
from adapter.kube.errors import KubeError
from adapter.kube.session import Session
from adapter.policy.hpa import Hpa
from adapter.runtime.decoding import decode

TOLERANCE_SINCE = (1, 35)
"""The Kubernetes version from which on HPAs have a tolerance of their own by default (HPAConfigurableTolerance)."""
_OLDEST = (1, 23)
"""The first version with autoscaling/v2."""
SKEW_SECONDS = 5.0
"""Clocks further apart are worth knowing; the Date header alone is a second wide."""
_WRONG_SECONDS = 60.0
_GATE = "HPAConfigurableTolerance"
_FEATURE = re.compile(rb'^kubernetes_feature_enabled\{[^}]*name="' + _GATE.encode() + rb'"[^}]*\} ([01])', re.MULTILINE)
_DIGITS = re.compile(r"v?(\d+)\.(\d+)")


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


async def control_plane_section(session: Session, hpas: Iterable[Hpa] | None) -> tuple[ReportSection, bool | None]:
    """The findings about the API server, and whether its HPAs have a tolerance (None: unknown).

    `hpas`: those of the cluster; None where they cannot be read. One with a tolerance proves that the field is kept.
    """
    section = ReportSection("API server")
    try:
        text = decode(await session.get("/version"), _Version).git_version
    except (KubeError, msgspec.MsgspecError) as error:
        section.skipped(f"its version, for {reason(error)}")
        _add_clock(section, session.skew)
        return section, None
    _add_clock(section, session.skew)
    version = _parsed(text)
    if version is not None and version < _OLDEST:
        section.wrong(f"it is Kubernetes {text}, which has no autoscaling/v2; 1.23 is the oldest that has")
        return section, False
    proven = any(hpa.sets_tolerance for hpa in hpas or ())
    enabled = True if proven else await _gate(session)
    has_tolerance = _judge(version, enabled)
    if has_tolerance:
        section.ok(f"it is Kubernetes {text}, whose HPAs have a tolerance of their own")
    elif has_tolerance is False:
        section.note(
            f"it is Kubernetes {text}, whose HPAs have no tolerance of their own ({_GATE}: by default from 1.35 on): "
            "the controller's, 10 % by default, suppresses small steps; give policies that tolerance"
        )
    else:
        section.note(f"it says no version that can be read ({text!r}), so whether HPAs have a tolerance is unknown")
    return section, has_tolerance


def _judge(version: tuple[int, int] | None, enabled: bool | None) -> bool | None:
    """Whether HPAs have a tolerance: by what was seen, else by the version's default."""
    if enabled is not None:
        return enabled
    return None if version is None else version >= TOLERANCE_SINCE


def _parsed(text: str) -> tuple[int, int] | None:
    found = _DIGITS.match(text)
    return (int(found[1]), int(found[2])) if found else None


async def _gate(session: Session) -> bool | None:
    """Whether the API server's own metrics show the feature as enabled; None where they may not be read."""
    try:
        found = _FEATURE.search(await session.get("/metrics", accept="text/plain", timeout=5))
    except KubeError:
        return None
    return found[1] == b"1" if found else None


def _add_clock(section: ReportSection, skew: float) -> None:
    """The difference of clocks. Decisions use the API server's clock, so it harms what has another one's times."""
    if abs(skew) <= SKEW_SECONDS:
        section.ok(f"its clock and the one here are within {SKEW_SECONDS:g} s")
        return
    ahead = "ahead of" if skew > 0 else "behind"
    text = (
        f"the clock here is {abs(skew):.0f} s {ahead} the API server's; decisions use the API server's, but tokens and "
        "certificates are judged by the one here: set both by NTP"
    )
    (section.wrong if abs(skew) > _WRONG_SECONDS else section.note)(text)
