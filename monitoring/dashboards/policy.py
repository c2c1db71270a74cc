"""The dashboard *Policy*: what one policy asks for and why, with its band, its pods and the age of its inputs."""

from grafana_foundation_sdk.builders import common as options
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import timeseries
from grafana_foundation_sdk.models import common, dashboard

from monitoring.dashboards.annotations import PrometheusAnnotation
from monitoring.dashboards.fleet import POLICY_UID
from monitoring.dashboards.fleet import UID as FLEET_UID
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
    with_all,
)
from monitoring.dashboards.queries import selector


def _series(name: str, /, **labels: str) -> str:
    return selector(f"policy_{name}", namespace="$namespace", policy="$policy", **labels)


def _of(name: str, /, *, by: str = "", **labels: str) -> str:
    """A metric of the chosen policy, once however many replicas expose it."""
    return f"max by ({by}) ({_series(name, **labels)})" if by else f"max({_series(name, **labels)})"


def policy() -> dashboard.Dashboard:
    """The dashboard."""
    board = new_dashboard(
        POLICY_UID,
        "Effective load / Policy",
        "One WatermarkPolicy: the count it asks for, effective against raw usage inside its band, its pods and inputs.",
    )
    for variable in (
        query_variable("namespace", "Namespace", f"label_values({selector('policy_mode')}, namespace)"),
        query_variable("policy", "Policy", f"label_values({selector('policy_mode', namespace='$namespace')}, policy)"),
        with_all(query_variable("metric", "Metric", f"label_values({_series('missing_pods')}, metric)")),
    ):
        board = board.with_variable(variable)
    board = board.annotations([_pull_outs(), _rescales()]).link(_to_fleet())
    for add in (_now, _band, _counts, _reasons):
        board = add(board)
    return finished(board)


def _to_fleet() -> builders.DashboardLink:
    link = builders.DashboardLink("Fleet").type(dashboard.DashboardLinkType.LINK).url(f"/d/{FLEET_UID}")
    return link.icon("dashboard").keep_time(True).tooltip("All policies")


def _pull_outs() -> PrometheusAnnotation:
    out = _series("pods", state="pulledOut")
    grown = f"max({out}) > max({out} offset $__rate_interval)"
    return PrometheusAnnotation("Pull-outs", WARN, grown, "Pods pulled out")


def _rescales() -> PrometheusAnnotation:
    changed = f"max(changes({_series('current_replicas')}[$__rate_interval])) > 0"
    return PrometheusAnnotation("Rescales", "blue", changed, "Rescaled")


def _now(board: builders.Dashboard) -> builders.Dashboard:
    board = board.with_row(builders.Row("Now"))
    verdict = stat_panel(
        "Verdict",
        "Where the usage of the serving pods stands against the watermarks.",
        f"{_of('verdict', by='verdict')} == 1",
        name_of="verdict",
        empty="none",
    )
    for name, shade in VERDICTS.items():
        verdict = verdict.override_by_name(name, [colour(shade)])
    held = stat_panel(
        "Held by",
        "The last stage that changed the count after the watermarks.",
        _of("held", by="held_by"),
        name_of="held_by",
        steps=((None, "purple"),),
        empty="nothing",
    )
    for panel in (
        verdict,
        stat_panel("Asked", "The count that the policy asks for.", _of("desired_replicas"), empty="none"),
        stat_panel("Set", "The count that the target is set to.", _of("current_replicas"), empty="none"),
        held,
        stat_panel(
            "Serving pods",
            "Pods that take part in the service; only these count in effective usage.",
            _of("pods", state="serving"),
            steps=((None, "green"),),
        ),
        stat_panel(
            "Pulled-out pods",
            "Pods that run without traffic.",
            _of("pods", state="pulledOut"),
            steps=((None, CALM), (1, WARN)),
        ),
        stat_panel(
            "Doubtful pods",
            "Pods of which the evidence does not say whether they serve.",
            _of("pods", state="doubtful"),
            steps=((None, CALM), (1, "purple")),
        ),
        stat_panel(
            "Oldest sample",
            "The age of the oldest sample behind the usage; too old, it no longer counts.",
            _of("sample_age_seconds"),
            unit="s",
            steps=((None, CALM), (60, WARN), (90, ALARM)),
            empty="none",
        ),
    ):
        board = board.with_panel(panel)
    return board


GOOD = "InputsFresh|RegistryTrusted"
"""Conditions whose absence is trouble; for the others that are exposed it is their presence."""
HIGH, LOW = "high watermark", "low watermark"


