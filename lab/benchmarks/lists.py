"""Ways to list 20,000 pods: `python -m lab.benchmarks.lists [--pods 20000] [--rounds 3] [-o FILE]`.

A real kube-apiserver holds the pods, and the adapter's session reads them, undecoded: processor time of the API server
and of this process, bytes on the way, seconds. `resourceVersion=0` is one answer from the API server's cache; a watch
list streams every object as an event.
"""

import argparse
import asyncio
import re
import sys
import time
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

from adapter.kube.api import JSON, PODS
from adapter.kube.session import Session
from lab.benchmarks import record
from lab.benchmarks.processes import cpu_seconds
from lab.benchmarks.stage import Stage

PROTOBUF = "application/vnd.kubernetes.protobuf"
_PATH = PODS.collection("")
_PAGE = "145"
"""Objects of a page of about 1 MB of JSON."""
_WHOLE = 1 << 30
_TOKEN = re.compile(rb"eyJ[A-Za-z0-9_-]{20,}")

Read = Callable[[Session], Awaitable[int]]
"""Reads all pods; returns the bytes."""


def pages(accept: str, *, compressed: bool = False) -> Read:
    async def read(session: Session) -> int:
        size, token = 0, ""
        while True:
            params = {"limit": _PAGE, **({"continue": token} if token else {})}
            body = await session.get(_PATH, params=params, accept=accept, timeout=60, compressed=compressed)
            size += len(body)
            found = _TOKEN.search(body[:1000])
            if found is None:
                return size
            token = found[0].decode()

    return read


def whole(accept: str) -> Read:
    async def read(session: Session) -> int:
        params = {"resourceVersion": "0"}
        return len(await session.get(_PATH, params=params, accept=accept, timeout=120, largest=_WHOLE))

    return read


async def watch_list(session: Session) -> int:
    params = {
        "watch": "true",
        "sendInitialEvents": "true",
        "allowWatchBookmarks": "true",
        "resourceVersionMatch": "NotOlderThan",
        "timeoutSeconds": "60",
    }
    size = 0
    async with session.stream(_PATH, params) as lines:
        async for line in lines:
            size += len(line)
            if b'"k8s.io/initial-events-end"' in line[:2000]:
                break
    return size


WAYS: dict[str, Read] = {
    "JSON in pages": pages(JSON),
    "JSON in pages, gzip": pages(JSON, compressed=True),
    "JSON, resourceVersion=0": whole(JSON),
    "JSON, watch list": watch_list,
    "protobuf in pages": pages(PROTOBUF),
    "protobuf, resourceVersion=0": whole(PROTOBUF),
}


async def sizes(session: Session) -> dict[str, int]:
    """Bytes of one page of JSON, and of the same page as the API server compresses it (gzip at its fastest)."""
    body = await session.get(_PATH, params={"limit": _PAGE}, timeout=60)
    return {"json": len(body), "gzip": len(zlib.compress(body, 1))}


async def measure(stage: Stage, rounds: int) -> dict[str, Any]:
    """The median of each way, in turn."""
    server = stage.cluster.components["kube-apiserver"].pid or 0
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in WAYS}
    kubeconfig = stage.adapter.component.command[stage.adapter.component.command.index("--kubeconfig") + 1]
    async with await Session.open(kubeconfig) as session:
        for _ in range(rounds):
            for name, read in WAYS.items():
                before, own, began = cpu_seconds(server), time.process_time(), time.monotonic()
                size = await read(session)
                seconds, own = time.monotonic() - began, time.process_time() - own
                await asyncio.sleep(0.5)
                served = cpu_seconds(server) - before
                runs[name].append(
                    {"api_server_cpu_seconds": served, "cpu_seconds": own, "bytes": size, "seconds": seconds}
                )
        page = await sizes(session)
    ways = {name: {key: round(median(one[key] for one in done), 3) for key in done[0]} for name, done in runs.items()}
    return {"page_bytes": page, "ways": ways}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.lists", description=__doc__)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3, help="lists of each kind (default: %(default)s)")
    parser.add_argument("-o", "--output", type=Path, help="the file for the figures")
    given = parser.parse_args()
    with Stage(max(1, given.pods // 20), given.pods, 20, sys.executable, print) as stage:
        figures = {"pods": given.pods, **asyncio.run(measure(stage, given.rounds))}
    for name, row in figures["ways"].items():
        print(f"{name:30}", "  ".join(f"{key} {value:g}" for key, value in row.items()))
    if given.output:
        record.write(given.output, figures)


if __name__ == "__main__":
    main()
