"""The figures of the serving benchmark as one page of text."""

from typing import Any

Figures = dict[str, Any]

AIMS = {"ratio": 0.7, "p99_ms": 5.0, "mib": 150.0, "seconds": 3.0}


def text(figures: Figures) -> str:
    parts = (_head(figures), _start(figures), _capacity(figures), _latency(figures), _relists(figures), _aims(figures))
    return "\n\n".join(parts) + "\n"


def _head(figures: Figures) -> str:
    machine, scene = figures["machine"], figures["scene"]
    return (
        f"{scene['policies']:,} policies, {scene['pods']:,} pods, {scene['namespaces']} namespaces; "
        f"{machine['processors']} processors ({machine['architecture']}) for everything, Python {machine['python']}"
    )


def _start(figures: Figures) -> str:
    start, rest, memory = figures["start"], figures["rest"], figures["memory"]
    runs = ", ".join(f"{seconds:.2f}" for seconds in start["seconds"])
    return (
        f"start to first correct answer   {start['median_seconds']:.2f} s ({runs}), "
        f"{start['cpu_seconds']:.2f} s of processor time\n"
        f"memory (RSS) at rest            {rest['now']:.0f} MiB; at the end {memory['now']:.0f}, "
        f"at most {memory['peak']:.0f} MiB\n"
        f"processor used at rest          {100 * rest['cpu_share']:.0f} %"
    )


def _capacity(figures: Figures) -> str:
    lines = ["as fast as answered, 8 connections      req/s   req/CPU-s   of constant   net of rest   p50 ms   p99 ms"]
    for name, one in figures["capacity"].items():
        lines.append(
            f"{name:36}{one['per_second']:9,.0f}{one['per_cpu_second']:12,.0f}{one['ratio']:14.2f}"
            f"{one['net_ratio']:14.2f}{one['p50_ms']:9.2f}{one['p99_ms']:9.2f}"
        )
    return "\n".join(lines)


def _latency(figures: Figures) -> str:
    lines = ["at an even rate, at rest                req/s    requests      p50 ms   p99 ms   max ms"]
    lines += [_row(name, one) for name, one in figures["latency"].items()]
    return "\n".join(lines)


def _relists(figures: Figures) -> str:
    head = "during a full relist                    req/s    requests      p50 ms   p99 ms   max ms"
    head += "   relist s    CPU s   refused"
    rows = [
        f"{_row(name, one)}{one['relist_seconds']:11.1f}{one['relist_cpu_seconds']:9.1f}{one['refused']:10}"
        for name, one in figures["relist"].items()
    ]
    return "\n".join([head, *rows])


def _row(name: str, one: Figures) -> str:
    latencies = f"{one['p50_ms']:12.2f}{one['p99_ms']:9.2f}{one['max_ms']:9.1f}"
    return f"{name:36}{one['rate']:9,.0f}{one['requests']:12,}{latencies}"


def _aims(figures: Figures) -> str:
    read_only = figures["capacity"]["effective_cpu"]
    relists = [one["p99_ms"] for name, one in figures["relist"].items() if name.startswith("effective_cpu")]
    rows = (
        ("read-only, requests per CPU-second of the constant server's", read_only["ratio"], AIMS["ratio"], True),
        ("read-only, p99 during a relist, ms", max(relists), AIMS["p99_ms"], False),
        ("memory at most, MiB", figures["memory"]["peak"], AIMS["mib"], False),
        ("start to first correct answer, s", figures["start"]["median_seconds"], AIMS["seconds"], False),
    )
    return "\n".join(_aim(*row) for row in rows)


def _aim(what: str, value: float, aim: float, at_least: bool) -> str:
    met = value >= aim if at_least else value <= aim
    sign = "≥" if at_least else "≤"
    return f"{'met   ' if met else 'missed'}  {what}: {value:g} (aim {sign} {aim:g})"
