"""The queries for a history follow from the policy, the target and the settings; what cannot be derived is said."""

from dataclasses import replace
from fractions import Fraction

import pytest

from adapter.commands.replay.history.queries import Overrides, Sources, choose_sources, derive_queries
from adapter.commands.replay.history.range_client import RangeSeries
from adapter.load.spec import Metric, Query
from adapter.policy.hpa import CrossVersionReference
from adapter.runtime.faults import FaultyDocument
from adapter.settings import parse_settings
from tests.replay.history.kit import WEB, cpu, named, policy

SETTINGS = parse_settings("""
prometheus:
  servers:
  - {name: main, url: "http://main:9090"}
  - {name: other, url: "http://other:9090"}
  queries:
  - {name: rps, server: other, query: 'sum by (namespace, pod) (rate(requests_total[1m]))'}
  - {name: queue, server: main, query: 'sum(queue{app="$workload"})', scope: Service}
""")
PLAIN = choose_sources(None, "http://plain:9090")


def sources() -> Sources:
    """The settings' servers, of which the first one has all that the policy's queries do not name."""
    return replace(choose_sources(SETTINGS, ""), server=SETTINGS.prometheus.servers[0])


def test_cpu_and_memory_come_from_the_kubelets_series_of_the_targets_pods() -> None:
    load = derive_queries(policy(), WEB, sources()).loads["cpu"]
    assert load.text == (
        'sum(rate(container_cpu_usage_seconds_total{namespace="shop", '
        'pod=~"web-[bcdfghjklmnpqrstvwxz2456789]{1,10}-[bcdfghjklmnpqrstvwxz2456789]{5}", '
        'container!="", container!="POD"}[2m]))'
    )
    assert load.server.name == "main"


@pytest.mark.parametrize(
    ("metric", "target", "matcher"),
    [
        pytest.param(cpu(containers=("app", "proxy")), WEB, 'container=~"app|proxy"}', id="containers"),
        pytest.param(
            cpu(),
            CrossVersionReference("apps/v1", "StatefulSet", "my.web"),
            r'pod=~"my\\.web-[0-9]+"',
            id="a StatefulSet",
        ),
    ],
)
def test_only_what_the_metric_and_the_target_name_counts(
    metric: Metric, target: CrossVersionReference, matcher: str
) -> None:
    assert matcher in derive_queries(policy(metric), target, sources()).loads["cpu"].text


def test_a_query_of_the_settings_goes_to_its_own_server_unless_an_address_is_given() -> None:
    assert derive_queries(policy(named("rps")), WEB, sources()).loads["rps"].server.name == "other"
    given = choose_sources(SETTINGS, "http://thanos:9090")
    assert derive_queries(policy(named("rps")), WEB, given).loads["rps"].server.url == "http://thanos:9090"


def test_a_query_by_pod_is_summed_over_the_policys_pods() -> None:
    load = derive_queries(policy(named("rps")), WEB, sources()).loads["rps"]
    assert load.text.startswith("sum by (effective_load_chosen) (label_replace(")
    assert "sum by (namespace, pod) (rate(requests_total[1m]))\n) >= 0" in load.text
    pods, total = (
        RangeSeries({"effective_load_chosen": "pods"}, []),
        RangeSeries({"effective_load_chosen": "total"}, []),
    )
    assert load.chosen([RangeSeries({}, []), total, pods]) is pods
    assert load.chosen([RangeSeries({}, []), total]) is total
    assert load.chosen([RangeSeries({}, [])]) is None


def test_a_query_for_the_service_is_itself_and_only_the_policys_namespace_counts() -> None:
    load = derive_queries(policy(named("queue")), WEB, sources()).loads["queue"]
    assert load.text == 'sum(queue{app="web"})'
    ours, theirs = RangeSeries({"namespace": "shop"}, []), RangeSeries({"namespace": "else"}, [])
    assert load.chosen([theirs, ours]) is ours
    assert load.chosen([theirs]) is None
    with pytest.raises(ValueError, match="2 series"):
        load.chosen([ours, RangeSeries({}, [])])


def test_promql_of_the_policy_is_read_from_the_one_address_that_is_given() -> None:
    inline = Metric(name="rps", query=Query(prom_ql="sum(rps)", server="nowhere"), high=Fraction(1))
    assert "sum(rps)" in derive_queries(policy(inline), WEB, PLAIN).loads["rps"].text


def test_pulled_out_pods_and_replicas_are_first_those_of_the_adapter() -> None:
    made = derive_queries(policy(), WEB, sources())
    assert made.pulled_out.text == (
        'max(effective_load_policy_pods{namespace="shop", exported_namespace="", policy="web", state="pulledOut"} or '
        'effective_load_policy_pods{exported_namespace="shop", policy="web", state="pulledOut"})'
    )
    assert made.replicas.text.startswith('max(effective_load_policy_current_replicas{namespace="shop"')
    assert made.replicas.text.endswith(' or max(kube_deployment_spec_replicas{namespace="shop", deployment="web"})')


def test_the_queries_of_the_loads_and_of_pulled_out_pods_can_be_given() -> None:
    given = Overrides(loads={"cpu": 'my_cpu{app="$workload"}'}, pulled_out='out{ns="$namespace"}')
    load, pulled_out, _ = derive_queries(policy(), WEB, PLAIN, given)
    assert [load.text, pulled_out.text] == ['my_cpu{app="web"}', 'out{ns="shop"}']


@pytest.mark.parametrize(
    ("metric", "given", "words"),
    [
        (named("rps"), {}, "--query rps='PROMQL'"),
        (named("rps"), {"rsp": "1"}, "did you mean rps?"),
        (cpu(), {"cpu": "x{a=$workload}"}, "must stand inside quotes"),
    ],
)
def test_what_cannot_be_derived_is_said(metric: Metric, given: dict[str, str], words: str) -> None:
    with pytest.raises(FaultyDocument) as raised:
        derive_queries(policy(metric), WEB, PLAIN, Overrides(loads=given))
    assert words in str(raised.value)
    assert "shop/web" in str(raised.value)


def test_of_several_servers_that_of_the_policys_queries_answers_all() -> None:
    made = derive_queries(policy(named("rps"), cpu()), WEB, choose_sources(SETTINGS, ""))
    assert {query.server.name for query in made} == {"other"}
    with pytest.raises(FaultyDocument, match="name one with --prometheus URL: the settings have main, other"):
        derive_queries(policy(cpu()), WEB, choose_sources(SETTINGS, ""))


@pytest.mark.parametrize(
    ("url", "words"),
    [("", "name the server with --prometheus URL"), ("prometheus:9090", "write the address")],
)
def test_an_unclear_server_is_a_fault(url: str, words: str) -> None:
    with pytest.raises(FaultyDocument) as raised:
        choose_sources(None, url)
    assert words in str(raised.value)
