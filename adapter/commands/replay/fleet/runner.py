"""Replays many services on all cores; one that fails is a row with its error."""

import argparse
import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from adapter.commands.replay.command import comparison_of, further_metrics, service_of, target_of
from adapter.commands.replay.comparison import SUBJECT, aimed_fairly, probed, replay
from adapter.commands.replay.fleet.services import Figures, FleetService, ServiceRow
from adapter.commands.replay.history.prometheus import PrometheusSource
from adapter.commands.replay.manifests import Manifests
from adapter.commands.replay.report import cost
from adapter.commands.replay.service import open_spool, spooled
from adapter.load.spec import Policy

_DIED = "the process that replayed it ended (out of memory?)"


@dataclass(frozen=True, slots=True)
class Task:
    """A service, what the arguments say, and where its history is; it is sent to other processes."""

    service: FleetService
    arguments: argparse.Namespace
    source: PrometheusSource


def replay_one(task: Task) -> ServiceRow:
    """The row of a service. Never raises: an error is a row too."""
    if task.service.policy is None:
        return _failed(task, task.service.fault)
    try:
        return _replay(task, task.service.policy)
    except Exception as error:  # noqa: BLE001  whatever it is, the other services go on
        return _failed(task, str(error) or type(error).__name__)


def _failed(task: Task, error: str) -> ServiceRow:
    return ServiceRow(namespace=task.service.namespace, name=task.service.name, error=error)


def _replay(task: Task, policy: Policy) -> ServiceRow:
    manifests = Manifests(workloads=() if task.service.workload is None else (task.service.workload,))
    service = service_of(task.arguments, manifests, policy, task.service.hpa)
    history = task.source.history(policy, target_of(service), further_metrics(service), is_one=False)
    # The arguments are for many services: load that this one's history has not would have no shortfall.
    capacity = {name: most for name, most in service.setup.capacity.items() if name in history.queries.loads}
    service = replace(service, totals=history.queries.totals, setup=replace(service.setup, capacity=capacity))
    first, ticks = probed(history)
    if not first:
        raise ValueError("the history has no data for that time")
    with tempfile.TemporaryDirectory(prefix="effective-load-") as folder:
        spool = Path(folder) / "ticks"
        result = replay(comparison_of(service, first), spooled(ticks, spool))
        result = aimed_fairly(result, partial(open_spool, spool))
    stock, ours = (
        Figures(
            pod_hours=round(summary.pod_hours, 3),
            over_high=summary.over_high,
            shortfall=summary.shortfall,
            cost=None if service.price is None else round(cost(summary, service.price), 4),
        )
        for summary in (result.runs[0].summary, result.runs[SUBJECT].summary)
    )
    return ServiceRow(namespace=policy.namespace, name=policy.name, figures=(stock, ours))


def run_tasks(tasks: Sequence[Task], play_one: Callable[[Task], ServiceRow] = replay_one) -> Iterator[ServiceRow]:
    """The rows of all services, as they are done. A process that dies costs only the service that it replayed."""
    workers = min(len(os.sched_getaffinity(0)), max(len(tasks), 1))
    left = dict(enumerate(tasks))
    yield from _pooled(left, workers, play_one)

    def alone(task: Task) -> ServiceRow:
        return next(_pooled({0: task}, 1, play_one), _failed(task, _DIED))

    if left:  # a process died, and nobody knows with which service: from now on each has a process of its own
        with ThreadPoolExecutor(workers) as threads, _ended_by_signals():
            yield from threads.map(alone, left.values())


def _pooled(tasks: dict[int, Task], workers: int, play_one: Callable[[Task], ServiceRow]) -> Iterator[ServiceRow]:
    """The rows of tasks in a pool of processes, until one of these dies; tasks that are done leave the mapping."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # imported once, not in every process
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_live_with_parent) as pool, _ended_by_signals():
        futures = {pool.submit(play_one, task): number for number, task in tasks.items()}
        try:
            for future in as_completed(futures):
                row = future.result()
                del tasks[futures[future]]
                yield row
        except BrokenProcessPool:
            return


def _live_with_parent() -> None:
    """In a new process of a pool: leave Ctrl-C, which a terminal sends to all, to the parent; end when that does.

    A killed parent tells nobody: without this its pool would wait for work for ever.
    """

    def end_with_parent() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Ends the processes where a signal ends the run: nobody wants to wait for what they are at."""
    try:
        yield
    except KeyboardInterrupt:
        for process in multiprocessing.active_children():
            process.terminate()
        raise
