"""The names in an upstream adapter's discovery document (APIResourceList)."""

import math
import re
from typing import NamedTuple

import msgspec

from adapter.apiserver.discovery_entries import ListedMetric, ListedParent, encode_in_slices
from adapter.apiserver.request_info import CUSTOM
from adapter.apiserver.upstream.answers import refuse_error
from adapter.apiserver.upstream.own_names import OwnNames
from adapter.runtime.decoding import Decoder
from adapter.runtime.json_pieces import Uncut, array, pieces
from adapter.runtime.outbound import SegmentedReply
from adapter.runtime.slices import Slices
from adapter.runtime.source_errors import WrongAnswer

MOST_NAMES = 10_000
"""Names of one version that are listed; the API server and every client hold them in memory."""
_RESOURCE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,252})", re.ASCII)
_LONGEST_METRIC = 256


class KeptNames(NamedTuple):
    """The names of one version, and when the upstream last listed them (monotonic)."""

    parents: tuple[ListedParent, ...] = ()
    at: float = -math.inf


class _Resource(msgspec.Struct):
    name: str
    namespaced: bool = True


class _ResourceList(msgspec.Struct, rename="camel"):
    kind: str
    group_version: str
    resources: list[_Resource] | None = None


_LIST = Decoder(_ResourceList)
_MANY = Decoder(list[_Resource])
_RESOURCES = array("resources")


async def read_listing(reply: SegmentedReply, group: str, version: str, own: OwnNames) -> tuple[ListedParent, ...]:
    """The metrics that the upstream lists and that are not ours, sorted. Raises StatusError and SourceError."""
    refuse_error(reply)
    listed: dict[str, bool] = {}
    slices = Slices()
    try:
        for piece in pieces(reply.body, _RESOURCES):
            if piece.is_last:
                resources = _last(_LIST.decode(piece.text), f"{group}/{version}")
            else:
                resources = _MANY.decode(piece.text)
            listed |= {one.name: one.namespaced for one in resources if _is_listed(one.name, group, own)}
            await slices.breathe()
    except (msgspec.MsgspecError, Uncut) as error:
        raise WrongAnswer(f"discovery: {error}", public="its discovery document cannot be read") from error
    names = sorted(listed)[:MOST_NAMES]
    return await encode_in_slices(group, (ListedMetric(name, listed[name]) for name in names))


def _last(answer: _ResourceList, group_version: str) -> list[_Resource]:
    if (answer.kind, answer.group_version) != ("APIResourceList", group_version):
        raise WrongAnswer(
            f"discovery: no APIResourceList of {group_version}", public="its discovery document is not of this group"
        )
    return answer.resources or []


def _is_listed(name: str, group: str, own: OwnNames) -> bool:
    resource, metric = "", name
    if group == CUSTOM:
        resource, _, metric = name.partition("/")
        if not _RESOURCE.fullmatch(resource):
            return False
    is_name = bool(metric) and metric.isprintable() and "/" not in metric and len(metric) <= _LONGEST_METRIC
    return is_name and not own.includes(group, resource, metric)
