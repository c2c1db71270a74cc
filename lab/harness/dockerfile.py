"""`python -m lab.harness.dockerfile`: runs the Dockerfile's steps without a container engine, and tries what they made.

In an empty environment and a temporary folder, which stands for the image's root: absolute paths in the steps lead into
it. The interpreter is this one, or another by --python. It downloads what the locks name, and takes a minute or two.
"""

import argparse
import fnmatch
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
    """A step failed, or made something that does not run."""


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions in order: (instruction, arguments), continued lines joined, without comments."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    return [(word, rest) for line in lines.splitlines() if line for word, _, rest in [line.partition(" ")]]


def build_context(target: Path) -> None:
    """Copies what .dockerignore lets through: it names everything, and then what it takes back."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    wanted = [line[1:] for line in lines if line.startswith("!")]
    if "*" not in lines:
        raise StepError(".dockerignore has to leave out everything but what it names")
    for pattern in wanted:
        for path in ROOT.glob(pattern):
            there = target / path.relative_to(ROOT)
            there.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                shutil.copytree(path, there, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copyfile(path, there)


class Build:
    """The stages of the Dockerfile, whose root is a folder."""

    def __init__(self, root: Path, python: str, arguments: Mapping[str, str]) -> None:
        self.root, self.arguments = root, dict(arguments)
        self.context, self.work = root / "context", root
        (root / "bin").mkdir(parents=True)
        (root / "bin" / "python").symlink_to(shutil.which(python) or python)
        build_context(self.context)
        inherited = {name: os.environ[name] for name in _OF_THE_MACHINE if name in os.environ}
        self.environment = {"PATH": f"{root}/bin:/usr/bin:/bin", "HOME": str(root), **inherited}
        self.entrypoint: list[str] = []

    def run(self) -> None:
        """Every instruction of every stage; a stage continues where the one before ended."""
        for word, rest in instructions((ROOT / "Dockerfile").read_text(encoding="utf-8")):
            step = getattr(self, f"_{word.lower()}", None)
            if step is not None:
                print(f"{word} {rest[:100]}", flush=True)
                step(rest)

    def _arg(self, rest: str) -> None:
        name, _, value = rest.partition("=")
        self.arguments.setdefault(name, value.strip('"'))

    def _env(self, rest: str) -> None:
        self.environment |= dict(one.split("=", 1) for one in shlex.split(rest))

    def _workdir(self, rest: str) -> None:
        self.work = Path(self._here(rest))
        self.work.mkdir(parents=True, exist_ok=True)

    def _copy(self, rest: str) -> None:
        if rest.startswith("--from="):
            return  # one folder is the root of all stages
        *sources, target = rest.split()
        for source in sources:
            path = self.context / source
            there = self.work / target / (source if target in {".", "./"} else "")
            shutil.copytree(path, there) if path.is_dir() else shutil.copyfile(path, there)

    def _run(self, rest: str) -> None:
        done = subprocess.run(
            ["/bin/sh", "-ec", self._here(rest)], cwd=self.work, env={**self.arguments, **self.environment}, check=False
        )
        if done.returncode:
            raise StepError(f"RUN ended with {done.returncode}: {rest}")

    def _entrypoint(self, rest: str) -> None:
        self.entrypoint = [self._here(one) for one in re.findall(r'"([^"]*)"', rest)]

    def _here(self, text: str) -> str:
        return _MADE.sub(f"{self.root}/", text)


def faults(build: Build) -> Iterator[str]:
    """What is wrong with what the steps made."""
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if _may_be_nobody(build) else {}
    for arguments in (["--version"], ["serve", "--help"], ["companion", "--help"]):
        command = [*build.entrypoint, *arguments]
        done = subprocess.run(command, env={}, cwd="/", capture_output=True, text=True, check=False, **user)  # type: ignore[call-overload]
        if done.returncode:
            yield f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr}"
    library = build.root / "opt" / "effective-load" / "lib"
    names = [path.name for path in library.glob("python*/site-packages/*")]
    if fnmatch.filter(names, "pip*"):
        yield "pip is left in the image"
    if not fnmatch.filter(names, "effective_load-*.dist-info"):
        yield "the package is not installed"
    sources = list(library.glob("python*/site-packages/adapter/**/*.py"))
    compiled = list(library.glob("python*/site-packages/adapter/**/__pycache__/*.pyc"))
    if not sources or len(compiled) != len(sources):
        yield f"{len(compiled)} of {len(sources)} modules are compiled"
    if '"bomFormat"' not in (build.root / "sbom.cdx.json").read_text(encoding="utf-8"):
        yield "there is no inventory"


def _may_be_nobody(build: Build) -> bool:
    """Whether this process may become somebody else, who may run the interpreter: not one in root's own folder."""
    python, root = (build.root / "bin" / "python").resolve(), build.root.resolve()
    return os.geteuid() == 0 and all(
        path.stat().st_mode & 0o001 for path in (python, *python.parents, root, *root.parents)
    )


def main(arguments: list[str] | None = None) -> int:
    """Runs the steps; the exit status is 1 if one fails or what they made does not run."""
    parser = argparse.ArgumentParser(prog="python -m lab.harness.dockerfile", description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the base image")
    parser.add_argument("--extras", help="what EXTRAS of the Dockerfile is, by default all")
    options = parser.parse_args(arguments)
    given = {} if options.extras is None else {"EXTRAS": options.extras}
    with tempfile.TemporaryDirectory(prefix="effective-load-image-") as scratch:
        Path(scratch).chmod(0o755)
        build = Build(Path(scratch) / "root", options.python, given)
        try:
            build.run()
            said = list(faults(build))
        except StepError as error:
            said = [str(error)]
    for sentence in said:
        sys.stderr.write(f"{sentence}\n")
    if not said:
        print("every step ran, and so does what they made")
    return 1 if said else 0


if __name__ == "__main__":
    raise SystemExit(main())
