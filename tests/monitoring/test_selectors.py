"""The check of PromQL against the adapter's series finds what it is there for."""

import pytest

from tests.monitoring.selectors import Selector, faults, selectors


def test_every_selector_is_found_wherever_it_stands() -> None:
    expression = 'max by (a) (x{s=~"p|q"}) / on (n) sum(rate(y[5m])) > 1 unless absent(z) or -(max_over_time(w[1h:]))'
    assert selectors(expression) == [Selector("x", (("=~", "s", "p|q"),)), Selector("y"), Selector("z"), Selector("w")]


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("effective_load_policy_efective > 1", "there is no series effective_load_policy_efective"),
        ('effective_load_policy_pods{status="serving"}', "effective_load_policy_pods has no label status"),
        ('effective_load_policy_pods{state="pulled-out"}', "effective_load_policy_pods never has state='pulled-out'"),
        ('effective_load_policy_error{reason=~"Invalid|None"}', "effective_load_policy_error never has reason='None'"),
        (
            "max by (service) (effective_load_registry_up)",
            "effective_load_registry_up has no label service to aggregate by",
        ),
        (
            "rate(effective_load_api_request_duration_seconds[5m])",
            "there is no series effective_load_api_request_duration_seconds",
        ),
    ],
)
def test_what_no_series_of_the_adapter_answers_is_a_fault(expression: str, fault: str) -> None:
    assert list(faults(expression)) == [fault]


def test_series_of_others_and_the_labels_of_targets_are_fine() -> None:
    expression = 'max by (cluster, pod) (effective_load_registry_up{job=~"$job"}) unless up{anything="x"} == 0'
    assert not list(faults(expression))
