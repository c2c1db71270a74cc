"""`effective-load explain`: reads, then draws, prints or saves; with `--watch` again and again."""

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.live import Live

from adapter.commands.explain import reading, sentences
from adapter.commands.explain.page import page
from adapter.commands.explain.reading import Explained, read
from adapter.commands.terminal import output
from adapter.commands.terminal.command import FAILED, INVALID, NO_DECISION, OK
from adapter.commands.terminal.waiting import waiting
from adapter.kube.errors import KubeError
from adapter.kube.session import Session
from adapter.runtime.times import format_time
from adapter.telemetry import logs

WATCH_SECONDS = 2.0
"""Between two readings of `--watch`."""
_TERMINATED = 128 + signal.SIGTERM

Look = Callable[[], Awaitable[Explained]]
Show = Callable[[Explained], None]


def run(parsed: argparse.Namespace) -> int:
    """Run the command. Returns the exit status."""
    logs.configure("error", "console")  # the page has the errors
    if parsed.watch and (parsed.save or parsed.output == "json"):
        output.complain("effective-load explain: --watch shows a page; leave --save and -o json away")
        return INVALID
    try:
        before, slash, after = parsed.policy.partition("/")
        # `watermarkpolicy/checkout` and `wmp/checkout`, as kubectl prints them.
        is_kind = before.partition(".")[0].lower() in {"watermarkpolicy", "watermarkpolicies", "wmp"}
        own = slash and not is_kind
        namespace = before if own else parsed.namespace
        return asyncio.run(_run(parsed, namespace, after if slash else before))
    except KubeError as error:
        for line in reading.of_connection(error):
            output.complain(f"effective-load explain: {line}" if not line.startswith(" ") else line)
        return FAILED
    except KeyboardInterrupt:
        return OK if parsed.watch else 128 + signal.SIGINT


async def _run(parsed: argparse.Namespace, namespace: str, name: str) -> int:
    with waiting("asking the server for its decision"):
        session = await Session.open(parsed.kubeconfig, context=parsed.context)
    async with session:
        namespace = namespace or await session.default_namespace()
        if parsed.watch:
            return await watch(lambda: read(session, namespace, name))
        with waiting("asking the server for its decision"):
            explained = await read(session, namespace, name)
    if parsed.save:
        return _save(parsed.save, explained)
    if parsed.output == "json":
        output.print_json(sentences.data(explained))
    elif sys.stdout.isatty():
        Console().print(page(explained))
    else:
        output.print_lines(map(output.printable, sentences.lines(explained)))
    return status_of(explained)


def status_of(explained: Explained) -> int:
    """The exit status of what was read."""
    if explained.case is None:
        return NO_DECISION if explained.refusal else FAILED
    return OK if explained.served is None or explained.served.error is None else NO_DECISION


def _save(file: str, explained: Explained) -> int:
    if not explained.document:
        for line in explained.trouble:
            output.complain(line)
        return status_of(explained)
    if file == "-":
        output.print_text(explained.document.decode() + "\n")
        return OK
    try:
        Path(file).write_bytes(explained.document + b"\n")
    except OSError as error:
        output.complain(f"{file}: cannot be written: {error.strerror}")
        return FAILED
    output.complain(f"{file} has the decision's inputs: `effective-load decide {file}` decides again")
    return OK


async def watch(look: Look) -> int:
    """Show each change until a signal ends it."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    show = _redrawn if sys.stdout.isatty() else _printed
    with show() as shown:
        while not stopped.is_set():
            shown(await look())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WATCH_SECONDS):
                    await stopped.wait()
    return _TERMINATED


@contextlib.contextmanager
def _redrawn() -> Iterator[Show]:
    """Draws pages over each other on a terminal; the last one stays when it ends."""
    console = Console()
    last: list[Explained] = []
    with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        drawn: tuple[str, ...] = ()

        def show(explained: Explained) -> None:
            nonlocal drawn
            last[:] = [explained]
            if (now := tuple(sentences.lines(explained))) != drawn:
                drawn = now
                live.update(page(explained), refresh=True)

        try:
            yield show
        finally:
            live.stop()
            if last:
                console.print(page(last[0]))


@contextlib.contextmanager
def _printed() -> Iterator[Show]:
    """Prints the sentences again whenever one changed."""
    before: tuple[str, ...] = ()

    def show(explained: Explained) -> None:
        nonlocal before
        now = tuple(  # without what says how old something is, which is always new
            output.printable(line)
            for line in sentences.lines(explained)
            if not (line.startswith("input ") or ": it last scaled " in line)
        )
        if now != before:
            before = now
            output.print_lines([format_time(explained.at), *(f"  {line}" for line in now)])
            sys.stdout.flush()

    yield show
