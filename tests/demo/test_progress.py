"""Progress lines of a long build."""

import threading

from lab.demo.building import Progress, beating


def progress() -> tuple[Progress, list[str], list[float]]:
    lines: list[str] = []
    now = [0.0]
    return Progress(lines.append, clock=lambda: now[0]), lines, now


def test_a_long_build_prints_its_elapsed_time() -> None:
    made, lines, now = progress()
    made.line("building kube-apiserver 1.37.2 once, about 4 minutes; kept in a cache")
    now[0] = 90
    made.beat()
    assert lines[-1] == "  … still building kube-apiserver, 90 s so far"


def test_nothing_is_printed_between_builds() -> None:
    made, lines, _ = progress()
    made.beat()
    made.line("building etcd 3.6.16 once, about half a minute")
    made.line("  built etcd in 30 s, 39 MB")
    made.beat()
    assert len(lines) == 2


def test_each_builds_time_counts_from_its_own_start() -> None:
    made, lines, now = progress()
    made.line("building etcd once")
    now[0] = 40
    made.line("building kwok once")
    now[0] = 70
    made.beat()
    assert lines[-1] == "  … still building kwok, 30 s so far"


def test_beats_run_only_during_the_body() -> None:
    heard = threading.Event()
    made = Progress(lambda text: heard.set() if "still" in text else None)
    made.line("building etcd once")
    with beating(made, every=0.001):
        assert heard.wait(10)
    assert not any(thread.name == "demo-progress" for thread in threading.enumerate())
