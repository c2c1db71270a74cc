"""The arguments of `effective-load migrate`: declared apart, so that the command line need not load what runs them."""

import argparse

_WHOLE = 100


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Declare the input, the output, and how one target is written."""
    command.add_argument("files", metavar="FILE", nargs="+", help="YAML or JSON documents; - reads standard input")
    command.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="default: %(default)s")
    command.add_argument("--out", metavar="DIR", help="write a file for each pair there, and none that exists")
    command.add_argument(
        "--watermarks",
        metavar="PERCENT",
        type=_low_percent,
        help="write a target as two watermarks, the low one at this percentage of it; default: strategy Ratio",
    )


def _low_percent(text: str) -> int:
    if text.isascii() and text.isdecimal() and 0 < int(text[:9]) < _WHOLE:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text[:40]!r} is no whole number from 1 to {_WHOLE - 1}")
