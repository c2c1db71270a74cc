"""The cluster, metrics.k8s.io and the limits of all answers, in the settings.

The docstring under a field is its documentation; `docs/configuration.md` is made from them. Times are seconds.
"""

from typing import Annotated

from pydantic import Field

from adapter.settings.base import Mebibytes, Seconds, Section


class Kubernetes(Section):
    """Which part of the cluster is watched, and what its API does not tell."""

    namespaces: tuple[str, ...] = ()
    """Namespaces to watch; empty: all of them."""
    hpa_tolerance: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.1
    """The kube-controller-manager's `--horizontal-pod-autoscaler-tolerance` (0.1: 10 %), which no API tells. It holds
    for HPAs that set no tolerance of their own; what they would swallow is not asked of them."""


class ResourceMetricsSettings(Section):
    """CPU and memory from metrics.k8s.io."""

    interval_seconds: Seconds = 10
    """How often each namespace with policies is asked."""
    max_age_seconds: Seconds = 90
    """A sample older than this is no sample."""
    timeout_seconds: Seconds = 5
    """How long one request may take."""
    max_answer_mib: Mebibytes = Field(default=32, alias="maxAnswerMiB")
    """How large the answer about one namespace may be, in MiB; a pod takes about 500 bytes. A larger one is an error,
    and the last answer counts until it is too old."""


class AnswersSettings(Section):
    """Answers of all sources together."""

    max_total_mib: Mebibytes = Field(default=128, alias="maxTotalMiB")
    """How much of what metrics.k8s.io, Prometheus servers and registries answer may be in memory before it is decoded,
    in MiB after unpacking. Answers wait for one another, the large ones of one source always. No `maxAnswerMiB` may be
    more."""
