"""What happens in the long run: a cycle of disturbances, one after the other, most of them those of `faults`."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from lab.endurance.scene import LongScene
from lab.faults.scenarios import SCENARIOS

_FAULTS = {one.name: one for one in SCENARIOS}


@dataclass(frozen=True)
class Disturbance:
    """Something that begins on entry, lasts `hold` seconds, and ends on exit."""

    name: str
    begun: Callable[[LongScene], AbstractContextManager[None]]
    hold: float = 5.0


def _fault(name: str, hold: float | None = None) -> Disturbance:
    one = _FAULTS[name]
    return Disturbance(name, one.broken, one.hold if hold is None else hold)


def _once(act: Callable[[LongScene], object]) -> Callable[[LongScene], AbstractContextManager[None]]:
    """Something that happens at once and stays."""

    @contextmanager
    def begun(scene: LongScene) -> Iterator[None]:
        act(scene)
        yield

    return begun


@contextmanager
def _pods_pulled_out(scene: LongScene) -> Iterator[None]:
    scene.pull_out()
    try:
        yield
    finally:
        scene.take_back()


@contextmanager
def _guest(scene: LongScene) -> Iterator[None]:
    name = scene.invite()
    try:
        yield
    finally:
        scene.dismiss(name)


def _rollout(scene: LongScene) -> None:
    for name in list(scene.services)[::4]:
        scene.workloads.rollout(name)


_TOKENS = Disturbance("tokens-renewed", _once(LongScene.renew_tokens), 0)
CYCLE = (
    _TOKENS,
    _fault("connections-cut"),
    Disturbance("guest-service", _guest, 20),
    _fault("prometheus-gone"),
    Disturbance("pods-pulled-out", _pods_pulled_out, 20),
    _fault("certificate-rotated", 0),
    _TOKENS,
    _fault("api-server-restarted", 2),
    Disturbance("registry-token-renewed", _once(LongScene.renew_registry_token), 0),
    _fault("consul-restarted"),
    _fault("metrics-server-gone"),
    Disturbance("rollout", _once(_rollout), 10),
    _TOKENS,
    _fault("front-proxy-rotated"),
    _fault("connections-cut"),
    _fault("leader-frozen"),
    Disturbance("guest-service", _guest, 20),
    _fault("requests-delayed"),
    _fault("settings-broken"),
    _fault("prometheus-frozen"),
    _fault("etcd-paused", 5),
)
"""One begins every 25 s or so. Tokens live ten minutes and are read every five: three times a cycle is often enough."""


def disturb(scene: LongScene, one: Disturbance) -> str:
    """Plays one; what went wrong in words, or nothing."""
    try:
        with one.begun(scene):
            time.sleep(one.hold)
    except Exception as error:  # noqa: BLE001 - the run goes on, and its record says so
        return f"{type(error).__name__}: {error}"[:300]
    return ""
