"""The dashboard *Fleet*: who is above, below, held or doubtful, and what failed."""

from grafana_foundation_sdk.builders import common as options
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import table
from grafana_foundation_sdk.models import dashboard

from monitoring.dashboards.panels import (
    ALARM,
    CALM,
    STATES,
    VERDICTS,
    WARN,
    Ask,
    Property,
    colour,
    finished,
    graph_panel,
    new_dashboard,
    query_variable,
    stat_panel,
    table_panel,
    value_colours,
    width,
    with_all,
)
from monitoring.dashboards.queries import selector

UID = "effective-load-fleet"
POLICY_UID = "effective-load-policy"
_EACH = "namespace, policy"


def _of(name: str, /, **labels: str) -> str:
    """The series of a metric of the chosen policies."""
    return selector(f"policy_{name}", namespace="=~$namespace", **labels)


def _each(name: str, /, *, by: str = "", **labels: str) -> str:
    """A metric of each chosen policy, once however many replicas expose it."""
    return f"max by ({_EACH}{by and ', '}{by}) ({_of(name, **labels)})"


def _share(name: str, /, **labels: str) -> str:
    """A metric of each chosen policy where replicas that differ for a moment must not count twice in a sum."""
    return f"avg by ({_EACH}) ({_of(name, **labels)})"


def _number_of(selected: str) -> str:
    """How many there are; 0 instead of nothing."""
    return f"(count({selected}) or vector(0))"


_KNOWN = f"count by ({_EACH}) ({_of('mode')} or {_of('error')})"
_INPUTS = {"source": "source_up", "registry": "registry_up", "group": "upstream_up"}
"""What the adapter depends on, by the label that names it: load sources, registries, the adapters behind this one."""
_FULLNESS = f"max by ({_EACH}) ({_each('effective', by='metric')} / {_each('high_watermark', by='metric')})"


_NOT_FOLLOWED = (
    f"(min by ({_EACH}) ({_of('condition', condition='ScalingActive')}) == 0 or "
    f"min by ({_EACH}) ({_of('condition', condition='HPAConformant')}) == 0 and "
    f"{_each('desired_replicas')} != {_each('current_replicas')}) unless {_each('error')} == 1"
)


def fleet() -> dashboard.Dashboard:
    """The dashboard."""
    board = new_dashboard(
        UID,
        "Effective load / Fleet",
        "All WatermarkPolicies: who is above, below, held or doubtful, and what failed.",
    )
    board = board.with_variable(
        with_all(query_variable("namespace", "Namespace", f"label_values({selector('policy_mode')}, namespace)"))
    )
    link = builders.DashboardLink("Policy").type(dashboard.DashboardLinkType.LINK).url(f"/d/{POLICY_UID}")
    board = board.link(link.icon("dashboard").keep_time(True).tooltip("One policy in detail"))
    for add in (_now, _policies, _failures, _process):
        board = add(board)
    return finished(board)


def _now(board: builders.Dashboard) -> builders.Dashboard:
    some = ((None, CALM), (1, WARN))
    bad = ((None, "green"), (1, ALARM))
    board = board.with_row(builders.Row("Now"))
    for panel in (
        stat_panel("Policies", "WatermarkPolicies that the adapter knows.", f"count({_KNOWN})"),
        stat_panel(
            "Above",
            "Policies whose usage of serving pods is above the high watermark.",
            f"sum({_each('verdict', verdict='Above')})",
            steps=some,
        ),
        stat_panel(
            "Below",
            "Policies whose usage of serving pods is below the low watermark.",
            f"sum({_each('verdict', verdict='Below')})",
            steps=((None, CALM), (1, "blue")),
        ),
        stat_panel(
            "Held",
            "Policies whose count a stage after the watermarks changed or kept: bounds, doubt, velocity, a mode …",
            _number_of(f"count by ({_EACH}) ({_of('held')})"),
            steps=((None, CALM), (1, "purple")),
        ),
        stat_panel(
            "Doubtful pods",
            "Pods of which the evidence does not say whether they serve. Each decision is computed with and without.",
            f"sum({_each('pods', state='doubtful')})",
            steps=((None, CALM), (1, "purple")),
        ),
        stat_panel(
            "Pulled-out pods",
            "Pods that run without traffic: disabled, isolated, absent in the registry, or annotated.",
            f"sum({_each('pods', state='pulledOut')})",
            steps=some,
        ),
        stat_panel(
            "Without an answer",
            "Policies for which the HPA gets an error instead of a count; it keeps the replicas meanwhile.",
            _number_of(f"count by ({_EACH}) ({_of('error')})"),
            steps=bad,
        ),
        stat_panel(
            "Not followed",
            "Policies with a count whose HPA gets an error, or is wired wrongly and set to another count.",
            _number_of(_NOT_FOLLOWED),
            steps=bad,
        ),
        stat_panel(
            "At maximum",
            "Policies above the high watermark whose HPA is at maxReplicas.",
            _number_of(
                f"{_each('current_replicas')} >= {_each('max_replicas')} and {_each('verdict', verdict='Above')} == 1"
            ),
            steps=some,
        ),
        stat_panel(
            "Alerts firing",
            "Alerts of effective-load that fire now, as far as this Prometheus evaluates its rules.",
            _number_of('ALERTS{cluster=~"$cluster", alertname=~"EffectiveLoad.*", alertstate="firing"}'),
            steps=bad,
        ),
        stat_panel(
            "Inputs down",
            "Load sources, registries and upstream adapters whose last question failed, seen from any replica.",
            " + ".join(_number_of(f"min by ({label}) ({selector(up)}) == 0") for label, up in _INPUTS.items()),
            steps=bad,
        ),
    ):
        board = board.with_panel(panel)
    return board


