"""The origin of an image: a base with a recorded digest, packages with hashes, extras on request."""

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from structlog.testing import capture_logs

from adapter.registries.manager import RegistryManager, source
from adapter.registries.roster import ServiceKey
from adapter.registries.roster_cache import RosterCache, origin
from adapter.runtime.fair_slots import Claim
from adapter.settings.registries import ConsulRegistry, NacosRegistry, ZooKeeperRegistry
from adapter.telemetry.metrics import Metrics

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yaml").read_text("utf-8"))
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def instructions(text: str = DOCKERFILE) -> list[tuple[str, str]]:
    """The Dockerfile's instructions in order: (instruction, arguments), continued lines joined, without comments."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    return [(word, rest) for line in lines.splitlines() if line for word, _, rest in [line.partition(" ")]]


def stages() -> list[list[tuple[str, str]]]:
    found: list[list[tuple[str, str]]] = []
    for one in instructions():
        if one[0] == "FROM":
            found.append([])
        if found:
            found[-1].append(one)
    return found


def locked(name: str) -> dict[str, str]:
    """The packages of a lock, and their versions."""
    text = (ROOT / "requirements" / f"{name}.lock").read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE))


def closure(wanted: list[str]) -> set[str]:
    """Distributions and their requirements, as far as the development lock installs them."""
    todo, found = [Requirement(one) for one in wanted], set[str]()
    while todo:
        one = todo.pop()
        if (name := canonicalize_name(one.name)) not in found:
            found.add(name)
            deeper = map(Requirement, requires(name) or ())
            extras = ("", *one.extras)
            todo += [
                each for each in deeper if not each.marker or any(each.marker.evaluate({"extra": e}) for e in extras)
            ]
    return found


# --- locks ---


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_every_package_of_a_lock_has_one_version_and_hashes_and_no_address(lock: Path) -> None:
    entries = re.split(r"\n(?=\S)", lock.read_text(encoding="utf-8").strip())
    assert entries
    for entry in entries:
        head, *hashes = [line.strip().rstrip("\\").strip() for line in entry.splitlines()]
        assert re.fullmatch(r"[a-z0-9._-]+==[^\s;]+( ; .+)?", head), head
        assert hashes, head
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes), head


def test_an_extra_has_a_lock_of_its_own_with_all_that_it_needs_and_the_versions_of_the_others() -> None:
    base, everything = locked("runtime"), locked("dev")
    assert closure(PROJECT["dependencies"]) <= base.keys()
    for extra, wanted in EXTRAS.items():
        own = locked(extra)
        assert closure(wanted) <= own.keys()
        for name, version in own.items():
            assert (name, version) == (name, everything[name])
            assert base.get(name, version) == version
    assert {name: everything[name] for name in base} == base


def test_what_only_an_extra_needs_is_not_in_the_base() -> None:
    base = locked("runtime")
    assert EXTRAS
    for wanted in EXTRAS.values():
        assert not {Requirement(one).name for one in wanted} & base.keys()


# --- the image ---


def test_every_stage_begins_at_the_base_that_is_passed_in_and_no_digest_is_made_up() -> None:
    assert [stage[0][1] for stage in stages()] == [
        "${BASE} AS build",
        "build AS inventory",
        "scratch AS sbom",
        "${BASE} AS image",
    ]
    for file in (ROOT / "Dockerfile", *(ROOT / ".github").rglob("*.yaml"), *(ROOT / "manifests").rglob("*.yaml")):
        assert not DIGEST.search(file.read_text(encoding="utf-8")), file


def test_the_image_runs_as_nobody_and_has_only_what_the_build_made() -> None:
    words = [word for word, _ in stages()[-1]]
    assert set(words) == {"FROM", "LABEL", "ENV", "COPY", "USER", "EXPOSE", "ENTRYPOINT", "CMD"}
    rest = dict(stages()[-1])
    assert rest["USER"] == "65534:65534"
    assert rest["COPY"] == "--from=build /opt/effective-load /opt/effective-load"
    assert words.index("COPY") < words.index("USER")
    assert rest["ENTRYPOINT"].startswith("[")


def test_nothing_is_fetched_but_packages_with_hashes() -> None:
    assert "ADD" not in {word for word, _ in instructions()}
    commands = [part.strip() for word, rest in instructions() if word == "RUN" for part in rest.split("&&")]
    installs = [shlex.split(one) for one in commands if "pip install" in one or "pip wheel" in one]
    assert installs
    for install in installs:
        from_index = {"--require-hashes", "--only-binary=:all:"} <= set(install)
        assert from_index or "--no-deps" in install, install
    tools = {shlex.split(one)[0].rpartition("/")[2] for one in commands if not one.startswith(("locks=", "for "))}
    assert tools == {"awk", "python", "pip", "cyclonedx-py"}


def test_its_extras_are_those_of_the_package_and_each_can_be_left_out() -> None:
    (default,) = re.findall(r'^ARG EXTRAS="(.*)"$', DOCKERFILE, re.MULTILINE)
    assert default.split() == sorted(EXTRAS)
    (loop,) = [part for word, rest in instructions() if word == "RUN" for part in rest.split("&&") if "EXTRAS" in part]
    for extras, last in (("", "requirements/runtime.lock"), ("zookeeper", "requirements/zookeeper.lock")):
        script = f"locks='-r requirements/runtime.lock'; {loop}; echo $locks"
        said = subprocess.run(
            ["sh", "-euc", script], env={"EXTRAS": extras}, capture_output=True, check=True, text=True
        )
        assert said.stdout.split()[-1] == last
        assert said.stdout.split().count("-r") == 1 + len(extras.split())


# --- an image without an extra ---


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a package, and our modules that import it, unavailable in this process."""

    def take(package: str) -> None:
        known = dict(sys.modules)
        for name in [
            name for name in sys.modules if re.match(rf"adapter\.registries\.(zookeeper|nacos)|{package}\b", name)
        ]:
            parent, _, child = name.rpartition(".")
            if parent in known and hasattr(known[parent], child):
                # An import sets it, too: what is put back afterwards has to be the module that all others have.
                monkeypatch.setattr(known[parent], child, known[name])
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, package, None)

    return take


