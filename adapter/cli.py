"""The command line: `effective-load serve | companion | decide | check | hpa | replay | scenarios | migrate`."""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from adapter.migrate import arguments as migrate_arguments
from adapter.replay.arguments import add_arguments
from adapter.runtime.faults import FaultyDocument
from adapter.telemetry.metrics import package_version

OK, FAILED, INVALID, NO_DECISION = 0, 1, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status: 0, 1 (failed), 2 (invalid input) or 3 (`decide`: no decision)."""
    parsed = _parser().parse_args(arguments)
    try:
        status: int = parsed.run(parsed)
        sys.stdout.flush()
    except FaultyDocument as error:
        _print_faults(error)
        return INVALID
    except BrokenPipeError:  # such as of `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the interpreter flushes once more
        return FAILED
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="effective-load", description="Lets the stock HorizontalPodAutoscaler scale on effective load."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {package_version()}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_serve(commands)
    _add_companion(commands)
    _add_decide(commands)
    _add_check(commands)
    _add_hpa(commands)
    _add_replay(commands)
    _add_scenarios(commands)
    _add_migrate(commands)
    return parser


def _add_serve(commands: Any) -> None:
    serve = commands.add_parser("serve", help="serve the metrics API", description="Serve the metrics API.")
    _add_connection(serve)
    serve.set_defaults(run=_serve)


def _add_companion(commands: Any) -> None:
    companion = commands.add_parser(
        "companion",
        help="run the companion",
        description="Run the companion: the leader among its replicas writes the status of the policies, and whatever "
        "else the settings enable.",
    )
    _add_connection(companion)
    companion.set_defaults(run=_companion)


def _add_connection(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--settings", metavar="FILE", help="settings file (YAML); without it every setting is the default"
    )
    command.add_argument(
        "--kubeconfig", metavar="FILE", help="default: in-cluster, else $KUBECONFIG, else ~/.kube/config"
    )


def _add_decide(commands: Any) -> None:
    decide = commands.add_parser(
        "decide",
        help="decide on a file",
        description="Compute the decision of a policy from one document with all its inputs. Exit status: 0 a count "
        "was decided, 3 the decision is an error, 2 the document is invalid.",
    )
    _add_document(decide, _decide)


def _add_hpa(commands: Any) -> None:
    hpa = commands.add_parser(
        "hpa",
        help="play the stock HPA on a file",
        description="Play syncs of the stock HorizontalPodAutoscaler (Kubernetes 1.36) from one document: what each "
        "recommends and sets, and the conditions that it shows. Exit status: 0 played, 2 the document is invalid.",
    )
    _add_document(hpa, _hpa)


def _add_replay(commands: Any) -> None:
    replay = commands.add_parser(
        "replay",
        help="replay a history for a policy and for the stock HPA",
        description="Replay the load of a service in closed loop: what the stock HPA on the raw and on the effective "
        "average, this policy and perhaps another one would have done. Exit status: 0 replayed, 1 no data, 2 the "
        "arguments, files or the history are invalid.",
    )
    add_arguments(replay)
    replay.set_defaults(run=_replay)


def _add_scenarios(commands: Any) -> None:
    scenarios = commands.add_parser(
        "scenarios",
        help="play the shipped scenarios in the model",
        description="Play the shipped scenarios (a spike, a mass pull-out, a registry outage, ...) in the model of a "
        "service with the stock HPA, with it on the effective average, and with policies, and compare them. Exit "
        "status: 0 played, 2 a name is unknown.",
    )
    scenarios.add_argument("names", metavar="NAME", nargs="*", default=[], help="only these; default: all")
    _add_output(scenarios)
    scenarios.set_defaults(run=_scenarios)


def _add_migrate(commands: Any) -> None:
    migrate = commands.add_parser(
        "migrate",
        help="turn another autoscaler's objects into a policy and an HPA",
        description="Turn WatermarkPodAutoscalers, ScaledObjects, and HPAs for kube-metrics-adapter or "
        "prometheus-adapter (with its rules) into WatermarkPolicies and their HPAs, with a sentence on each field that "
        "has no exact equivalent. Exit status: 0 migrated, 2 the input or the arguments are invalid.",
    )
    migrate_arguments.add_arguments(migrate)
    migrate.set_defaults(run=_migrate)


def _add_document(command: argparse.ArgumentParser, run: Callable[[str, bool], int]) -> None:
    """The arguments of a command on one document; `run` gets its text, and whether to print JSON."""
    command.add_argument("file", metavar="FILE", help="YAML or JSON document; - reads standard input")
    _add_output(command)
    command.set_defaults(run=partial(_run_on_document, run))


def _add_output(command: argparse.ArgumentParser) -> None:
    command.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: %(default)s")


def _add_check(commands: Any) -> None:
    check = commands.add_parser(
        "check",
        help="check the connections to service registries, and how policies, pods and HPAs fit together",
        description="Query every server of the settings' registries, and report which steps succeed, which pods match "
        "the answers, and which settings of the policies' HPAs are unwise. Exit status: 0 no fault, 1 a fault, "
        "2 the settings or the arguments are invalid.",
    )
    check.add_argument("--settings", metavar="FILE", required=True, help="settings file (YAML)")
    check.add_argument("--kubeconfig", metavar="FILE", help="as for serve; without a cluster no policy is checked")
    check.add_argument("--registry", metavar="NAME", default="", help="only this registry, with its policies")
    check.add_argument("--service", metavar="NAME", default="", help="only this service, with or without a policy")
    check.add_argument("--namespace", default="", help="of that service, in the registry's sense")
    check.add_argument("--group", default="", help="of that service")
    check.add_argument("--policy", metavar="NAMESPACE/NAME", default="", help="only this policy, its service and pods")
    check.add_argument("-v", "--verbose", action="store_true", help="also report what is in order, a line each")
    _add_output(check)
    check.set_defaults(run=_check)


def _serve(parsed: argparse.Namespace) -> int:
    from adapter.assembly import run_server

    return _run("serve", run_server, parsed)


def _companion(parsed: argparse.Namespace) -> int:
    from adapter.assembly import run_companion

    return _run("run the companion", run_companion, parsed)


def _run(
    action: str, process: Callable[[str | None, str | None], Coroutine[Any, Any, int]], parsed: argparse.Namespace
) -> int:
    from adapter.kube.errors import KubeError

    try:
        return asyncio.run(process(parsed.settings, parsed.kubeconfig))
    except (KubeError, OSError) as error:
        print(f"effective-load cannot {action}: {error}", file=sys.stderr)
        return FAILED


def _migrate(parsed: argparse.Namespace) -> int:
    from adapter.migrate import command
    from adapter.migrate.pair import Style

    texts = [(file, _read(file)) for file in parsed.files]
    if any(text is None for _, text in texts):
        return INVALID
    known = [(file, text) for file, text in texts if text is not None]
    style = Style(low_percent=parsed.watermarks)
    printed = command.run(known, style, parsed.out, json_wanted=parsed.output == "json")
    for line in printed.remarks:
        print(line, file=sys.stderr)
    print(printed.output, end="")
    return OK


def _run_on_document(run: Callable[[str, bool], int], parsed: argparse.Namespace) -> int:
    text = _read(parsed.file)
    return INVALID if text is None else run(text, parsed.output == "json")


def _read(file: str) -> str | None:
    """The text of a file; None, with the reason on standard error, where it cannot be read."""
    try:
        return _text(file)
    except (OSError, ValueError) as error:
        print(f"{file}: cannot be read: {error}", file=sys.stderr)
        return None


def _decide(text: str, as_json: bool) -> int:
    from adapter import document

    decision = document.decision_json(document.read_document(text))
    print(json.dumps(decision, indent=2) if as_json else "\n".join(decision["explanation"]))
    return OK if decision["error"] is None else NO_DECISION


def _hpa(text: str, as_json: bool) -> int:
    from adapter.replay.hpa import document as hpa_document

    document = hpa_document.read(text)
    if as_json:
        steps = [hpa_document.as_data(document, played) for played in hpa_document.play(document)]
        print(json.dumps({"steps": steps}, indent=2))
    else:
        print("\n".join(hpa_document.lines(document)))
    return OK


def _replay(parsed: argparse.Namespace) -> int:
    from adapter.kube.errors import KubeError
    from adapter.replay import command
    from adapter.replay.fleet import command as fleet
    from adapter.replay.history.prometheus import HistoryUnavailable
    from adapter.runtime.signals import Interrupted, ended_by_signals

    run = fleet.run if parsed.all or parsed.merge else command.run
    try:
        with ended_by_signals():
            return run(parsed, print)
    except (HistoryUnavailable, KubeError) as error:
        print(f"effective-load replay: {error}", file=sys.stderr)
    except Interrupted as interrupted:
        kept = f"; the finished parts of the history are in {parsed.cache}" if parsed.cache else ""
        print(f"effective-load replay: interrupted{kept}", file=sys.stderr)
        return interrupted.status
    return FAILED


def _scenarios(parsed: argparse.Namespace) -> int:
    from adapter.replay.scenarios.command import lines

    print("\n".join(lines(parsed.names, as_json=parsed.output == "json")))
    return OK


def _text(file: str) -> str:
    """Read a file or standard input, up to the size of the largest document. Raises DocumentError for a larger one."""
    from adapter import document
    from adapter.runtime import document_text

    with nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as opened:
        content = opened.read(document_text.LARGEST_BYTES + 1)
    if len(content) > document_text.LARGEST_BYTES:
        raise document.DocumentError([document_text.too_large_fault()])
    return content.decode()


def _check(parsed: argparse.Namespace) -> int:
    from adapter.check import command, report
    from adapter.settings import load_settings
    from adapter.telemetry import logs

    logs.configure("error", "console")  # the report has the errors
    wanted = command.Scope(
        registry=parsed.registry,
        service=parsed.service,
        namespace=parsed.namespace,
        group=parsed.group,
        policy=parsed.policy,
    )
    try:
        sections = asyncio.run(command.run_checks(load_settings(parsed.settings), wanted, parsed.kubeconfig))
    except command.ScopeError as error:
        print(f"effective-load check: {error}", file=sys.stderr)
        return INVALID
    if parsed.output == "json":
        print(json.dumps(report.report_data(sections), indent=2))
    else:
        print("\n".join(report.report_lines(sections, verbose=parsed.verbose)))
    return OK if report.all_ok(sections) else FAILED


def _print_faults(error: FaultyDocument) -> None:
    print(f"{error.title or 'invalid input'}:", file=sys.stderr)
    for fault in error.faults:
        print(f"  {fault}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