def _policies(board: builders.Dashboard) -> builders.Dashboard:
    board = board.with_row(builders.Row("Policies"))
    for panel in (
        graph_panel(
            "Policies by verdict",
            "Where the usage of the serving pods stands against the watermarks.",
            [Ask(f"sum({_share('verdict', verdict=name)})", name) for name in VERDICTS],
            unit="none",
            colours=VERDICTS,
            stacked=True,
            stepped=True,
        ),
        graph_panel(
            "Replicas asked and set",
            "The counts that all policies with an answer ask for, and those that their targets are set to.",
            [
                Ask(f"sum({_each('desired_replicas')})", "asked"),
                Ask(f"sum({_each('current_replicas')} and on ({_EACH}) {_of('desired_replicas')})", "set"),
            ],
            unit="none",
            colours={"asked": "orange", "set": "green"},
            stepped=True,
        ),
        graph_panel(
            "Pods by state",
            "The pods of all targets, by what the adapter takes them for.",
            [Ask(f"sum({_share('pods', state=name)})", name) for name in STATES],
            unit="none",
            colours=STATES,
            stacked=True,
            stepped=True,
        ),
        _every_policy(),
    ):
        board = board.with_panel(panel)
    return board


def _every_policy() -> table.Panel:
    """One row for each policy, the fullest first; its name leads to the dashboard *Policy*."""
    columns = {
        "namespace": "Namespace",
        "policy": "Policy",
        "verdict": "Verdict",
        "Value #B": "Load of high",
        "Value #C": "Asked",
        "Value #D": "Set",
        "Value #E": "Least",
        "Value #F": "Most",
        "Value #G": "Serving",
        "Value #H": "Pulled out",
        "Value #I": "Doubtful",
        "held_by": "Held by",
        "reason": "Without an answer",
    }
    asks = (
        f"{_each('verdict', by='verdict')} == 1",
        _FULLNESS,
        _each("desired_replicas"),
        _each("current_replicas"),
        _each("min_replicas"),
        _each("max_replicas"),
        _each("pods", state="serving"),
        _each("pods", state="pulledOut"),
        _each("pods", state="doubtful"),
        _each("held", by="held_by"),
        _each("error", by="reason"),
    )
    panel = table_panel(
        "Every policy",
        "Load of high: the effective usage of the policy's fullest metric, as a part of its high watermark.",
        [Ask(one) for one in asks],
        columns,
        span=24,
        height=11,
    )
    panel = panel.sort_by([options.TableSortByFieldState().display_name("Load of high").desc(True)])
    panel = panel.override_by_name("Namespace", [width(140)])
    panel = panel.override_by_name("Policy", [width(160), Property(id_val="links", value=[_LINK])])
    panel = panel.override_by_name("Verdict", [width(90), _TEXT, value_colours(VERDICTS)])
    panel = panel.override_by_name("Load of high", [width(200), *_FULLNESS_CELL])
    for name in ("Asked", "Set", "Least", "Most", "Serving"):
        panel = panel.override_by_name(name, [width(80)])
    for name, shade in (("Pulled out", WARN), ("Doubtful", "purple")):
        panel = panel.override_by_name(name, [width(100), _TEXT, _from_one(shade)])
    panel = panel.override_by_name("Held by", [width(120), _TEXT, colour("purple"), _BLANK])
    return panel.override_by_name("Without an answer", [_TEXT, colour(ALARM), _BLANK])


