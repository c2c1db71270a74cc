"""`python -m lab.harness.dockerfile`: runs the Dockerfile's steps without a container engine, and tries what they made.

In an empty environment and a temporary folder, which stands for the image's root: absolute paths in the steps lead into
it. The interpreter is this one, or another by --python. It downloads what the locks name, and takes a minute or two.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
_MADE = re.compile(r"(?<![\w./$}])/(?=(?:opt|src|wheels|sbom\.cdx\.json)\b)")
"""Where an absolute path begins that a step makes."""
_OF_THE_MACHINE = ("PIP_INDEX_URL", "PIP_CERT", "SSL_CERT_FILE", "HTTPS_PROXY", "https_proxy")
"""How packages are reached from here; the rest of the environment is that of the Dockerfile."""


class StepError(Exception):
    """A step failed."""


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions in order: (instruction, arguments), continued lines joined, without comments."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    return [(word, rest) for line in lines.splitlines() if line for word, _, rest in [line.partition(" ")]]


def build_context(target: Path) -> None:
    """Copies what .dockerignore lets through: it names everything, and then what it takes back."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    if "*" not in lines:
        raise StepError(".dockerignore has to leave out everything but what it names")
    for path in (path for line in lines if line.startswith("!") for path in ROOT.glob(line[1:])):
        _copy(path, target / path.relative_to(ROOT))


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copyfile(source, target)


def build(root: Path, python: str, arguments: Mapping[str, str]) -> list[str]:
    """Runs every instruction of every stage; a stage continues where the one before ended. Returns the entry point."""
    context, work, entrypoint = root / "context", root, list[str]()
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "python").symlink_to(shutil.which(python) or python)
    build_context(context)
    given = dict(arguments)
    inherited = {name: os.environ[name] for name in _OF_THE_MACHINE if name in os.environ}
    environment = {"PATH": f"{root}/bin:/usr/bin:/bin", "HOME": str(root), **inherited}
    for word, rest in instructions((ROOT / "Dockerfile").read_text(encoding="utf-8")):
        print(f"{word} {rest[:100]}", flush=True)
        here = _MADE.sub(f"{root}/", rest)
        if word == "ARG":
            name, _, value = rest.partition("=")
            given.setdefault(name, value.strip('"'))
        elif word == "ENV":
            environment |= dict(pair.split("=", 1) for pair in shlex.split(rest))
        elif word == "WORKDIR":
            work = Path(here)
            work.mkdir(parents=True, exist_ok=True)
        elif word == "COPY" and not rest.startswith("--from="):  # one folder is the root of all stages
            *sources, target = rest.split()
            for source in sources:
                _copy(context / source, work / target / (source if target in {".", "./"} else ""))
        elif word == "RUN":
            done = subprocess.run(["/bin/sh", "-ec", here], cwd=work, env={**given, **environment}, check=False)
            if done.returncode:
                raise StepError(f"RUN ended with {done.returncode}: {rest}")
        elif word == "ENTRYPOINT":
            entrypoint = json.loads(here)
    return entrypoint


def faults(root: Path, entrypoint: list[str]) -> Iterator[str]:
    """What is wrong with what the steps made."""
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if _may_be_nobody(root) else {}
    for arguments in (["--version"], ["serve", "--help"], ["companion", "--help"]):
        command = [*entrypoint, *arguments]
        done = subprocess.run(command, env={}, cwd="/", capture_output=True, text=True, check=False, **user)  # type: ignore[call-overload]
        if done.returncode:
            yield f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr}"
    (packages,) = (root / "opt" / "effective-load" / "lib").glob("python*/site-packages")
    if list(packages.glob("pip*")):
        yield "pip is left in the image"
    if not list(packages.glob("effective_load-*.dist-info")):
        yield "the package is not installed"
    sources = list(packages.glob("adapter/**/*.py"))
    compiled = list(packages.glob("adapter/**/__pycache__/*.pyc"))
    if not sources or len(compiled) != len(sources):
        yield f"{len(compiled)} of {len(sources)} modules are compiled"
    if '"bomFormat"' not in (root / "sbom.cdx.json").read_text(encoding="utf-8"):
        yield "there is no inventory"


def _may_be_nobody(root: Path) -> bool:
    """Whether this process may become somebody else, who may run the interpreter: not one in root's own folder."""
    python = (root / "bin" / "python").resolve()
    paths = (python, *python.parents, root.resolve(), *root.resolve().parents)
    return os.geteuid() == 0 and all(path.stat().st_mode & 0o001 for path in paths)


def main(arguments: list[str] | None = None) -> int:
    """Runs the steps; the exit status is 1 if one fails or what they made does not run."""
    parser = argparse.ArgumentParser(prog="python -m lab.harness.dockerfile", description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the base image")
    parser.add_argument("--extras", help="what EXTRAS of the Dockerfile is, by default all")
    options = parser.parse_args(arguments)
    given = {} if options.extras is None else {"EXTRAS": options.extras}
    with tempfile.TemporaryDirectory(prefix="effective-load-image-") as scratch:
        root = Path(scratch) / "root"
        root.parent.chmod(0o755)
        try:
            said = list(faults(root, build(root, options.python, given)))
        except StepError as error:
            said = [str(error)]
    sys.stderr.writelines(f"{sentence}\n" for sentence in said)
    if not said:
        print("every step ran, and so does what they made")
    return 1 if said else 0


if __name__ == "__main__":
    raise SystemExit(main())
