"""The settings: a section per module, the file that holds them all in `file`."""

from adapter.settings.companion import CompanionFeatures, CompanionSettings
from adapter.settings.file import (
    RESTART,
    Settings,
    SettingsError,
    SettingsFile,
    load_settings,
    needs_restart,
    parse_settings,
)
from adapter.settings.server import (
    ServerSettings,
    Upstream,
    UpstreamsSettings,
    own_namespace,
)
from adapter.settings.sources import (
    BasicAuth,
    Kubernetes,
    NamedQuery,
    PrometheusServer,
    PrometheusSettings,
    ResourceMetricsSettings,
)

__all__ = [
    "RESTART",
    "BasicAuth",
    "CompanionFeatures",
    "CompanionSettings",
    "Kubernetes",
    "NamedQuery",
    "PrometheusServer",
    "PrometheusSettings",
    "ResourceMetricsSettings",
    "ServerSettings",
    "Settings",
    "SettingsError",
    "SettingsFile",
    "Upstream",
    "UpstreamsSettings",
    "load_settings",
    "needs_restart",
    "own_namespace",
    "parse_settings",
]