async def test_settings_that_name_a_registry_whose_extra_is_missing_say_which_and_how_to_get_it(
    without: Callable[[str], None],
) -> None:
    without("kazoo")
    zookeeper = ZooKeeperRegistry(name="dubbo", type="ZooKeeper", layout="Curator", servers=("zk:2181",))
    key = ServiceKey("dubbo", "order")
    changed = asyncio.Event()
    registries = RegistryManager((zookeeper,), lambda _: changed.set(), lambda: 0.0, Metrics())
    running = asyncio.create_task(registries.run())
    registries.watch([Claim("shop", ("2026",), key)])
    await asyncio.wait_for(changed.wait(), 5)
    roster = registries.roster(key)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert roster is not None
    assert not roster.valid
    assert "needs the extra zookeeper, which is not installed" in (roster.error or "")
    assert "name it in EXTRAS when the image is built, or install effective-load[zookeeper]" in (roster.error or "")


async def test_without_its_extra_nacos_is_polled_and_the_log_says_why(without: Callable[[str], None]) -> None:
    without("grpc")
    from adapter.registries.nacos.source import NacosSource

    nacos = NacosRegistry(name="main", type="Nacos", servers=("http://127.0.0.1:9",))
    book = RosterCache("main", lambda _: None, lambda: 0.0, Metrics(), origin(nacos))
    with capture_logs() as logs:
        running = asyncio.create_task(NacosSource(nacos, book).run())
        async with asyncio.timeout(5):
            while not logs:  # noqa: ASYNC110  nothing tells of a log entry
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    (said,) = logs
    assert (said["event"], said["registry"]) == ("push is off, services are polled", "main")
    assert "needs the extra nacos, which is not installed" in said["why"]


async def test_other_registries_do_without_the_extras(without: Callable[[str], None]) -> None:
    for package in ("grpc", "kazoo", "apprise"):
        without(package)
    consul = ConsulRegistry(name="main", type="Consul", servers=("http://consul:8500",))
    assert source(consul, RosterCache("main", lambda _: None, lambda: 0.0, Metrics(), origin(consul)))


def test_the_commands_load_without_any_extra() -> None:
    script = (
        "import sys; sys.modules.update(dict.fromkeys(('grpc', 'kazoo', 'apprise')))\n"
        "import adapter.assembly, adapter.check.command, adapter.cli, adapter.document.reader"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)


# --- the workflow ---


def scripts() -> list[str]:
    return [step["run"] for job in WORKFLOW["jobs"].values() for step in job["steps"] if "run" in step]


def step(job: str, name: str) -> str:
    (found,) = [one["run"] for one in WORKFLOW["jobs"][job]["steps"] if one.get("name") == name]
    return str(found)


