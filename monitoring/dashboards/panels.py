"""The panels of the dashboards: one look, one data source variable, and queries with their legends.

Every per-policy expression takes `max by (…)` over the adapter's replicas: each of them exposes every policy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common as options
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATASOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
VERDICTS = {"Inside": "green", "Below": "blue", "Above": "orange", "Error": "red"}
"""The colour of each verdict, in the order in which they are stacked."""
STATES = {
    "serving": "green",
    "starting": "light-blue",
    "unready": "yellow",
    "doubtful": "purple",
    "pulledOut": "orange",
    "terminating": "#9aa0a6",
    "finished": "#5f6368",
}
"""The colour of each state of a pod, in the order in which they are stacked."""
CALM, WARN, ALARM = "text", "orange", "red"

Property = dashboard.DynamicConfigValue
Colours = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Ask:
    """One query of a panel. `now`: only the value of this moment, as tables and names need it."""

    expression: str
    legend: str = ""
    now: bool = False


def target(ask: Ask, index: int, *, as_table: bool = False) -> prometheus.Dataquery:
    """The query with the reference that its position gives: A, B, C …"""
    query = prometheus.Dataquery().expr(ask.expression).ref_id(chr(ord("A") + index)).legend_format(ask.legend)
    query.datasource(DATASOURCE)
    query = query.instant() if ask.now or as_table else query.range()
    return query.format(PromQueryFormat.TABLE if as_table else PromQueryFormat.TIME_SERIES)


def width(pixels: int) -> Property:
    """The width of a table's column."""
    return Property(id_val="custom.width", value=pixels)


def colour(name: str) -> Property:
    """A fixed colour for the series that an override matches."""
    return Property(id_val="color", value={"mode": "fixed", "fixedColor": name})


def thresholds(*steps: tuple[float | None, str]) -> builders.ThresholdsConfig:
    """Colours from these values on; the first begins at None."""
    levels = [dashboard.Threshold(value=value, color=shade) for value, shade in steps]
    return builders.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(levels)


def stat_panel(
    title: str,
    description: str,
    expression: str,
    *,
    name_of: str = "",
    unit: str = "none",
    steps: Sequence[tuple[float | None, str]] = ((None, CALM),),
    empty: str = "0",
) -> stat.Panel:
    """The number of this moment; or, with `name_of` a label, the name of what is there. `empty`: where nothing is."""
    ask = Ask(expression, f"{{{{{name_of}}}}}" if name_of else "", now=True)
    reduced = options.ReduceDataOptions().calcs(["lastNotNull"])
    panel = stat.Panel().title(title).description(description).datasource(DATASOURCE).with_target(target(ask, 0))
    panel = panel.unit(unit).no_value(empty).height(4).span(3).reduce_options(reduced)
    panel = panel.color_mode(common.BigValueColorMode.VALUE).thresholds(thresholds(*steps))
    panel = panel.graph_mode(common.BigValueGraphMode.NONE)
    return panel.text_mode(common.BigValueTextMode.NAME if name_of else common.BigValueTextMode.VALUE)


