"""Reads the samples of a `decide` document: PodMetrics, the answers of queries, and what is known of their sources."""

from collections.abc import Iterator, Mapping
from typing import Any

from adapter.document.fields import DocumentFields, Path
from adapter.load.quantity import QuantityError, parse_number
from adapter.load.samples import PodUsage, Point, QuerySamples, ResourceSamples, Samples
from adapter.load.spec import Policy, Query
from adapter.usage.promql import PromqlError, parse_inputs
from adapter.usage.resource_metrics import decode_usage, parse_go_duration

_LONGEST_DURATION = 64
_MAX_AGE = 90.0
_SOURCE_KEYS = ("answeredAt", "maxAgeSeconds", "error")
_SAMPLES_KEYS = ("at", "pods", "total", "windowSeconds", "offsetSeconds", "byPod", *_SOURCE_KEYS)
_POINT_KEYS = ("at", "value")
_LONGEST_WINDOW = 366 * 86_400


class SamplesReader:
    """Reads the samples for an assessment at `now` (seconds)."""

    def __init__(self, fields: DocumentFields, now: float) -> None:
        self._fields = fields
        self._now = now

    def samples(self, policy: Policy | None) -> Samples:
        """The samples for this policy; None where its own faults are known already."""
        given = self._fields.mapping(self._fields.data.get("samples"), ("samples",))
        queries = {metric.name: metric.query for metric in policy.metrics if metric.query} if policy else {}
        for name in given.keys() - queries.keys() if policy else ():
            advice = f"is no query metric of the policy; those are {sorted(queries)}"
            self._fields.fault(("samples", name), None, advice)
        return Samples(
            self._resources(),
            {str(name): self._query(one, ("samples", str(name)), queries.get(name)) for name, one in given.items()},
        )

    def _resources(self) -> ResourceSamples:
        pods = dict(self._usage())
        # An answer cannot be older than its samples, or later than now.
        answered_at = min(max((one.at for one in pods.values()), default=self._now), self._now) if pods else None
        given = self._fields.mapping(self._fields.data.get("usageSource"), ("usageSource",))
        self._fields.unknown(given, _SOURCE_KEYS, ("usageSource",))
        return ResourceSamples(pods=pods, **self._source(given, answered_at, ("usageSource",)))

    def _source(self, given: Mapping[str, Any], answered_at: float | None, at: Path) -> dict[str, Any]:
        """What the document says of a source, and `answered_at` where it has sources but no word on this."""
        told = self._fields.optional_time(given, "answeredAt", at)
        knows = bool(given.keys() & _SOURCE_KEYS)
        return {
            "fetched_at": told if told is not None or knows else answered_at,
            "max_age": self._fields.seconds(given, "maxAgeSeconds", _MAX_AGE, _LONGEST_WINDOW, at),
            "error": self._fields.optional_text(given, "error", at),
        }

    def _usage(self) -> Iterator[tuple[str, PodUsage]]:
        for index, one in self._fields.objects("usage"):
            window = one.get("window") if isinstance(one, Mapping) else None
            if window and not _is_duration(window):
                self._fields.fault(("usage", index, "window"), window, "must be a duration such as 15s")
                continue
            usage = self._fields.decoded(decode_usage, one, ("usage", index))
            if usage is not None:
                self._fields.once("usage", usage[0], usage[0], ("usage", index, "metadata", "name"))
                self._fields.time(one["timestamp"], ("usage", index, "timestamp"))
                yield usage

    def _query(self, data: object, at: Path, query: Query | None) -> QuerySamples:
        given = self._fields.mapping(data, at)
        self._fields.unknown(given, _SAMPLES_KEYS, at)
        # Values that the server wrote have their own times.
        moment = None
        if given.get("at") is not None or not given.keys() & _SOURCE_KEYS:
            moment = self._fields.time(given.get("at"), (*at, "at"))
        pods = self._fields.mapping(given.get("pods"), (*at, "pods"))
        points = {name: self._point(value, moment, (*at, "pods", str(name))) for name, value in pods.items()}
        total = given.get("total")
        return QuerySamples(
            pods={str(name): point for name, point in points.items() if point is not None},
            total=None if total is None else self._point(total, moment, (*at, "total")),
            window=self._fields.seconds(given, "windowSeconds", _window_of(query), _LONGEST_WINDOW, at),
            behind=self._fields.seconds(given, "offsetSeconds", 0.0, _LONGEST_WINDOW, at),
            by_pod=self._by_pod(given, at),
            **self._source(given, None if moment is None else min(moment, self._now), at),
        )

    def _by_pod(self, given: Mapping[str, Any], at: Path) -> bool | None:
        told = given.get("byPod")
        if told is not None and not isinstance(told, bool):
            self._fields.fault((*at, "byPod"), told, "must be true or false")
        if isinstance(told, bool):
            return told
        return True if "pods" in given else False if "total" in given else None

    def _point(self, data: object, moment: float | None, path: Path) -> Point | None:
        """A point; None for NaN and infinity, which are no samples; anything else unreadable is a fault."""
        value, at = data, moment
        if isinstance(data, Mapping):
            self._fields.unknown(data, _POINT_KEYS, path)
            value = data.get("value")
            at = moment if data.get("at") is None else self._fields.time(data["at"], (*path, "at"))
        if str(value).lower().lstrip("+-.") in {"nan", "inf"}:
            return None
        try:
            number = parse_number(str(value))
        except QuantityError as error:
            self._fields.fault(path, value, str(error))
            return None
        if at is None:
            advice = "has no time: give `at` beside `pods`, or write {at: …, value: …}"
            self._fields.fault(path, value, advice)
            return None
        return Point(at, number)


def _is_duration(text: object) -> bool:
    return isinstance(text, str) and len(text) <= _LONGEST_DURATION and (text[:1] == "0" or parse_go_duration(text) > 0)


def _window_of(query: Query | None) -> float:
    """The window of inline PromQL; 0 for a named query and for one that cannot be read."""
    try:
        return parse_inputs(query.prom_ql).window if query is not None else 0.0
    except PromqlError:
        return 0.0
