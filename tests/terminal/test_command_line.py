"""The command line itself: help and examples, wrong commands, closed outputs, waits and Ctrl-C."""

import argparse
import io
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from adapter import cli
from adapter.commands.terminal import output
from lab.harness.objects import kubeconfig

VECTOR = Path(__file__).parents[1] / "vectors" / "08-overloaded-and-out.yaml"
HEAVY = ("aiohttp", "asyncio", "kubernetes", "msgspec", "pydantic", "prometheus_client", "rich", "structlog", "yaml")


def test_bash_completes_a_command() -> None:
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "COMP_LINE": "effective-load expl", "COMP_POINT": "19"}
    read, write = os.pipe()
    script = f"import os; os.dup2({write}, 8); from adapter.cli import main; main([])"
    subprocess.run([sys.executable, "-c", script], env={**os.environ, **asked}, pass_fds=[write], check=False)
    os.close(write)
    with os.fdopen(read) as answer:
        assert answer.read().strip() == "explain"


@pytest.mark.parametrize("arguments", [["--help"], ["explain", "--help"]])
def test_help_needs_none_of_the_heavy_packages(arguments: list[str]) -> None:
    script = (
        "import contextlib, sys\nfrom adapter.cli import main\n"
        f"with contextlib.suppress(SystemExit): main({arguments!r})\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(("output", "status", "said"), [(">/dev/full", 1, "No space left on device"), (">&-", 0, "")])
def test_an_output_that_cannot_be_written_is_one_sentence(output: str, status: int, said: str) -> None:
    command = f"{sys.executable} -m adapter.cli decide {VECTOR} {output}"
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == status
    assert done.stderr.count("\n") == bool(said)
    assert said in done.stderr


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(f"decide {VECTOR}", 0), ("migrate --help", 0), ("decide /dev/null", 2)],
)
@pytest.mark.parametrize("reads", [False, True], ids=["before it writes", "after it wrote"])
def test_a_closed_pipe_ends_a_command_quietly_with_its_own_status(arguments: str, status: int, reads: bool) -> None:
    command = [sys.executable, "-m", "adapter.cli", *arguments.split()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if reads:
            process.stdout.read(1)
        process.stdout.close()
        assert process.stderr is not None
        said = process.stderr.read()
    assert process.returncode == status
    assert "Broken" not in said
    assert "Traceback" not in said


def test_ctrl_c_ends_a_command_without_a_traceback(tmp_path: Path) -> None:
    """Against an API server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = kubeconfig(tmp_path / "kubeconfig", f"http://127.0.0.1:{silent.getsockname()[1]}", b"", "t")
        # A shell's background jobs ignore the signal, and their children do.
        heeding = (
            "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
            "runpy.run_module('adapter.cli', run_name='__main__')"
        )
        command = [sys.executable, "-c", heeding, "check", "--kubeconfig", str(config)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        silent.settimeout(30)
        asked, _ = silent.accept()
        assert asked.recv(1)  # its request; in the moment of the connect asyncio itself may complain of the interrupt
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
        asked.close()
    assert process.returncode == 130
    assert "Traceback" not in said


LINES = [
    pytest.param(part.strip(), id=f"{command.name}: {part.strip()[:60]}")
    for command in cli.COMMANDS
    for example in command.examples
    for part in re.split(r"[|&;]|\$\(|\)\"", example.line)
    if "effective-load" in part
]


@pytest.mark.parametrize("line", LINES)
def test_an_example_is_a_command_line_that_parses(line: str) -> None:
    words = shlex.split(line.partition(" > ")[0].removeprefix("kubectl "))
    assert words[0] == "effective-load"
    assert cli.argument_parser().parse_args(words[1:]).run is not None


def test_arguments_that_do_not_parse_have_the_status_of_invalid_ones(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["decide"], ["explain", "x", "--no-such-option"], ["migrat", "-v"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        assert ended.value.code == cli.INVALID
    said = capsys.readouterr().err
    assert "usage: effective-load" in said
    assert "there is no command 'migrat', did you mean migrate?; there are serve, companion" in said
    assert all(f"\n    {command.name}" in said for command in cli.COMMANDS)


def test_a_terminal_without_a_character_gets_another_one_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", terminal)
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    parser.set_defaults(run=lambda _: output.print_lines(["web \u2192 12"]))
    monkeypatch.setattr(cli, "argument_parser", lambda _: parser)
    cli.main(["check"])
    assert terminal.buffer.getvalue() == b"web ? 12\n"  # type: ignore[attr-defined]
