"""Resolving the queries of policies: names substituted, servers checked, inline PromQL only if allowed."""

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
    def test_a_query_without_variables_is_one_query_for_all_workloads(self) -> None:
        known = catalog(named("rps", RPS))
        one = known.resolve(wanted(Query(name="rps"), "shop", "web"))
        assert one == known.resolve(wanted(Query(name="rps"), "other", "api"))
        assert resolved(one).text == RPS

    def test_a_query_with_variables_is_one_for_each_workload(self) -> None:
        known = catalog(named("depth", 'sum(queue{n="$namespace",w="$workload"})', scope="Service"))
        one = resolved(known.resolve(wanted(Query(name="depth"), "shop", "web")))
        two = resolved(known.resolve(wanted(Query(name="depth"), "shop", "api")))
        assert (one.text, two.text) == ('sum(queue{n="shop",w="web"})', 'sum(queue{n="shop",w="api"})')

    def test_workloads_with_equal_queries_share_one(self) -> None:
        known = catalog(named("depth", 'sum(queue{n="$namespace"})'))
        assert known.resolve(wanted(Query(name="depth"), "shop", "web")) == known.resolve(
            wanted(Query(name="depth"), "shop", "api")
        )

    def test_the_instant_query_has_all_settings(self) -> None:
        known = catalog(
            named(
                "rps", "x", server="second", scope="Service", namespace_label="ns", pod_label="p",
                max_age_seconds=60, interval_seconds=5,
            )
        )  # fmt: skip
        assert known.resolve(wanted(Query(name="rps"))) == InstantQuery(
            server="second", text="x", by_pod=False, namespace_label="ns", pod_label="p", max_age=60, interval=5
        )

    def test_the_window_is_that_of_the_text_unless_the_settings_name_one(self) -> None:
        for more, window in (({}, 60), ({"window_seconds": 300}, 300), ({"window_seconds": 0}, 0)):
            known = catalog(named("rps", RPS, **more))
            assert resolved(known.resolve(wanted(Query(name="rps")))).window == window
        inline = wanted(Query(prom_ql=f"{RPS} offset 5m", server="main"))
        assert resolved(catalog(inline=True).resolve(inline)).window == 360

    def test_the_samples_behind_a_number_for_a_service_are_sorted_by_pod_too(self) -> None:
        assert InstantQuery(server="main", text="x", by_pod=False).labels == ("namespace", "pod")
        assert InstantQuery(server="main", text="x", by_pod=True).labels == ("namespace", "pod")
        assert InstantQuery(server="main", text="x", by_pod=None).labels == ("namespace", "pod")

    def test_the_fault_of_an_unknown_query_lists_the_known_ones(self) -> None:
        assert catalog(named("rps", "x")).resolve(wanted(Query(name="rsp"))) == (
            "the settings define no such query (they have rps)"
        )
        assert "none yet" in str(catalog().resolve(wanted(Query(name="rsp"))))

    def test_the_fault_of_an_unknown_server_lists_the_known_ones(self) -> None:
        found = catalog(named("rps", "x", server="third")).resolve(wanted(Query(name="rps")))
        assert found == "the settings define no Prometheus server 'third' (they have main, second)"

    def test_a_name_that_no_object_can_have_is_a_fault(self) -> None:
        known = catalog(named("rps", 'x{w="$workload"}'))
        assert "is no workload's name" in str(known.resolve(wanted(Query(name="rps"), "shop", 'web"} or {"')))

    def test_an_invalid_expression_is_a_fault(self) -> None:
        assert "never closed" in str(catalog(named("rps", "x{")).resolve(wanted(Query(name="rps"))))

    def test_queries_without_variables_are_known_by_name(self) -> None:
        known = catalog(named("rps", RPS), named("depth", 'x{n="$namespace"}'), named("bad", "x{"))
        shared = known.shared()
        assert shared.keys() == {"rps", "bad"}
        assert resolved(shared["rps"]).text == RPS
        assert isinstance(shared["bad"], str)

    @pytest.mark.parametrize(
        ("query", "age"), [(Query(name="rps"), 60), (Query(prom_ql="x"), 90), (Query(name="?"), 90)]
    )
    def test_a_faulty_query_has_a_maximum_age(self, query: Query, age: float) -> None:
        assert catalog(named("rps", "x{", max_age_seconds=60)).max_age(query) == age


class TestInline:
    QUERY = Query(prom_ql='sum(x{n="$namespace"})', server="second")

    def test_it_is_refused_unless_the_settings_allow_it(self) -> None:
        assert "PromQL in a policy is not allowed here" in str(catalog().resolve(wanted(self.QUERY)))

    def test_names_are_substituted_if_it_is_allowed(self) -> None:
        question = resolved(catalog(inline=True).resolve(wanted(self.QUERY)))
        assert question == InstantQuery(server="second", text='sum(x{n="shop"})', by_pod=None)

    @pytest.mark.parametrize(
        ("query", "sentence"),
        [
            (Query(prom_ql="x", server="third"), "no Prometheus server 'third'"),
            (Query(prom_ql="x{", server="main"), "never closed"),
            (Query(prom_ql="x{n=$namespace}", server="main"), "inside quotes"),
        ],
    )
    def test_a_query_that_cannot_be_sent_has_a_fault(self, query: Query, sentence: str) -> None:
        assert sentence in str(catalog(inline=True).resolve(wanted(query)))
