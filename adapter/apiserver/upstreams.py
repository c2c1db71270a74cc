"""The upstream adapters of both groups: which one answers a request, and their refresh in the background."""

import asyncio
from collections.abc import Iterable, Sequence

import structlog

from adapter.apiserver.discovery import ListedParent
from adapter.apiserver.request_info import CUSTOM, EXTERNAL, SERVED_VERSIONS, RequestInfo
from adapter.apiserver.status import StatusError
from adapter.apiserver.upstream import SELF, OwnNames, UpstreamAdapter
from adapter.runtime.concurrency import wait_for_event
from adapter.settings import NamedQuery, UpstreamsSettings
from adapter.telemetry.metrics import Metrics

REFRESH_SECONDS = 30.0
RETRY_SECONDS = 5.0
RETIRE_SECONDS = 31.0
"""A replaced upstream is closed after once to twice this time: longer than any of its requests takes."""

_log = structlog.get_logger(__name__)


class Upstreams:
    """The adapters behind this one, by group; `apply_settings` changes them while running."""

    def __init__(self, settings: UpstreamsSettings, queries: Iterable[NamedQuery], metrics: Metrics) -> None:
        self._metrics = metrics
        self.by_group: dict[str, UpstreamAdapter] = {}
        self._retired: list[UpstreamAdapter] = []
        self._closing: list[UpstreamAdapter] = []
        self._changed = {group: asyncio.Event() for group in SERVED_VERSIONS}
        self.apply_settings(settings, queries)

    def apply_settings(self, settings: UpstreamsSettings, queries: Iterable[NamedQuery]) -> None:
        """Replaces the upstreams whose settings changed; requests under way end with the old ones."""
        own_names = OwnNames.of(queries)
        for group, wanted in ((CUSTOM, settings.custom), (EXTERNAL, settings.external)):
            current = self.by_group.get(group)
            names = None
            if current is not None:
                if (wanted, own_names) == (current.settings, current.own):
                    continue
                self._retired.append(self.by_group.pop(group))
                if wanted is not None and (wanted.url, own_names) == (current.settings.url, current.own):
                    names = current.names
            if wanted is not None:
                self.by_group[group] = UpstreamAdapter(group, wanted, own_names, self._metrics, names=names)
            elif current is not None:
                self._metrics.upstream_up.remove_by_labels({"group": group})
            else:
                continue
            self._changed[group].set()

    def of(self, request: RequestInfo) -> UpstreamAdapter | None:
        """The upstream that answers a metric request; None if the metric is ours, or nobody stands behind us."""
        upstream = self.by_group.get(request.group)
        if upstream is None or upstream.own.includes(request.group, request.resource, request.metric):
            return None
        return upstream

    def listed(self, group: str, version: str) -> tuple[ListedParent, ...]:
        """The names that an upstream adds to discovery."""
        upstream = self.by_group.get(group)
        return upstream.listed(version) if upstream is not None else ()

    def warning(self) -> str | None:
        """Which upstream does not answer, and why; None if all do."""
        problems = [problem for upstream in self.by_group.values() if (problem := upstream.problem())]
        return "; ".join(problems) or None

    async def run(self) -> None:
        """Refresh the names until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for group in SERVED_VERSIONS:
                    tasks.create_task(self._follow(group), name=f"upstream {group}")
                tasks.create_task(self._close_retired(), name="retired upstreams")
        finally:
            for upstream in (*self.by_group.values(), *self._retired, *self._closing):
                await upstream.close()

    async def _follow(self, group: str) -> None:
        changed = self._changed[group]
        while True:
            changed.clear()
            seconds = None
            if (upstream := self.by_group.get(group)) is not None:
                try:
                    answered = await upstream.refresh()
                except Exception:  # noqa: BLE001 - logged; our own metrics do not depend on it, and its names stay
                    _log.exception("upstream refresh failed", group=group)
                    answered = False
                if self.by_group.get(group) is upstream:  # else its settings changed meanwhile
                    self._metrics.upstream_up.labels(group).set(answered)
                seconds = REFRESH_SECONDS if answered else RETRY_SECONDS
            await wait_for_event(changed, seconds)

    async def _close_retired(self) -> None:
        while True:
            await asyncio.sleep(RETIRE_SECONDS)
            for upstream in self._closing:
                await upstream.close()
            self._closing, self._retired = self._retired, []


def refuse_loop(via: Sequence[str]) -> None:
    """Raises StatusError 508 for a request that passed through this program before."""
    if any(part.strip().endswith(f" {SELF}") for line in via for part in line.split(",")):
        raise StatusError(508, "the upstream adapter of this adapter is this adapter; check upstreams")
