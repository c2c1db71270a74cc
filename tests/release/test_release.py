"""The origin of an image: a base with a recorded digest, packages with hashes, extras on request."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lab.harness import binaries

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
_WORKFLOW = (ROOT / ".github" / "workflows" / "release.yaml").read_text("utf-8")
WORKFLOW: dict[str, Any] = yaml.load(_WORKFLOW, yaml.CSafeLoader)
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def stages() -> list[list[tuple[str, str]]]:
    found: list[list[tuple[str, str]]] = [[]]
    for one in instructions(DOCKERFILE):
        if one[0] == "FROM":
            found.append([])
        found[-1].append(one)
    return found[1:]


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions in order: (instruction, arguments), continued lines joined, without comments."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    return [(word, rest) for line in lines.splitlines() if line for word, _, rest in [line.partition(" ")]]


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


def test_what_builds_the_package_is_taken_from_the_lock_with_all_that_it_needs() -> None:
    (names,) = re.findall(r"awk '/\^\(([a-z|-]+)\)==/", DOCKERFILE)
    assert set(names.split("|")) == closure(["hatchling"]) <= locked("dev").keys()


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
    assert "ADD" not in {word for word, _ in instructions(DOCKERFILE)}
    commands = [part.strip() for word, rest in instructions(DOCKERFILE) if word == "RUN" for part in rest.split("&&")]
    installs = [shlex.split(one) for one in commands if "pip install" in one or "pip wheel" in one]
    assert installs
    for install in installs:
        from_index = {"--require-hashes", "--only-binary=:all:"} <= set(install)
        assert from_index or "--no-deps" in install, install
    tools = {shlex.split(one)[0].rpartition("/")[2] for one in commands if not one.startswith(("locks=", "for "))}
    assert tools == {"awk", "python", "pip", "cyclonedx-py"}


def test_its_extras_are_those_of_the_package() -> None:
    (default,) = re.findall(r'^ARG EXTRAS="(.*)"$', DOCKERFILE, re.MULTILINE)
    assert default.split() == sorted(EXTRAS)


# --- an image without an extra ---

WITHOUT_EXTRAS = """
import asyncio, sys
sys.modules.update(dict.fromkeys(("kazoo", "apprise")))
import adapter.server_process, adapter.companion_process, adapter.cli
import adapter.commands.check.run, adapter.commands.decide.reader
from adapter.registries.follow import open_source, probe
from adapter.registries.source import ServiceKey
from adapter.settings.registries import ConsulRegistry, ZooKeeperRegistry

async def main():
    await open_source(ConsulRegistry(name="main", type="Consul", servers=("http://consul:8500",))).close()
    zookeeper = ZooKeeperRegistry(name="dubbo", type="ZooKeeper", layout="Curator", servers=("zk:2181",))
    print(*((await probe(zookeeper, [ServiceKey("dubbo", "order")]))[0].troubles.values()))