def _band(board: builders.Dashboard) -> builders.Dashboard:
    """The argument of the project: a pull-out leaves raw inside the band and lifts effective out of it."""
    names = {
        "effective": "effective: pods that serve",
        "raw": "raw: all running pods",
        "high_watermark": HIGH,
        "low_watermark": LOW,
        "target": "target",
    }
    panel = graph_panel(
        "$metric: effective against raw, inside the band",
        "Effective is the usage of the pods that serve, raw the average over all running pods, as the stock HPA sees"
        " it. Inside the band the count stays.",
        [Ask(_of(metric, metric="=~$metric"), legend) for metric, legend in names.items()],
        unit="short",
        span=24,
        height=11,
    )
    dashes = Property(id_val="custom.lineStyle", value={"fill": "dash", "dash": [8, 6]})
    thin, thick = Property(id_val="custom.lineWidth", value=1), Property(id_val="custom.lineWidth", value=3)
    panel = panel.override_by_name(names["effective"], [colour("orange"), thick])
    panel = panel.override_by_name(names["raw"], [colour("light-blue"), dashes])
    filled = [Property(id_val="custom.fillBelowTo", value=LOW), Property(id_val="custom.fillOpacity", value=18)]
    panel = panel.override_by_name(HIGH, [colour("green"), thin, *filled])
    panel = panel.override_by_name(LOW, [colour("green"), thin])
    panel = panel.override_by_name("target", [colour("yellow"), thin, dashes])
    panel = panel.repeat("metric").repeat_direction("v")
    return board.with_row(builders.Row("Effective against raw")).with_panel(_spaced(panel))


def _spaced(panel: timeseries.Panel) -> timeseries.Panel:
    """Room above the highest line, so that a line beyond the band is not at the edge."""
    legend = options.VizLegendOptions().display_mode(common.LegendDisplayMode.LIST).show_legend(True)
    return panel.legend(legend.placement(common.LegendPlacement.BOTTOM).calcs(["lastNotNull"]))


def _counts(board: builders.Dashboard) -> builders.Dashboard:
    thin = Property(id_val="custom.lineWidth", value=1)
    dashes = Property(id_val="custom.lineStyle", value={"fill": "dash", "dash": [8, 6]})
    replicas = graph_panel(
        "Replicas asked and set",
        "What the policy asks for, what the target is set to, and the HPA's bounds.",
        [
            Ask(_of("current_replicas"), "set"),
            Ask(_of("desired_replicas"), "asked"),
            Ask(_of("min_replicas"), "least"),
            Ask(_of("max_replicas"), "most"),
        ],
        unit="none",
        span=12,
        stepped=True,
        colours={"set": "green"},
    )
    replicas = replicas.override_by_name("asked", [colour("orange"), dashes])
    for bound in ("least", "most"):
        replicas = replicas.override_by_name(bound, [colour("#808080"), thin])
    pods = graph_panel(
        "Pods by state",
        "The target's pods, by what the adapter takes them for.",
        [Ask(f"avg({_series('pods', state=name)})", name) for name in STATES],
        unit="none",
        span=12,
        colours=STATES,
        stacked=True,
        stepped=True,
    )
    return board.with_row(builders.Row("Replicas and pods")).with_panel(replicas).with_panel(pods)


def _reasons(board: builders.Dashboard) -> builders.Dashboard:
    held = graph_panel(
        "What held the count",
        "The last stage that changed the count, a mode other than Active, and the reason for having no answer.",
        [
            Ask(_of("held", by="held_by"), "{{held_by}}"),
            Ask(f"{_of('mode', mode='!=Active', by='mode')} == 1", "mode {{mode}}"),
            Ask(_of("error", by="reason"), "no answer: {{reason}}"),
        ],
        unit="none",
        stacked=True,
        stepped=True,
    )
    held = held.override_by_field_type("number", [Property(id_val="custom.axisPlacement", value="hidden")])
    freshness = graph_panel(
        "Freshness",
        "The age of the oldest sample behind each metric, and the time since the policy was last assessed.",
        [
            Ask(_of("sample_age_seconds", by="metric"), "{{metric}}"),
            Ask(_of("decision_age_seconds"), "decision"),
        ],
        unit="s",
    )
    missing = graph_panel(
        "Missing samples and findings",
        "Serving pods without a fresh sample of a metric, and 1 for each condition that means trouble.",
        [
            Ask(_of("missing_pods", by="metric"), "pods without {{metric}}"),
            Ask(f"1 - min by (condition) ({_series('condition', condition='=~' + GOOD)})", "not {{condition}}"),
            Ask(_of("condition", by="condition", condition="!~" + GOOD), "{{condition}}"),
        ],
        unit="none",
        stepped=True,
    )
    board = board.with_row(builders.Row("Why"))
    return board.with_panel(held).with_panel(freshness).with_panel(missing)
