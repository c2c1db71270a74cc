"""What one large Prometheus answer costs the process that reads it: run as a program, it prints JSON.

Memory is the process's own peak above what it held before; the longest step of the event loop is counted in calls.
"""

import asyncio
import gc
import json
import multiprocessing
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from aiohttp import web

from adapter.settings import NamedQuery, PrometheusServer
from adapter.telemetry.metrics import Metrics
from adapter.usage.prometheus import Prometheus
from adapter.usage.promql import INPUT_LABEL
from tests.effort import steps

MIB = 1024 * 1024
NOW = 1_767_268_800.0


def answer(size: int) -> bytes:
    """A vector of about `size` bytes: values with the labels that a cAdvisor metric has, and the times of samples."""
    rows, length, number = [], 0, 0
    while length < size:
        labels = {"namespace": f"team-{number % 40}", "pod": f"checkout-{number // 7:06d}-7d9f4c5b6-x{number:06d}"}
        value = {**labels, "container": "app", "node": f"node-{number % 300}"}, f"{number % 977 / 7:.9f}"
        time = {**labels, INPUT_LABEL: "time0"}, str(NOW - 5)
        rows += [
            json.dumps({"metric": row, "value": [NOW, text]}, separators=(",", ":")) for row, text in (value, time)
        ]
        length += len(rows[-1]) + len(rows[-2]) + 2
        number += 1
    return b'{"status":"success","data":{"resultType":"vector","result":[' + ",".join(rows).encode() + b"]}}"


def serve(size: int, port: Connection) -> None:
    body = answer(size)

    async def reply(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    async def main() -> None:
        app = web.Application()
        app.router.add_post("/api/v1/query", reply)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(main())


def rss(what: str = "VmRSS") -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(what)


def forget_peak() -> None:
    """Reset the peak of the memory use."""
    Path("/proc/self/clear_refs").write_text("5")


async def measure(port: int) -> dict[str, object]:
    answered = asyncio.Event()
    server = PrometheusServer(name="main", url=f"http://127.0.0.1:{port}", timeout_seconds=60)
    query = NamedQuery(name="cpu", server="main", query="sum by (namespace, pod) (cpu)", interval_seconds=3600)
    source = Prometheus(
        [server],
        [query],
        inline_allowed=False,
        on_change=lambda _: answered.set(),
        clock=lambda: NOW,
        metrics=Metrics(),
    )
    gc.collect()
    gc.disable()  # as the server has it: collections are made at times of its own
    forget_peak()
    before = rss()
    with steps() as longest:
        task = asyncio.create_task(source.run())
        await answered.wait()
    found = source.named_result("cpu")
    assert found is not None
    after = {
        "peak": rss("VmHWM") - before,
        "kept": rss() - before,
        "calls": longest.calls,
        "error": found.error,
        "series": sum(map(len, found.series.values())),
    }
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return after


def main(size: int) -> None:
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(size, theirs), daemon=True)
    process.start()
    port = ours.recv()
    try:
        print(json.dumps(asyncio.run(measure(port))))
    finally:
        process.kill()
        process.join()


if __name__ == "__main__":
    main(int(float(sys.argv[1]) * MIB))
