"""`python -m lab.demo`: tells the story in the model, plays it on a real control plane, and compares both."""

import argparse
import contextlib
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

import yaml

from lab.demo.building import Progress, beating, building
from lab.demo.curve import FULL, QUICK, Curve
from lab.demo.model import ModelStage
from lab.demo.objects import OURS, PULLED_OUT, USAGE
from lab.demo.observe import DemoError
from lab.demo.picture import draw, picture
from lab.demo.play import LEVELS, Player
from lab.demo.stage import Built, Place, Stage, given_place, own_place, staged
from lab.demo.story import Narrator, Style, agree, closing, comparison, tidy
from lab.demo.timeline import Timeline, dump, load
from lab.harness import binaries
from lab.harness.binaries import BuildError
from lab.harness.client import ApiError
from lab.harness.processes import ComponentError

ROOT = Path(__file__).resolve().parents[2]
_SLOWER = 2.5
"""Slow-down in a given cluster, whose HPA and metrics-server have intervals of 15 s."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 after a complete story, 1 after an error or other counts than the model's, 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        if options.redraw:
            _redraw(options.redraw, options.out)
        else:
            return _demo(options)
    except KeyboardInterrupt:
        _announce("\nstopped; the demo has removed everything it started")
        return 130
    except (DemoError, ApiError, TimeoutError, OSError) as error:
        _announce(f"demo: {_one_sentence(error)}")
        return 1
    except (BuildError, ComponentError) as error:
        _announce(f"demo: {_one_sentence(error)}; the full message is in {_kept(options.out, str(error))}")
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lab.demo",
        description="The stock HPA on effective load beside a stock CPU HPA: a rise, two pods pulled out, a fall."
        " Told in a model at once, then played on a real control plane within 4 minutes, and compared; the first run"
        " builds the control plane, 8 to 15 minutes on 2 cores.",
    )
    parser.add_argument("--keep", action="store_true", help="keep the cluster after the story, to explore it")
    parser.add_argument("--quick", action="store_true", help="a shorter curve: one rise and the pull-out")
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="play in this cluster instead of a local one; it needs the adapter, metrics-server and KWOK nodes",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", default=ROOT / "demo-out", help="folder for the results")
    parser.add_argument(
        "--redraw", type=Path, metavar="FILE", help="only draw the pictures of this timeline.json again"
    )
    return parser


def _demo(options: argparse.Namespace) -> int:
    curve = QUICK if options.quick else FULL
    if options.kubeconfig is not None:
        curve = curve.stretched(_SLOWER)
        _announce(f"playing in the given cluster at the pace of its HPA, about {curve.end / 60:.0f} minutes")
        run(given_place(options.kubeconfig), curve, options.out, keep=options.keep)
        return 0
    with _built(keep=options.keep) as built:
        model = tell(curve, options.out)
        _print(["", "Now the same story on a real control plane:", ""])
        player = run(own_place(_announce, built), curve, options.out, keep=options.keep, model=model)
    return 0 if agree(model, player.timeline) else 1


def tell(curve: Curve, out: Path) -> Timeline:
    """Tells and draws the story in the model, where nothing is started and no time passes."""
    began = time.monotonic()
    stage = ModelStage()
    player = Player(stage, curve, Narrator(LEVELS, _style()), _print, clock=stage.clock, sleep=stage.sleep)
    _print(["The story in a model of metrics-server, the adapter and the HPA controller:", ""])
    _print(player.narrator.opening())
    timeline = player.play()
    _print(["", *closing(timeline), ""])
    out.mkdir(parents=True, exist_ok=True)
    draw(picture(timeline), out / "model.svg", out / "model.png")
    _announce(f"picture: {_shown(out / 'model.png')} and .svg; told and drawn in {time.monotonic() - began:.0f} s")
    return timeline


def run(
    place: contextlib.AbstractContextManager[Place],
    curve: Curve,
    out: Path,
    *,
    keep: bool = False,
    model: Timeline | None = None,
) -> Player:
    """Plays a curve in a cluster, narrates it on the terminal, and writes pictures and decisions to `out`.

    Compares it with the timeline of the model at the end, where there is one.
    """
    began = time.monotonic()
    with place as cluster, staged(cluster, _announce) as stage:
        stage.set_up(curve.demand(0), _announce)
        if keep:
            _announce("to look on from another terminal:")
            _announce(f"  export KUBECONFIG={cluster.kubeconfig}")
            _announce(f"  {_explain(stage.namespace)} --watch")
        player = Player(stage, curve, Narrator(LEVELS, _style()), _print)
        _print(["", *player.narrator.opening()])
        timeline = player.play()
        _print(["", *closing(timeline), ""])
        leave(player, out)
        if model is not None:
            _print(comparison(model, timeline))
        _announce(f"finished in {time.monotonic() - began:.0f} s")
        if keep:
            _stay(cluster, stage)
    return player


@contextlib.contextmanager
def _built(*, keep: bool) -> Iterator[Built]:
    """Builds missing programs while the body runs; the body waits for some of them, or all, with what it is given."""
    wanted = [*binaries.CONTROL_PLANE, *(["kubectl"] if keep and not shutil.which("kubectl") else [])]
    if not binaries.missing(wanted):
        yield lambda *_: None
        return
    progress, told = Progress(_announce), False
    with building(wanted) as build:

        def wait(*names: str) -> None:
            nonlocal told
            if not told:
                _announce(
                    "The same programs as in any cluster are being built from their Go modules, once, and kept in a"
                )
                _announce("cache: the next run starts in seconds. Each is started as soon as it is built.")
            told = True
            with beating(progress):
                build.wait(*names, announce=progress.line)

        yield wait


def leave(player: Player, out: Path) -> None:
    """Writes the results: the pictures, the timeline, and a document for each decision."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "timeline.json").write_text(dump(player.timeline))
    draw(picture(player.timeline), out / "demo.svg", out / "demo.png")
    for old in out.glob("decision-*.yaml"):
        old.unlink()
    for number, (rescale, reason) in enumerate(player.kept, 1):
        header = "".join(f"# {tidy(sentence)}\n" for sentence in reason.sentences)
        text = yaml.safe_dump(reason.document, sort_keys=False, width=120)
        path = out / f"decision-{number}-from-{rescale.before}-to-{rescale.after}.yaml"
        path.write_text(f"{header}# effective-load decide {path.name} -o text\n{text}")
    _announce(f"picture: {_shown(out / 'demo.png')} and .svg; decisions, as input of `effective-load decide`:")
    _announce(f"  {_shown(out)}/decision-*.yaml")


