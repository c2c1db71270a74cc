"""The cluster, metrics.k8s.io and the limits of all answers, in the settings.

The docstring under a field is its documentation; `docs/configuration.md` is made from them. Times are seconds.
"""

from typing import Annotated

from pydantic import Field

from adapter.settings.base import Mebibytes, Seconds, Section


class Kubernetes(Section):
    """Which part of the cluster is watched, and the HPA controller's tolerance."""

    namespaces: tuple[str, ...] = ()
    """Namespaces to watch; empty: all of them."""
    hpa_tolerance: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.1
    """The kube-controller-manager's `--horizontal-pod-autoscaler-tolerance` (0.1: 10 %), which no API exposes. It
    applies to HPAs without a tolerance of their own; changes within it, which they would ignore, are not requested."""


class ResourceMetricsSettings(Section):
    """CPU and memory from metrics.k8s.io."""

    interval_seconds: Seconds = 10
    """How often each namespace with policies is queried."""
    max_age_seconds: Seconds = 90
    """Samples older than this do not count."""
    timeout_seconds: Seconds = 5
    """How long one request may take."""
    max_answer_mib: Mebibytes = Field(default=32, alias="maxAnswerMiB")
    """The largest answer about one namespace, in MiB; a pod takes about 500 bytes. A larger one is an error, and the
    last answer counts until it is too old."""


class AnswersSettings(Section):
    """Answers of all sources together."""

    max_total_mib: Mebibytes = Field(default=128, alias="maxTotalMiB")
    """The undecoded answers of metrics.k8s.io, Prometheus servers and registries that may be in memory at once, in MiB
    after unpacking. Further answers wait, and large answers of one source always wait for each other. No `maxAnswerMiB`
    may be more."""
