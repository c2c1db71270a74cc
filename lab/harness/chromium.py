"""Headless Chromium over its DevTools protocol: opens a page offline, evaluates in it, and takes pictures.

What the page logs, throws and requests is kept, so that a test can say that it did none of it.
"""

import asyncio
import base64
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-port=0",
)
_START_SECONDS = 60.0
_CALL_SECONDS = 30.0
_MARGIN = 24
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

    async def picture(self, first: str = "body", last: str = "body") -> bytes:
        """A PNG of the page in its full width, from the top of one element to the bottom of another (selectors)."""
        top = await self.evaluate(f"document.querySelector({json.dumps(first)}).getBoundingClientRect().top + scrollY")
        bottom = await self.evaluate(
            f"document.querySelector({json.dumps(last)}).getBoundingClientRect().bottom + scrollY"
        )
        width = await self.evaluate("document.documentElement.clientWidth")
        top = max(0, top - _MARGIN)
        clip = {"x": 0, "y": top, "width": width, "height": bottom + _MARGIN - top, "scale": 1}
        answer = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(answer["data"])

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
            if "id" in event:
                self._answers[event["id"]].set_result(event)
            else:
                self._note(event["method"], event["params"])

    def _note(self, method: str, details: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Runtime.consoleAPICalled":
            self.messages.append(f"{details['type']}: {details['args']}")
        elif method == "Runtime.exceptionThrown":
            self.messages.append(f"exception: {details['exceptionDetails']}")
        elif method == "Log.entryAdded":
            self.messages.append(f"{details['entry']['level']}: {details['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(details["request"]["url"])


@asynccontextmanager
async def chromium_tab(program: str) -> AsyncIterator[Tab]:
    """A running Chromium with an empty profile and one tab; it ends with the block."""
    with tempfile.TemporaryDirectory(prefix="effective-load-chromium-", ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            program,
            *_FLAGS,
            f"--user-data-dir={profile}",
            "about:blank",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(_START_SECONDS):
                port = await _port(process)
            draining = asyncio.create_task(_drain(process))
            async with (
                aiohttp.ClientSession() as session,
                session.ws_connect(await _tab_url(session, port), max_msg_size=0) as socket,
            ):
                tab = Tab(socket)
                listener = asyncio.create_task(tab.listen())
                try:
                    yield tab
                finally:
                    listener.cancel()
                    draining.cancel()
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _port(process: asyncio.subprocess.Process) -> int:
    """The port of the protocol, which Chromium prints. Raises RuntimeError when it ends before."""
    assert process.stderr is not None
    printed = []
    async for line in process.stderr:
        text = line.decode(errors="replace")
        printed.append(text)
        if "DevTools listening on ws://" in text:
            return int(text.split("ws://")[1].split(":")[1].split("/")[0])
    raise RuntimeError(f"Chromium did not start: {''.join(printed[-5:])}")


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Reads what Chromium prints, so that it never waits for a reader."""
    assert process.stderr is not None
    while await process.stderr.read(65_536):
        pass


async def _tab_url(session: aiohttp.ClientSession, port: int) -> str:
    async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
        tabs = await answer.json()
    url: str = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
    return url
