"""Moments that Prometheus knows, drawn over all panels of a dashboard."""

from grafana_foundation_sdk.cog import builder
from grafana_foundation_sdk.models import dashboard

from monitoring.dashboards.panels import DATASOURCE


class _Annotation(dashboard.AnnotationQuery):
    """An annotation with a title for its moments, which the SDK's has no field for."""

    def __init__(self, name: str, colour: str, expression: str, title: str) -> None:
        super().__init__(name=name, datasource=DATASOURCE, icon_color=colour, expr=expression)
        self._title = title

    def to_json(self) -> dict[str, object]:
        return {**super().to_json(), "titleFormat": self._title}


class PrometheusAnnotation(builder.Builder[dashboard.AnnotationQuery]):
    """Moments at which an expression has a result; `title` is shown on each."""

    def __init__(self, name: str, colour: str, expression: str, title: str) -> None:
        self._made = _Annotation(name, colour, expression, title)

    def build(self) -> dashboard.AnnotationQuery:
        """The annotation."""
        return self._made
