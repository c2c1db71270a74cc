"""What the times and numbers of samples cost a real Prometheus: `python -m lab.benchmarks.windows`.

300 policies of 20 pods ask each for a rate of their own, and one query asks for that of 20,000 series, each every 15 s;
Prometheus scrapes these 26,000 series every 15 s. Its processor time with that is measured in turns: the questions as
they are sent, and the values alone.
"""

import asyncio
import random
import time
from typing import Any

import aiohttp

from adapter.usage.promql import parse_inputs, question
from lab.benchmarks import record
from lab.benchmarks.processes import cpu_seconds
from lab.harness.prometheus import Exporter, Prometheus

POLICIES, PODS, SERIES = 300, 20, 20_000
_INTERVAL = 15.0
_LABELS = ("namespace", "pod")
_WARM_UP_SECONDS = 75.0


def page() -> str:
    """Counters of every pod, which grow with the time."""
    count = int(time.time() * 50)
    small = (
        f'requests_total{{namespace="ns{n % 30}",pod="app{n}-{pod}"}} {count}\n'
        for n in range(POLICIES)
        for pod in range(PODS)
    )
    large = (f'all_total{{namespace="ns{n % 40}",pod="all-{n}"}} {count}\n' for n in range(SERIES))
    return "".join((*small, *large))


def expressions() -> list[str]:
    """The expressions of all policies, and the large one."""
    selectors = [f'requests_total{{namespace="ns{n % 30}",pod=~"app{n}-.*"}}' for n in range(POLICIES)]
    return [f"sum by (namespace, pod) (rate({selector}[1m]))" for selector in (*selectors, "all_total")]


async def ask(url: str, texts: list[str], seconds: float) -> None:
    """Sends each question once in an interval, at times of its own."""

    async def at_its_time(session: aiohttp.ClientSession, text: str) -> None:
        await asyncio.sleep(random.uniform(0, _INTERVAL - 2))
        form = {"query": text, "lookback_delta": "90", "timeout": "60"}
        async with session.post(f"{url}/api/v1/query", data=form) as answer:
            answer.raise_for_status()
            await answer.read()

    async with aiohttp.ClientSession() as session:
        for _ in range(round(seconds / _INTERVAL)):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(asyncio.sleep(_INTERVAL))
                for text in texts:
                    tasks.create_task(at_its_time(session, text))


def measure(seconds: float, rounds: int) -> dict[str, Any]:
    """The share of a processor that Prometheus takes, by what it is asked for."""
    asked = {
        "scrapes alone": [],
        "values": expressions(),
        "values, times and numbers of samples": [question(text, parse_inputs(text), _LABELS) for text in expressions()],
    }
    spent = dict.fromkeys(asked, 0.0)
    with Exporter() as exporter:
        exporter.set_page(page)
        with Prometheus([exporter], interval="15s") as prometheus:
            time.sleep(_WARM_UP_SECONDS)
            pid = prometheus.component.pid or 0
            for _ in range(rounds):
                for name, texts in asked.items():
                    before = cpu_seconds(pid)
                    asyncio.run(ask(prometheus.url, texts, seconds))
                    spent[name] += cpu_seconds(pid) - before
    return {name: round(cpu / (seconds * rounds), 4) for name, cpu in spent.items()}


def main() -> None:
    parser = record.argument_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="of each turn (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each (default: %(default)s)")
    given = parser.parse_args()
    record.write(given.output, {"cpu_share": measure(given.seconds, given.rounds)})


if __name__ == "__main__":
    main()
