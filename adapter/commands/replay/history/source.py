"""Opens histories of services as the arguments of `replay` say."""

import argparse
import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from adapter.commands.replay.history.prometheus import PrometheusHistory
from adapter.commands.replay.history.queries import Overrides, Sources, choose_sources, derive_queries
from adapter.commands.replay.history.span import Span, read_span
from adapter.load.spec import Metric, Policy
from adapter.policy.hpa import CrossVersionReference
from adapter.runtime.faults import Fault, FaultyDocument
from adapter.settings import load_settings

_TITLE = "the history cannot be read"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusSource:
    """Where and how histories of any number of services are read. `now` in seconds since the epoch."""

    sources: Sources
    overrides: Overrides
    span: Span
    cache: Path
    now: float

    def history(
        self, policy: Policy, target: CrossVersionReference, metrics: Sequence[Metric] = (), *, strict: bool = True
    ) -> PrometheusHistory:
        """The history of a policy's metrics, and of further ones. Raises FaultyDocument, HistoryUnavailable.

        Where not `strict`, queries for metrics that the policy has not are passed over: they are another policy's.
        """
        names = {metric.name for metric in policy.metrics}
        more = [metric for metric in metrics if metric.name not in names]
        policy = replace(policy, metrics=(*policy.metrics, *more))
        overrides = self.overrides
        if not strict:
            known = {metric.name for metric in policy.metrics}
            overrides = replace(overrides, loads={name: q for name, q in overrides.loads.items() if name in known})
        queries = derive_queries(policy, target, self.sources, overrides)
        return PrometheusHistory(queries, self.span, self.cache, now=self.now)


@contextlib.contextmanager
def open_source(parsed: argparse.Namespace, now: float) -> Iterator[PrometheusSource]:
    """The source that the arguments name; without `--cache` the parts are in a folder for the time being.

    Raises FaultyDocument.
    """
    settings = load_settings(parsed.settings) if parsed.settings else None
    sources = choose_sources(settings, parsed.server or "", parsed.prometheus or "")
    if parsed.begin is None:
        raise FaultyDocument([Fault("--from", None, "say where the history begins, such as 7d")], _TITLE)
    span = read_span(parsed.begin, parsed.end or "now", parsed.step, now)
    overrides = Overrides(
        loads=_loads(parsed.query), pulled_out=parsed.pulled_out_query or "", replicas=parsed.replicas_query or ""
    )
    with contextlib.ExitStack() as stack:
        folder = parsed.cache or stack.enter_context(tempfile.TemporaryDirectory(prefix="effective-load-replay-"))
        yield PrometheusSource(sources=sources, overrides=overrides, span=span, cache=Path(folder), now=now)


def _loads(given: Sequence[str]) -> dict[str, str]:
    loads = {}
    for text in given:
        name, _, query = text.partition("=")
        if not name.strip() or not query.strip():
            raise FaultyDocument([Fault("--query", text, "write METRIC=PROMQL, such as cpu='sum(…)'")], _TITLE)
        loads[name.strip()] = query.strip()
    return loads