def _stay(place: Place, stage: Stage) -> None:
    """Prints commands to try, and waits until Ctrl-C."""
    kubectl = "kubectl" if shutil.which("kubectl") else str(binaries.path_of("kubectl"))
    _print(hints(place, stage.namespace, stage.reader.figure_path("desired_replicas"), kubectl))
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            signal.pause()


def hints(place: Place, namespace: str, figure: str, kubectl: str) -> list[str]:
    """Commands to try by hand while the cluster stays."""
    there = f"{kubectl} -n {namespace}"
    return [
        "",
        "The cluster stays until Ctrl-C. In another terminal:",
        "",
        f"  export KUBECONFIG={place.kubeconfig}",
        f"  {_explain(namespace)}",
        f"  {there} get hpa,wmp,deploy,pods",
        f"  {there} describe hpa {OURS}",
        "",
        "the HPA's request; other metrics: effective_cpu, raw_cpu, effective_pods, pulled_out_pods",
        f"  {kubectl} get --raw {figure}",
        "",
        "put the pulled-out pods back, then raise the pods' load, and watch the HPA act",
        f"  {there} annotate pods -l app={OURS} {PULLED_OUT}-",
        f"  {there} annotate pods -l app={OURS} --overwrite {USAGE}=1500m",
        *(["", "the adapter's log", f"  less {place.kubeconfig.parent / 'adapter.log'}"] if place.own else []),
        "",
    ]


def _explain(namespace: str) -> str:
    return f".venv/bin/effective-load explain {OURS} -n {namespace}"


def _redraw(source: Path, out: Path) -> None:
    try:
        picture_data = picture(load(source.read_text()))
    except ValueError as error:
        raise DemoError(f"{source} cannot be drawn: {error}") from error
    draw(picture_data, out / "demo.svg", out / "demo.png")
    _announce(f"drawn: {_shown(out / 'demo.svg')} and .png")


def _kept(out: Path, text: str) -> str:
    out.mkdir(parents=True, exist_ok=True)
    (out / "failure.log").write_text(text + "\n")
    return _shown(out / "failure.log")


def _one_sentence(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(":.")


def _shown(path: Path) -> str:
    """A path relative to the current folder where possible."""
    with contextlib.suppress(ValueError):
        return str(path.resolve().relative_to(Path.cwd()))
    return str(path)


def _style() -> Style:
    import os

    return Style(colour=sys.stdout.isatty() and "NO_COLOR" not in os.environ)


def _print(lines: Sequence[str]) -> None:
    for line in lines:
        print(line, flush=True)


def _announce(line: str) -> None:
    print(line, flush=True)
