"""Every command's help: its examples can be typed, and its exit statuses are told."""

import argparse
import io
import re
import shlex
import sys

import pytest

from adapter import cli
from adapter.commands.terminal import output
from adapter.commands.terminal.command import INVALID

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
    for arguments in ([], ["decide"], ["explain", "x", "--no-such-option"], ["nothing"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        assert ended.value.code == INVALID
    said = capsys.readouterr().err
    assert "usage: effective-load" in said
    assert all(f"\n    {command.name}" in said for command in cli.COMMANDS)


def test_a_terminal_without_a_character_gets_another_one_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", terminal)
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    parser.set_defaults(run=lambda _: output.print_line("web \u2192 12"))
    monkeypatch.setattr(cli, "argument_parser", lambda _: parser)
    cli.main(["check"])
    assert terminal.buffer.getvalue() == b"web ? 12\n"  # type: ignore[attr-defined]
