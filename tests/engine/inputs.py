"""Every input there is: how it is broken, and who uses it."""

from collections.abc import Callable
from typing import NamedTuple

from tests.engine.kit import Service, Stand


class Input(NamedTuple):
    """An input, how it is broken, and who uses it."""

    breaks: Callable[[Stand], None]
    used_by: Callable[[Service], bool]
    says: str = ""


def _watch(how: str, what: str) -> Callable[[Stand], None]:
    return lambda stand: stand.cluster.break_watches(getattr(stand.cluster, how), what)


def _prometheus(name: str) -> Callable[[Stand], None]:
    async def broken(*_: object) -> None:
        raise ConnectionResetError

    return lambda stand: setattr(stand.proms[name], "handler", broken)


def _kind(kind: str) -> Callable[[Service], bool]:
    return lambda service: service.kind == kind


def _everybody(_: Service) -> bool:
    return True


INPUTS = {
    "deployments fall silent": Input(_watch("muted", "deployments"), _kind("deployments"), "deployments.apps"),
    "statefulsets are refused": Input(_watch("refused", "statefulsets"), _kind("statefulsets"), "cannot"),
    "widgets are refused": Input(_watch("refused", "widgets"), _kind("widgets"), "let the service account"),
    "widgets are gone": Input(_watch("gone", "widgets"), _kind("widgets"), "serves no"),
    "metrics.k8s.io fails for shop": Input(
        lambda stand: stand.cluster.down.add("shop"), lambda s: s.source == "cpu" and s.namespace == "shop"
    ),
    "Prometheus one is down": Input(_prometheus("one"), lambda s: s.source == "one", "query one"),
    "pods fall silent": Input(_watch("muted", "pods"), _everybody, "the watch of pods"),
    "pods are refused": Input(_watch("refused", "pods"), _everybody, "ClusterRole effective-load-server"),
    "HPAs are refused": Input(_watch("refused", "horizontalpodautoscalers"), _everybody, "cannot"),
    "policies are refused": Input(_watch("refused", "watermarkpolicies"), _everybody, "cannot"),
}
