"""Resolving the queries of policies: names substituted, servers checked, inline PromQL only if allowed."""

from dataclasses import replace

import pytest

from adapter.load.spec import Query
from adapter.usage.query_catalog import InstantQuery, QueryCatalog, WorkloadQuery
from tests.usage.fakes import named

RPS = "sum by (namespace, pod) (rate(http_requests_total[1m]))"


def catalog(*queries: object, inline: bool = False) -> QueryCatalog:
    return QueryCatalog(["main", "second"], queries, inline_allowed=inline)  # type: ignore[arg-type]


def wanted(query: Query, namespace: str = "shop", workload: str = "web") -> WorkloadQuery:
    return WorkloadQuery(query, namespace, workload)


def resolved(query: InstantQuery | str) -> InstantQuery:
    assert isinstance(query, InstantQuery), query
    return query


class TestNamed:
    def test_workloads_share_a_query_where_it_is_the_same(self) -> None:
        known = catalog(named("load", 'x{n="$namespace"}'), named("own", 'x{n="$namespace",w="$workload"}'))
        one, two = wanted(Query(name="load")), wanted(Query(name="load"), workload="api")
        assert known.resolve(one) == known.resolve(two) == replace(resolved(known.resolve(one)), text='x{n="shop"}')
        assert resolved(known.resolve(wanted(Query(name="load"), "other"))).text == 'x{n="other"}'
        assert resolved(known.resolve(wanted(Query(name="own")))).text == 'x{n="shop",w="web"}'

    def test_the_instant_query_has_all_settings(self) -> None:
        known = catalog(
            named(
                "rps", "x", server="second", scope="Service", namespace_label="ns", pod_label="p",
                max_age_seconds=60, interval_seconds=5,
            )
        )  # fmt: skip
        assert known.resolve(wanted(Query(name="rps"))) == InstantQuery(
            server="second", text="x", by_pod=False, labels=("ns", "p"), max_age=60, interval=5
        )

    def test_the_window_is_that_of_the_text_unless_the_settings_name_one(self) -> None:
        for more, window in (({}, 60), ({"window_seconds": 300}, 300), ({"window_seconds": 0}, 0)):
            known = catalog(named("rps", RPS, **more))
            assert resolved(known.resolve(wanted(Query(name="rps")))).window == window
        inline = wanted(Query(prom_ql=RPS.replace("]", "] offset 5m"), server="main"))
        assert resolved(catalog(inline=True).resolve(inline)).window == 360


NAMED = [named("rps", "x"), named("third", "x", server="third"), named("bad", "x{")]


@pytest.mark.parametrize(
    ("queries", "query", "sentence"),
    [
        (NAMED[:1], Query(name="rsp"), "the settings define no such query (they have rps)"),
        ([], Query(name="rsp"), "the settings define no such query (they have none yet)"),
        (NAMED, Query(name="third"), "the settings define no Prometheus server 'third' (they have main, second)"),
        (NAMED, Query(name="bad"), "at character 2"),
        ([], Query(prom_ql="x", server="third"), "no Prometheus server 'third'"),
        ([], Query(prom_ql="x{", server="main"), "at character 2"),
        ([named("rps", 'x{w="$workload"}')], Query(name="rps"), "'A' is not a valid name of a workload"),
    ],
)
def test_a_query_that_cannot_be_sent_has_a_fault(queries: list[object], query: Query, sentence: str) -> None:
    assert sentence in str(catalog(*queries, inline=True).resolve(wanted(query, workload="A")))