asyncio.run(main())
"""


def test_all_loads_without_extras_and_a_registry_that_needs_one_says_which_and_how_to_get_it() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_EXTRAS], capture_output=True, text=True, cwd=ROOT, check=False)
    said = done.stdout
    assert "needs the extra zookeeper, which is not installed" in said, done.stderr
    assert "name it in EXTRAS when the image is built, or install effective-load[zookeeper]" in said


# --- the workflow ---


def scripts() -> list[str]:
    return [step["run"] for job in WORKFLOW["jobs"].values() for step in job["steps"] if "run" in step]


def step(job: str, name: str) -> str:
    (found,) = [one["run"] for one in WORKFLOW["jobs"][job]["steps"] if one.get("name") == name]
    return str(found)


def stubbed(folder: Path, script: str, **stubs: str) -> subprocess.CompletedProcess[str]:
    """Runs a step's script at the root of a release, with these programs in place of the real ones.

    Each notes its arguments in `called`.
    """
    for name, body in stubs.items():
        program = folder / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\necho "{name} $*" >> {folder}/called\n{body}\n')
        program.chmod(0o755)
    named = {"REPOSITORY": "Owner/Effective-Load", "REPOSITORY_OWNER": "Owner", "REF_NAME": "v0.1.0", "ACTOR": "me"}
    files = {f"GITHUB_{name}": str(folder / name.lower()) for name in ("OUTPUT", "STEP_SUMMARY")}
    environment = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "GH_TOKEN": "t", "VARIANT": "full", **files}
    environment |= {f"GITHUB_{name}": value for name, value in named.items()}
    script = script.replace("~/go/bin/", "")
    shell = ["bash", "-eo", "pipefail", "-c", script]
    return subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, check=False)


PUBLISHING = ("publish-image", "publish-chart", "publish-package", "release")
PERMISSIONS = {
    "publish-image": {"contents": "read", "packages": "write", "id-token": "write", "attestations": "write"},
    "publish-chart": {"contents": "read", "packages": "write", "id-token": "write"},
    "publish-package": {"contents": "read", "id-token": "write"},
    "release": {"contents": "write"},
}
ACTIONS = {
    "attest-build-provenance@v2", "cache@v4", "checkout@v4", "download-artifact@v4", "setup-go@v5", "setup-java@v4",
    "setup-python@v5", "upload-artifact@v4",
}  # fmt: skip


def needed_by(job: str) -> set[str]:
    """The jobs that have to end well before this one begins."""
    needs = WORKFLOW["jobs"][job].get("needs", [])
    direct = {needs} if isinstance(needs, str) else set(needs)
    return direct.union(*(needed_by(one) for one in direct))


def test_nothing_is_published_that_was_not_checked_tested_and_audited_and_only_a_tag_is() -> None:
    jobs = WORKFLOW["jobs"]
    for name, job in jobs.items():
        publishes = any(word in str(job) for word in ("docker push", "helm push", "uv publish", "gh release", "cosign"))
        assert publishes is (name in PUBLISHING), name
        assert (job.get("if") == "startsWith(github.ref, 'refs/tags/v')") is publishes, name
    for name in PUBLISHING:
        assert {"check", "test", "audit", "base", "image", "package"} <= needed_by(name)
    assert [one["run"] for job in ("check", "test") for one in jobs[job]["steps"] if "run" in one] == [
        "make check",
        "make test",
    ]


def test_each_job_has_the_permissions_that_it_needs_and_no_step_keeps_the_token() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    given = {name: job["permissions"] for name, job in WORKFLOW["jobs"].items() if "permissions" in job}
    assert given == PERMISSIONS
    used = [step for job in WORKFLOW["jobs"].values() for step in job["steps"] if "uses" in step]
    assert {one["uses"] for one in used} == {f"actions/{name}" for name in ACTIONS}
    for one in used:
        if one["uses"].startswith("actions/checkout@"):
            assert one["with"]["persist-credentials"] is False
    with_token = {name for name, job in WORKFLOW["jobs"].items() if "github.token" in str(job)}
    assert with_token == {"publish-image", "publish-chart", "release"}


def test_every_step_is_a_script_that_bash_can_read_and_names_what_is_there() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for script in scripts():
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
        assert "${{" not in script, "what others write is never put into a script"
        assert set(re.findall(r"\bmake ([a-z-]+)", script)) <= targets
        for module in re.findall(r"python -m ((?:harness|tests|monitoring)[.\w]*)", script):
            assert (ROOT / (module.replace(".", "/") + ".py")).is_file(), module
        for path in re.findall(r"\b(?:requirements|charts|manifests)/[\w./-]*\w", script):
            assert (ROOT / path).exists(), path


def test_tools_are_those_of_the_recipes_with_a_version() -> None:
    helm = binaries.RECIPES["helm"]
    installed = [word for script in scripts() if "go install" in script for word in script.split()[2:]]
    assert f"{helm.package}@v{helm.version}" in installed
    assert all(re.search(r"@v\d+\.\d+\.\d+$", one) for one in installed)


def test_every_lock_that_the_image_may_carry_is_audited_and_what_cannot_be_looked_up_fails() -> None:
    script = step("audit", "Audit")
    assert set(re.findall(r"requirements/(\w+)\.lock", script)) == {"runtime", *EXTRAS}
    assert "pip-audit --strict" in script
    installs = [script for script in scripts() if "pip install" in script]
    assert installs
    assert all("--require-hashes --only-binary=:all:" in script for script in installs)


NEEDS_JQ = pytest.mark.skipif(not (shutil.which("bash") and shutil.which("jq")), reason="needs bash and jq")
RESOLVED = f'{{"digest": "sha256:{"0" * 64}"}}'


@NEEDS_JQ
@pytest.mark.parametrize("manifest", [RESOLVED, '{"digest": "sha256:12"}', '{"digest": "latest"}', "{}", ""])
def test_the_base_is_resolved_to_a_digest_or_the_release_ends(tmp_path: Path, manifest: str) -> None:
    is_resolved = manifest == RESOLVED
    shutil.copy(ROOT / "Dockerfile", tmp_path)
    ended = stubbed(tmp_path, step("base", "Resolve the base"), docker=f"printf '%s' '{manifest}'")
    assert bool(ended.returncode) is not is_resolved, ended
    assert (tmp_path / "called").read_text().startswith("docker buildx imagetools inspect python:3.13-slim ")
    output = tmp_path / "output"
    expected = f"name=python:3.13-slim\ndigest=sha256:{'0' * 64}\n" if is_resolved else ""
    assert (output.read_text() if output.exists() else "") == expected


def test_the_image_of_each_variant_is_built_from_that_digest_which_it_bears() -> None:
    build, job = step("image", "Build"), WORKFLOW["jobs"]["image"]
    assert job["env"]["BASE_DIGEST"] == "${{ needs.base.outputs.digest }}"
    for words in ('"BASE=$BASE_NAME@$BASE_DIGEST"', '"org.opencontainers.image.base.digest=$BASE_DIGEST"'):
        assert words in build
    assert build.count('docker build "${arguments[@]}"') == build.count("docker build") == 2
    matrix = job["strategy"]["matrix"]
    variants = {one["variant"]: one["extras"] for one in matrix["include"] if "variant" in one}
    assert (matrix["architecture"], variants) == (["amd64", "arm64"], {"full": " ".join(sorted(EXTRAS)), "lean": ""})
    assert matrix["variant"] == WORKFLOW["jobs"]["publish-image"]["strategy"]["matrix"]["variant"] == [*variants]


@NEEDS_JQ
def test_both_architectures_become_one_image_which_is_signed_by_its_digest(tmp_path: Path) -> None:
    digest = "sha256:" + "1" * 64
    docker = f"""case "$*" in
      *imagetools\\ inspect*) echo '{{"digest": "{digest}"}}';;
      inspect*) for last; do :; done; echo "ghcr.io/owner/effective-load@sha256:${{last##*-}}";;
    esac"""
    done = stubbed(tmp_path, step("publish-image", "Push"), docker=docker)
    assert done.returncode == 0, done.stderr
    called = (tmp_path / "called").read_text()
    parts = [f"ghcr.io/owner/effective-load@sha256:{one}" for one in ("amd64", "arm64")]
    assert f"imagetools create --tag ghcr.io/owner/effective-load:0.1.0 {' '.join(parts)}" in called
    assert (tmp_path / "output").read_text() == f"name=ghcr.io/owner/effective-load\ndigest={digest}\n"
    assert (tmp_path / "published/image-full.txt").read_text() == f"ghcr.io/owner/effective-load:0.1.0@{digest}\n"
    sign = f"IMAGE=ghcr.io/owner/effective-load@{digest}\n" + step(
        "publish-image", "Sign, with the inventory of each architecture"
    )
    assert stubbed(tmp_path, sign, cosign="").returncode == 0
    signed = [line for line in (tmp_path / "called").read_text().splitlines() if line.startswith("cosign")]
    assert signed[0] == f"cosign sign --yes --recursive ghcr.io/owner/effective-load@{digest}"
    assert [line.split()[-2:] for line in signed[1:]] == [
        [f"release/sbom-full-{name}.cdx.json", part] for name, part in zip(("amd64", "arm64"), parts, strict=True)
    ]


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_the_published_chart_names_the_published_image_by_its_digest(tmp_path: Path) -> None:
    digest = "sha256:" + "2" * 64
    shutil.copytree(ROOT / "charts", tmp_path / "charts")
    (tmp_path / "release").mkdir()
    (tmp_path / "release/image-full.txt").write_text(f"ghcr.io/owner/effective-load:0.1.0@{digest}\n")
    done = stubbed(tmp_path, step("publish-chart", "Package"), helm="")
    assert done.returncode == 0, done.stderr
    values = yaml.safe_load((tmp_path / "charts/effective-load/values.yaml").read_text())
    assert (values["image"]["repository"], values["image"]["digest"]) == ("ghcr.io/owner/effective-load", digest)
    helm = f"""test "$1" = push && echo 'Pushed: x' && echo 'Digest: {digest}'; true"""
    done = stubbed(tmp_path, step("publish-chart", "Push and sign"), helm=helm, docker="", cosign="")
    assert done.returncode == 0, done.stderr
    assert f"cosign sign --yes ghcr.io/owner/charts/effective-load@{digest}" in (tmp_path / "called").read_text()
    assert stubbed(tmp_path, step("publish-chart", "Push and sign"), helm="").returncode == 1


def test_the_tag_has_to_be_the_version_and_the_changelog_has_to_have_it(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "release").mkdir()
    script = step("package", "The tag is the version, and the changelog has it")
    done = stubbed(tmp_path, f"GITHUB_REF_NAME=v9\n{script}")
    assert (done.returncode, done.stdout) == (1, "::error::v9 is not v0.1.0\n")
    for version, status in (("0.1.0", 0), ("0.1.01", 1)):
        changelog = (
            f"# Changelog\n\n## [{version}] - x\n\n- A thing.\n\n## [0.0.1]\n\n- Older.\n\n[0.0.1]: https://a.b\n"
        )
        (tmp_path / "CHANGELOG.md").write_text(changelog)
        assert stubbed(tmp_path, f"GITHUB_REF_NAME=v0.1.0\n{script}").returncode == status
        assert (tmp_path / "release/notes.md").read_text().split() == ["-", "A", "thing."] * (not status)
