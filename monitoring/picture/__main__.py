"""`python -m monitoring.picture`: plays the demo, and draws the dashboards into docs/pictures."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from lab.harness.binaries import print_to_stderr
from lab.harness.chromium import find_chromium
from monitoring.dashboards.files import as_json
from monitoring.picture.answers import FLEET, POLICY, drawing, unanswered
from monitoring.picture.drawing import DrawingError, build, picture
from monitoring.picture.run import told

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
_VARIABLES = {"fleet": FLEET, "policy": POLICY}


def main() -> int:
    """The exit status is 1 where a program is missing. Says which queries have no answer in this story."""
    parser = argparse.ArgumentParser(prog="python -m monitoring.picture", description=__doc__)
    parser.add_argument("--answers", type=Path, metavar="FILE", help="keep Prometheus' answers here")
    parser.add_argument("--redraw", type=Path, metavar="FILE", help="draw these answers again, without a run")
    parser.add_argument("--out", type=Path, default=PICTURES, metavar="FOLDER", help="default: %(default)s")
    options = parser.parse_args()
    program = find_chromium()
    if program is None:
        sys.stderr.write("no Chromium is installed; install one, such as Debian's package chromium\n")
        return 1
    try:
        build()
        drawings = json.loads(options.redraw.read_text(encoding="utf-8")) if options.redraw else _play(options.answers)
        for name, one in drawings.items():
            (options.out / f"dashboard-{name}.png").write_bytes(picture(program, one))
    except DrawingError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stderr.writelines(f"{sentence}\n" for one in drawings.values() for sentence in unanswered(one))
    return 0


def _play(answers: Path | None) -> dict[str, Any]:
    """What to draw, by the dashboard's name; kept in the file `answers` where one is given."""
    with told(print_to_stderr) as story:
        drawings = {name: drawing(one, _VARIABLES[name], story) for name, one in as_json().items()}
    if answers:
        answers.write_text(json.dumps(drawings), encoding="utf-8")
    return drawings


if __name__ == "__main__":
    sys.exit(main())
