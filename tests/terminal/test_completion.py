"""Tab completion as shells and kubectl ask for it, and how soon the command line answers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from adapter import cli
from adapter.commands.terminal.completion import SHELLS

HEAVY = ("aiohttp", "asyncio", "kubernetes", "msgspec", "pydantic", "prometheus_client", "rich", "structlog", "yaml")


def completed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> list[str]:
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-effective_load", *words])
    assert cli.plugin_completion() == cli.OK
    return capsys.readouterr().out.splitlines()


def test_kubectl_gets_commands_with_their_descriptions_options_and_choices(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = completed(capsys, monkeypatch, "")
    assert "explain\texplain the decision of a policy in a cluster" in lines
    assert lines[-1] == ":4"
    assert completed(capsys, monkeypatch, "expl")[0].startswith("explain\t")
    assert any(line.startswith("--watch\t") for line in completed(capsys, monkeypatch, "explain", "--w"))
    choices = completed(capsys, monkeypatch, "explain", "checkout", "-o", "")
    assert {line.partition("\t")[0] for line in choices[:-1]} == {"text", "json"}


def test_policies_are_completed_by_the_other_arguments_and_a_failure_completes_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str | None, str, str]] = []

    def policies(*where: str) -> list[str]:
        asked.append(where)
        return ["checkout", "cart", "web"]

    monkeypatch.setattr("adapter.commands.explain.policies", policies)
    lines = completed(capsys, monkeypatch, "explain", "-n", "shop", "c")
    assert [line.partition("\t")[0] for line in lines[:-1]] == ["checkout", "cart"]
    assert asked == [(None, "", "shop")]
    monkeypatch.setattr("adapter.commands.explain.policies", lambda *_: 1 / 0)
    assert completed(capsys, monkeypatch, "explain", "c") == [":0"]


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_its_script_and_kubectl_its_programs(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == cli.OK
    assert "effective-load" in capsys.readouterr().out
    for program in ("kubectl-effective_load", "kubectl_complete-effective_load"):
        assert (Path(sys.executable).parent / program).exists()


def test_bash_completes_a_command() -> None:
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "COMP_LINE": "effective-load expl", "COMP_POINT": "19"}
    read, write = os.pipe()
    script = f"import os; os.dup2({write}, 8); from adapter.cli import main; main([])"
    subprocess.run([sys.executable, "-c", script], env={**os.environ, **asked}, pass_fds=[write], check=False)
    os.close(write)
    with os.fdopen(read) as answer:
        assert answer.read().strip() == "explain"


@pytest.mark.parametrize("arguments", [["--help"], ["explain", "--help"], ["--version"]])
def test_help_needs_none_of_the_heavy_packages(arguments: list[str]) -> None:
    """Measured: half of the time of `--help` is Python's own start."""
    heavy = HEAVY if arguments != ["--version"] else ("aiohttp", "kubernetes", "pydantic", "rich")
    script = (
        "import contextlib, sys\nfrom adapter.cli import main\n"
        f"with contextlib.suppress(SystemExit): main({arguments!r})\n"
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
