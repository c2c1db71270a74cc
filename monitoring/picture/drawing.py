"""Builds the page once, and takes its picture in a headless Chromium."""

import asyncio
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.harness.chromium import chromium_tab

PAGE = Path(__file__).parent / "page"
WIDTH, HEIGHT = 1500, 3000
"""Of the window, which shows the whole page: a table that is outside of it is not drawn."""
_DRAWN_SECONDS = 2.0
"""Panels measure themselves once they are on the page, and draw then."""


class DrawingError(RuntimeError):
    """The page could not be built or drawn; the message says what to do."""


def build() -> None:
    """Installs what the page is made of, and builds it. Raises DrawingError without Node.js, or when npm fails."""
    npm = shutil.which("npm")
    if npm is None:
        raise DrawingError("npm is not installed; install Node.js 20 or newer")
    if not (PAGE / "node_modules").is_dir():
        _run(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
    if not _is_built():
        _run(npm, "run", "build")


def _is_built() -> bool:
    sources = [*PAGE.glob("*.js*"), *(PAGE / "src").iterdir()]
    script = PAGE / "dist" / "page.js"
    return script.is_file() and all(one.stat().st_mtime < script.stat().st_mtime for one in sources)


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=PAGE, capture_output=True, text=True, check=False)  # noqa: S603  npm's own path
    if done.returncode:
        raise DrawingError(f"{' '.join(command[1:])} failed:\n{done.stderr or done.stdout}")


def picture(program: str, drawn: Mapping[str, Any]) -> bytes:
    """The dashboard as a PNG. Raises DrawingError when the page logs an error."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder)
        shutil.copytree(PAGE / "dist", page / "dist")
        shutil.copy(PAGE / "index.html", page)
        (page / "data.js").write_text(f"window.DASHBOARD = {json.dumps(drawn)};\n", encoding="utf-8")
        return asyncio.run(_picture(program, (page / "index.html").as_uri()))


async def _picture(program: str, url: str) -> bytes:
    async with chromium_tab(program) as tab:
        await tab.open(url, width=WIDTH, height=HEIGHT, dark=True)
        await asyncio.sleep(_DRAWN_SECONDS)
        # Icons and fonts that Grafana's server would serve are missing, which is an error in the log, but no exception.
        failed = [message for message in tab.messages if message.startswith("exception")]
        if failed:
            raise DrawingError(f"the page failed: {failed[0]}")
        return await tab.picture("#page", "#page")
