"""What both processes have around their engine: settings, session, telemetry and garbage collection.

`server_process` and `companion_process` build and connect their rooms; neither imports the other's.
"""

import asyncio
import sys
from asyncio import sslproto
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from adapter.engine import Engine
from adapter.garbage import collect_garbage
from adapter.kube.session import Session
from adapter.runtime.process import cancel_at_signal, raise_file_limit
from adapter.settings import Settings, SettingsError, SettingsFile, load_settings, needs_restart
from adapter.telemetry import logs
from adapter.telemetry import server as telemetry
from adapter.telemetry.health import Check, Health, Heartbeat
from adapter.telemetry.metrics import Metrics

_log = structlog.get_logger(__name__)

SETTINGS_SECONDS = 5.0
TLS_BYTES = 32 * 1024
"""What asyncio keeps for each TLS connection, and makes anew for each read: two records of TLS. Its default of 256 KiB
stays resident, and with the allocator's threshold of the image each read maps and unmaps it: 40 µs instead of 5."""
SWITCH_SECONDS = 0.001
"""For so long the thread that assesses policies may keep the interpreter from the event loop, which wants it back after
each system call of a request. Python's default is 5 ms."""


class Process:
    """The engine, with the rooms that one command adds to it."""

    def __init__(self, settings: Settings, session: Session, metrics: Metrics) -> None:
        self.engine = Engine(settings, session, metrics)
        self.tasks: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {"engine": self.engine.run}
        """What runs until the process ends, or one of them fails."""
        self.ready: dict[str, Check] = {"watches": self.engine.freshness.unready}
        """The checks of `/readyz`."""
        self.warnings: dict[str, Check] = {"watches": self.engine.freshness.warning, "clock": session.clock_warning}
        """What `/readyz` lists without failing."""

    def apply_settings(self, settings: Settings) -> None:
        """Apply changed settings."""
        self.engine.apply_settings(settings)


async def run(
    new_process: Callable[[Settings, Session, Metrics], Process], settings_path: str | None, kubeconfig: str | None
) -> int:
    """Run a process until SIGTERM or SIGINT. Raises SettingsError for unusable settings."""
    settings = await asyncio.to_thread(load_settings, settings_path) if settings_path else Settings()
    logs.configure(settings.logging.level, settings.logging.format)
    raise_file_limit()
    sys.setswitchinterval(SWITCH_SECONDS)
    sslproto.SSLProtocol.max_size = TLS_BYTES
    main, metrics = asyncio.current_task(), Metrics()
    assert main is not None
    cancel_at_signal(main)
    try:
        async with await Session.open(kubeconfig, metrics=metrics) as session:
            process = new_process(settings, session, metrics)
            heartbeat = Heartbeat()
            health = Health({"ping": lambda: None, "event-loop": heartbeat.check}, process.ready, process.warnings)
            async with (
                telemetry.listen(metrics, health, settings.telemetry.address, settings.telemetry.port) as port,
                asyncio.TaskGroup() as tasks,
            ):
                _log.info("telemetry_server_started", port=port)
                for title, task in {"heartbeat": heartbeat.run, **process.tasks}.items():
                    tasks.create_task(task(), name=title)
                tasks.create_task(collect_garbage(process.engine.assessed), name="garbage")
                if settings_path is not None:
                    following = _follow_settings(process, settings, SettingsFile(settings_path), metrics)
                    tasks.create_task(following, name="settings")
    except asyncio.CancelledError:
        _log.info("process_stopped")
    return 0


async def _follow_settings(process: Process, settings: Settings, file: SettingsFile, metrics: Metrics) -> None:
    """Apply changes of the settings file; an invalid file changes nothing and is logged once."""
    started = settings
    while True:
        try:
            latest = await asyncio.to_thread(file.changed)
        except SettingsError as error:
            metrics.settings_reloads.labels(result="refused").inc()
            metrics.settings_accepted.set(0)
            _log.warning("settings_file_rejected", error=str(error))
            latest = None
        if latest is not None:
            metrics.settings_accepted.set(1)
        if latest is not None and latest != settings:
            if keys := needs_restart(started, latest):
                _log.warning("settings_need_restart", keys=list(keys))
            logs.configure(latest.logging.level, latest.logging.format)
            process.apply_settings(latest)
            settings = latest
            metrics.settings_reloads.labels(result="taken").inc()
            _log.info("settings_file_applied")
        await asyncio.sleep(SETTINGS_SECONDS)
