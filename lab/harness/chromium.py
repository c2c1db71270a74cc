"""Headless Chromium over its DevTools protocol: opens a page offline and evaluates in it.

What the page logs, throws and requests is kept, so that a test can say that it did none of it.
"""

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"),
    *("--hide-scrollbars", "--force-color-profile=srgb", "--remote-debugging-port=0"),
)
_START_SECONDS = 60.0
_CALL_SECONDS = 30.0
_SCALE = 1.5


def find_chromium() -> str | None:
    """The path of an installed Chromium or Chrome, None without one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass
class Tab:
    """One page. `messages` are console messages and exceptions, `requests` the URLs that it asked for."""

    socket: aiohttp.ClientWebSocketResponse
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    _number: int = 0
    _answers: dict[int, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)
    _loaded: asyncio.Event = field(default_factory=asyncio.Event)

    async def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> Self:
        """Opens a file:// URL with the network cut, and waits until it is loaded and drawn."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        offline = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        await self.call("Network.emulateNetworkConditions", **offline)
        await self.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._loaded.clear()
        await self.call("Page.navigate", url=url)
        async with asyncio.timeout(_CALL_SECONDS):
            await self._loaded.wait()
        await self.drawn()
        return self

    async def resize(self, width: int, height: int) -> None:
        """Sets the size of the viewport in CSS pixels; a narrow one is a phone's."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": _SCALE, "mobile": width < 600}
        await self.call("Emulation.setDeviceMetricsOverride", **metrics)

    async def drawn(self) -> None:
        """Waits for two frames: what the page does at the next frame is then on the screen."""
        await self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    async def evaluate(self, script: str) -> Any:
        """The value of an expression in the page; awaits a promise. Raises RuntimeError if it throws."""
        answer = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Calls a method of the protocol. Raises RuntimeError for its error."""
        self._number += 1
        number = self._number
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self.socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(_CALL_SECONDS):
            answer = await self._answers[number]
        del self._answers[number]
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    async def listen(self) -> None:
        """Receives answers and events until the browser ends."""
        async for message in self.socket:
            event = json.loads(message.data)
            details = event.get("params", {})
            match event.get("method"):
                case None:
                    self._answers[event["id"]].set_result(event)
                case "Page.loadEventFired":
                    self._loaded.set()
                case "Runtime.consoleAPICalled":
                    self.messages.append(f"{details['type']}: {details['args']}")
                case "Runtime.exceptionThrown":
                    self.messages.append(f"exception: {details['exceptionDetails']}")
                case "Log.entryAdded":
                    self.messages.append(f"{details['entry']['level']}: {details['entry']['text']}")
                case "Network.requestWillBeSent":
                    self.requests.append(details["request"]["url"])


@asynccontextmanager
async def chromium_tab(program: str) -> AsyncIterator[Tab]:
    """A running Chromium with an empty profile and one tab; it ends with the block."""
    with tempfile.TemporaryDirectory(prefix="effective-load-chromium-", ignore_cleanup_errors=True) as profile:
        none = asyncio.subprocess.DEVNULL
        arguments = (program, *_FLAGS, f"--user-data-dir={profile}", "about:blank")
        process = await asyncio.create_subprocess_exec(*arguments, stdin=none, stdout=none, stderr=none)
        try:
            port = await _port(process, Path(profile, "DevToolsActivePort"))
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{port}/json/list") as answer,
                session.ws_connect(
                    next(page["webSocketDebuggerUrl"] for page in await answer.json() if page["type"] == "page"),
                    max_msg_size=0,
                ) as socket,
            ):
                tab = Tab(socket)
                listener = asyncio.create_task(tab.listen())
                try:
                    yield tab
                finally:
                    listener.cancel()
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _port(process: asyncio.subprocess.Process, file: Path) -> str:
    """The port of the protocol, which Chromium writes into a file. Raises RuntimeError when it ends before."""
    async with asyncio.timeout(_START_SECONDS):
        while process.returncode is None:
            if port := _first_line(file):
                return port
            await asyncio.sleep(0.05)
    raise RuntimeError(f"Chromium ended with {process.returncode}")


def _first_line(file: Path) -> str:
    return file.read_text().partition("\n")[0] if file.is_file() else ""