_LINK = {
    "title": "Open the policy",
    "url": f"/d/{POLICY_UID}?${{datasource:queryparam}}&var-namespace=${{__data.fields.Namespace}}"
    "&var-policy=${__data.fields.Policy}&${__url_time_range}",
}
_BLANK = Property(id_val="noValue", value=" ")
_TEXT = Property(id_val="custom.cellOptions", value={"type": "color-text"})
_FULLNESS_CELL = [
    Property(id_val="unit", value="percentunit"),
    Property(id_val="decimals", value=0),
    Property(id_val="min", value=0),
    Property(id_val="max", value=1.5),
    Property(id_val="custom.cellOptions", value={"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}),
    Property(
        id_val="thresholds",
        value={
            "mode": "absolute",
            "steps": [{"value": None, "color": "green"}, {"value": 1, "color": WARN}, {"value": 1.25, "color": ALARM}],
        },
    ),
]


def _from_one(shade: str) -> Property:
    steps = [{"value": None, "color": CALM}, {"value": 1, "color": shade}]
    return Property(id_val="thresholds", value={"mode": "absolute", "steps": steps})


def _failures(board: builders.Dashboard) -> builders.Dashboard:
    board = board.with_row(builders.Row("What failed"))
    for panel in (
        table_panel(
            "Policies without an answer",
            "The reason that the HPA is told; it keeps the replicas as they are.",
            [Ask(_each("error", by="reason"))],
            {"namespace": "Namespace", "policy": "Policy", "reason": "Reason"},
            span=8,
            height=8,
        ),
        graph_panel(
            "Failed questions to inputs",
            "Failures a second by load source, registry or upstream adapter, and reason.",
            [
                Ask(_rate("source_errors_total", "source, reason"), "{{source}}: {{reason}}"),
                Ask(_rate("registry_errors_total", "registry, reason"), "{{registry}}: {{reason}}"),
                Ask(_rate("upstream_errors_total", "group, reason", reason="!=not_asked"), "{{group}}: {{reason}}"),
            ],
            unit="cps",
        ),
        graph_panel(
            "Age of inputs",
            "Since a load source last answered, since a registry last gave a valid answer, and the oldest sample.",
            [
                Ask(f"max by (source) (time() - {selector('source_last_success_timestamp_seconds')})", "{{source}}"),
                Ask(f"max by (registry) ({selector('registry_roster_age_seconds')})", "{{registry}}"),
                Ask(f"max({_of('sample_age_seconds')})", "oldest sample"),
            ],
            unit="s",
        ),
        graph_panel(
            "Errors by reason",
            "Errors a second that were answered or logged.",
            [Ask(_rate("errors_total", "reason"), "{{reason}}")],
            unit="cps",
        ),
        graph_panel(
            "Watches that are not believed",
            "Watches of the API server without proof for 90 s: the policies that need them have no answer.",
            [Ask(f"max by (resource) ({selector('watch_silent')})", "{{resource}}")],
            unit="none",
            stacked=True,
            stepped=True,
        ),
        graph_panel(
            "Writes of the companion",
            "Actions a second by kind and how they ended.",
            [Ask(_rate("companion_writes_total", "action, result"), "{{action}}: {{result}}")],
            unit="cps",
        ),
    ):
        board = board.with_panel(panel)
    return board


def _process(board: builders.Dashboard) -> builders.Dashboard:
    duration = f"rate({selector('api_request_duration_seconds_bucket', **_OURS)}[$__rate_interval])"
    upstream = f"rate({selector('upstream_request_duration_seconds_bucket')}[$__rate_interval])"
    board = board.with_row(builders.Row("The adapter itself"))
    for panel in (
        graph_panel(
            "Requests to the metrics API",
            "Requests a second by code, from HPAs and others.",
            [Ask(_rate("api_request_duration_seconds_count", "code", **_OURS), "{{code}}")],
            unit="reqps",
            stacked=True,
        ),
        graph_panel(
            "Time to answer",
            "The slowest hundredth and the median of the adapter's own answers, for which HPAs wait, and the slowest"
            " hundredth of those of upstream adapters.",
            [
                Ask(f"histogram_quantile(0.99, sum by (le) ({duration}))", "99 %"),
                Ask(f"histogram_quantile(0.5, sum by (le) ({duration}))", "median"),
                Ask(f"histogram_quantile(0.99, sum by (le) ({upstream}))", "upstream, 99 %"),
            ],
            unit="s",
        ),
        graph_panel(
            "Age of decisions",
            "The longest time since a policy was last assessed.",
            [Ask(f"max({_of('decision_age_seconds')})", "oldest")],
            unit="s",
        ),
        graph_panel(
            "Replicas of the adapter",
            "Running servers and companions by version, and how many companions lead: one.",
            [
                Ask(f"count by (version) ({selector('build_info')})", "{{version}}"),
                Ask(f"sum({selector('companion_leads')})", "leading companions"),
            ],
            unit="none",
            stepped=True,
        ),
        graph_panel(
            "Time until a certificate expires",
            "Certificates are renewed by themselves, or by whoever issues them; none may come near 0.",
            [
                Ask(
                    f"min by (certificate) ({selector('certificate_expiry_timestamp_seconds')} - time())",
                    "{{certificate}}",
                )
            ],
            unit="s",
            logarithmic=True,
        ),
        graph_panel(
            "Clock skew",
            "The adapter's clock less the API server's; ages of samples are wrong by as much.",
            [
                Ask(f"max({selector('clock_skew_seconds')})", "most"),
                Ask(f"min({selector('clock_skew_seconds')})", "least"),
            ],
            unit="s",
            least=None,
        ),
    ):
        board = board.with_panel(panel)
    return board


_OURS = {"resource_kind": "!=upstream"}
"""Requests that the adapter answers itself; those that it passes on take the time of another server."""


def _rate(metric: str, by: str, **labels: str) -> str:
    """How often a second, by these labels."""
    return f"sum by ({by}) (rate({selector(metric, **labels)}[$__rate_interval]))"