def test_nothing_is_published_that_was_not_checked_tested_and_audited_and_only_a_tag_is() -> None:
    jobs = WORKFLOW["jobs"]
    assert set(jobs["image"]["needs"]) == {"check", "test", "audit", "base"}
    assert jobs["publish"]["needs"] == "image"
    assert jobs["publish"]["if"] == "startsWith(github.ref, 'refs/tags/v')"
    pushing = [name for name, job in jobs.items() if "docker push" in str(job) or "gh release" in str(job)]
    assert pushing == ["publish"]
    assert [one["run"] for job in ("check", "test") for one in jobs[job]["steps"] if "run" in one] == [
        "make check",
        "make test",
    ]


def test_only_the_job_that_publishes_may_write_and_no_step_keeps_the_token() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert [name for name, job in WORKFLOW["jobs"].items() if "permissions" in job] == ["publish"]
    used = [step for job in WORKFLOW["jobs"].values() for step in job["steps"] if "uses" in step]
    for one in used:
        assert re.fullmatch(r"actions/[a-z-]+@v\d+", one["uses"]), one["uses"]
        if one["uses"].startswith("actions/checkout@"):
            assert one["with"]["persist-credentials"] is False


def test_what_others_write_is_never_put_into_a_script() -> None:
    assert not [script for script in scripts() if "${{" in script]


def test_every_lock_that_the_image_may_carry_is_audited_and_what_cannot_be_looked_up_fails(tmp_path: Path) -> None:
    tool = tmp_path / "pip-audit"
    tool.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    tool.chmod(0o755)
    script = step("audit", "Audit").replace("/tmp/release/bin", str(tmp_path))
    said = subprocess.run(["bash", "-euc", script], capture_output=True, check=True, text=True).stdout.split()
    assert {one for one in said if "lock" in one} == {
        f"--requirement=requirements/{name}.lock" for name in ("runtime", *EXTRAS)
    }
    assert "--strict" in said
    installs = [script for script in scripts() if "pip install" in script]
    assert installs
    assert all("--require-hashes --only-binary=:all:" in script for script in installs)


@pytest.mark.skipif(not (shutil.which("bash") and shutil.which("jq")), reason="needs bash and jq")
@pytest.mark.parametrize(
    ("manifest", "ends"),
    [
        (f'{{"digest": "sha256:{"0" * 64}"}}', 0),
        ('{"digest": "sha256:12"}', 1),
        ('{"digest": "latest"}', 1),
        ("{}", 1),
        ("", 1),
    ],
)
def test_the_base_is_resolved_to_a_digest_or_the_release_ends(tmp_path: Path, manifest: str, ends: int) -> None:
    docker = tmp_path / "docker"
    docker.write_text(f"#!/bin/sh\necho \"$@\" > {tmp_path}/asked\nprintf '%s' '{manifest}'\n")
    docker.chmod(0o755)
    output = tmp_path / "output"
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "GITHUB_OUTPUT": str(output),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
    }
    script = step("base", "Resolve the base")
    shell = ["bash", "-eo", "pipefail", "-c", script]
    ended = subprocess.run(shell, cwd=ROOT, env=environment, capture_output=True, check=False)
    assert bool(ended.returncode) is bool(ends), ended
    assert (tmp_path / "asked").read_text().split()[:4] == ["buildx", "imagetools", "inspect", "python:3.12-slim"]
    assert output.exists() is not bool(ends)
    if not ends:
        assert output.read_text() == f"name=python:3.12-slim\ndigest=sha256:{'0' * 64}\n"


def test_the_image_is_built_from_that_digest_which_it_bears_and_an_inventory_comes_with_it() -> None:
    build = step("image", "Build")
    environment = WORKFLOW["jobs"]["image"]["env"]
    assert environment["BASE_DIGEST"] == "${{ needs.base.outputs.digest }}"
    assert '"BASE=$BASE_NAME@$BASE_DIGEST"' in build
    assert build.count('docker build "${arguments[@]}"') == build.count("docker build") == 2
    assert '--label "org.opencontainers.image.base.digest=$BASE_DIGEST"' in build
    assert "--target sbom" in build
    assert "release/*.cdx.json" in step("publish", "Release")
    variants = {one["variant"]: one["extras"] for one in WORKFLOW["jobs"]["image"]["strategy"]["matrix"]["include"]}
    assert variants == {"full": " ".join(sorted(EXTRAS)), "lean": ""}
