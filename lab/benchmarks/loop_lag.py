"""How late the event loop is while policies are assessed in a thread beside it.

    python -m lab.benchmarks.loop_lag [--seconds 4] [--rounds 4] [-o FILE]

*1 × 10,000* assesses one policy of 10,000 pods over and over, *300 × 20* takes 300 policies of 20 pods by turns.
*thread*: `assess` in a thread, with the interpreter's switch interval as in the adapter. *idle*: no assessment. (In
`results/loop_lag_tried.json`, *steps* are those of a generator that the worker advanced in slices of 1 ms on the loop.)

*lag* is how late a callback of the loop ran that was due every 5 ms. *request* is a round trip of another process, 100
a second, to a server on this loop, which waits for the interpreter after each of its system calls. Both in
milliseconds. *assessments* are those a second. Rounds alternate, and each figure is that of the best round, since
other programs on the machine only make one worse. Full garbage collections are off, as in the adapter.
"""

import argparse
import asyncio
import contextlib
import gc
import subprocess
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from adapter.assembly import SWITCH_SECONDS
from adapter.load.assess import assess
from adapter.load.assessment import AssessmentInputs
from lab.benchmarks.decide import scene
from lab.benchmarks.record import write

CASES = {"1 × 10,000": (1, 10_000), "300 × 20": (300, 20)}
_PERIOD = 0.005

Assess = Callable[[AssessmentInputs], Awaitable[None]]

_CLIENT = """
import socket, sys, time
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
until, times = time.monotonic() + float(sys.argv[2]), []
while (began := time.monotonic()) < until:
    connection.sendall(b"x")
    connection.recv(1)
    times.append(time.monotonic() - began)
    time.sleep(max(0.0, 0.01 - times[-1]))
print(*times)
"""


def _in_thread() -> Assess:
    threads = ThreadPoolExecutor(1)

    async def assess_one(inputs: AssessmentInputs) -> None:
        await asyncio.get_running_loop().run_in_executor(threads, assess, inputs)

    return assess_one


async def _measure(assess_one: Assess | None, inputs: list[AssessmentInputs], seconds: float) -> dict[str, float]:
    """One round."""
    done = 0
    lags: list[float] = []

    async def work(assess_one: Assess) -> None:
        nonlocal done
        while True:
            await assess_one(inputs[done % len(inputs)])
            done += 1

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    loop = asyncio.get_running_loop()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    working = asyncio.create_task(work(assess_one)) if assess_one else None
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CLIENT, str(port), str(seconds), stdout=subprocess.PIPE
    )
    answered = asyncio.create_task(client.communicate())
    while not answered.done():
        due = loop.time() + _PERIOD
        await asyncio.sleep(_PERIOD)
        lags.append(loop.time() - due)
    if working:
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
    server.close()
    requests = [float(each) for each in (await answered)[0].split()]
    return {
        "lag p50": _percentile(lags, 50),
        "lag p99": _percentile(lags, 99),
        "request p50": _percentile(requests, 50),
        "request p99": _percentile(requests, 99),
        "assessments": done / seconds,
    }


def _percentile(seconds: list[float], percent: int) -> float:
    """In milliseconds."""
    return 1000 * sorted(seconds)[len(seconds) * percent // 100]


def _best(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {key: (max if key == "assessments" else min)(each[key] for each in rounds) for key in rounds[0]}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    gc.set_threshold(700, 10, 1_000_000)
    sys.setswitchinterval(SWITCH_SECONDS)
    figures = {}
    for case, (policies, pods) in CASES.items():
        inputs = []
        for _ in range(policies):
            target = scene("registered", pods)
            target.advance()
            target.assess()
            inputs.append(target.inputs)
        ways = {"idle": None, "thread": _in_thread()}
        rounds: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
        for _ in range(options.rounds):
            for way, assess_one in ways.items():
                rounds[way].append(asyncio.run(_measure(assess_one, inputs, options.seconds)))
        for way, measured in rounds.items():
            figures[f"{case} {way}"] = _best(measured)
            line = "  ".join(f"{key} {value:8.2f}" for key, value in figures[f"{case} {way}"].items())
            print(f"{case:12} {way:8} {line}", flush=True)
    if options.output:
        write(options.output, figures)


if __name__ == "__main__":
    main()