def graph_panel(
    title: str,
    description: str,
    asks: Sequence[Ask],
    *,
    unit: str,
    span: int = 8,
    height: int = 8,
    colours: Colours | None = None,
    stacked: bool = False,
    stepped: bool = False,
    logarithmic: bool = False,
    least: float | None = 0,
) -> timeseries.Panel:
    """Lines over time, the axis from `least` on.

    `stacked`: as areas on top of each other; `stepped`: a value holds until the next one.
    """
    legend = options.VizLegendOptions().display_mode(common.LegendDisplayMode.LIST).show_legend(True)
    legend = legend.placement(common.LegendPlacement.BOTTOM).calcs([])
    tooltip = options.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)
    panel = timeseries.Panel().title(title).description(description).datasource(DATASOURCE).unit(unit)
    panel = panel.targets([target(ask, index) for index, ask in enumerate(asks)])
    panel = panel.span(span).height(height).legend(legend).tooltip(tooltip).show_points(_NEVER)
    panel = panel.line_width(0 if stacked else 2).fill_opacity(60 if stacked else 0)
    panel = panel.color_scheme(builders.FieldColor().mode(dashboard.FieldColorModeId.PALETTE_CLASSIC))
    if logarithmic:
        scale = options.ScaleDistributionConfig().type(common.ScaleDistribution.LOG).log(10)
        panel = panel.scale_distribution(scale)
    elif least is not None:
        panel = panel.min(least)
    if unit == "none":
        # Counts are whole numbers: without this, an axis of zeros would reach to 100.
        panel = panel.axis_soft_max(1).decimals(0)
    if stacked:
        panel = panel.stacking(options.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    if stepped:
        panel = panel.line_interpolation(common.LineInterpolation.STEP_AFTER)
    for name, shade in (colours or {}).items():
        panel = panel.override_by_name(name, [colour(shade)])
    return panel


_NEVER = common.VisibilityMode.NEVER


def table_panel(
    title: str, description: str, asks: Sequence[Ask], columns: Mapping[str, str], *, span: int, height: int
) -> table.Panel:
    """One row for each set of labels. `columns`: the fields that are shown, in order, and their titles.

    The value of query A is the field `Value #A`, or `Value` where it is the only query; a label is a field of its name.
    """
    panel = table.Panel().title(title).description(description).datasource(DATASOURCE).unit("none")
    panel = panel.show_header(True).cell_height(common.TableCellHeight.SM)
    panel = panel.targets([target(ask, index, as_table=True) for index, ask in enumerate(asks)])
    hidden = {"Time": True} | {
        f"Value #{chr(ord('A') + index)}": True
        for index in range(len(asks))
        if f"Value #{chr(ord('A') + index)}" not in columns
    }
    if "Value" not in columns:
        hidden["Value"] = True
    organize = {
        "excludeByName": hidden,
        "indexByName": {field: index for index, field in enumerate(columns)},
        "renameByName": dict(columns),
    }
    merge = dashboard.DataTransformerConfig(id_val="merge", options={})
    panel = panel.transformations([merge, dashboard.DataTransformerConfig(id_val="organize", options=organize)])
    return panel.span(span).height(height).no_value("-").thresholds(thresholds((None, CALM)))


def value_colours(values: Colours) -> Property:
    """Colours of texts, by their value."""
    shades = {
        text: dashboard.ValueMappingResult(text=text, color=shade, index=index)
        for index, (text, shade) in enumerate(values.items())
    }
    return Property(id_val="mappings", value=[dashboard.ValueMap(options=shades)])


def query_variable(name: str, label: str, query: str) -> builders.QueryVariable:
    """A variable with the values of a label, read anew when the time range changes."""
    asked: dict[str, object] = {"query": query, "refId": f"{name}-values"}
    variable = builders.QueryVariable(name).label(label).query(asked).datasource(DATASOURCE)
    return variable.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(_ALPHABETICAL)


_ALPHABETICAL = dashboard.VariableSort.ALPHABETICAL_ASC


def with_all(variable: builders.QueryVariable) -> builders.QueryVariable:
    """Several values may be chosen, and all of them are at first."""
    everything = dashboard.VariableOption(text="All", value="$__all")
    return variable.multi(True).include_all(True).current(everything)


def new_dashboard(uid: str, title: str, description: str) -> builders.Dashboard:
    """A read-only dashboard of the last hour with the variables `datasource`, `cluster` and `job`."""
    source = builders.DatasourceVariable("datasource").label("Data source").type("prometheus")
    cluster = with_all(query_variable("cluster", "Cluster", "label_values(effective_load_build_info, cluster)"))
    cluster = cluster.all_value(".*")
    job = with_all(query_variable("job", "Job", 'label_values(effective_load_build_info{cluster=~"$cluster"}, job)'))
    board = builders.Dashboard(title).uid(uid).description(description).tags(["effective-load", "kubernetes"])
    board = board.readonly().refresh("30s").time("now-1h", "now").timezone("browser")
    return (
        board.tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .with_variable(source)
        .with_variable(cluster)
        .with_variable(job)
    )


def finished(board: builders.Dashboard) -> dashboard.Dashboard:
    """The dashboard with a number for each panel and row, in order."""
    made = board.build()
    for number, panel in enumerate(made.panels or (), 1):
        panel.id_val = number
    return made
