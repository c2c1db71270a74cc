"""Against a real server that speaks Nacos (Polaris: the HTTP API of Nacos 1)."""

from pathlib import Path
from typing import Any

import pytest

from adapter.settings.registries import NacosRegistry
from lab.harness.registries.polaris import Polaris
from tests.registries.nacos_kit import following
from tests.registries.polaris_kit import Registrations

pytestmark = [pytest.mark.integration, pytest.mark.builds("polaris")]


def settings(polaris: Polaris, **more: Any) -> NacosRegistry:
    return NacosRegistry(name="nacos", type="Nacos", servers=(polaris.nacos,), interval_seconds=1, **more)


async def test_missed_beats_make_a_pod_unhealthy(polaris: Polaris) -> None:
    pods = Registrations(polaris, "shop")
    pods.register(1, 2, 3)
    pods.register(0, enableHealthCheck=True, healthCheck={"type": 1, "heartbeat": {"ttl": 1}})
    async with following(settings(polaris)) as followed:
        await followed.until_out("web-0")


async def test_a_login_that_the_server_lacks_is_reported(polaris: Polaris, tmp_path: Path) -> None:
    """Polaris lets everybody read, and has no login below Nacos' context path."""
    (tmp_path / "password").write_text("wrong")
    access = {"username": "nacos", "password_file": str(tmp_path / "password")}
    async with following(settings(polaris, **access)) as followed:
        await followed.until_error("or leave `username` empty")
        assert followed.listed == -1
