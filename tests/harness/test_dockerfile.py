"""The Dockerfile's steps run without a container engine, and what is wrong with what they made is found."""

from pathlib import Path

import pytest

from lab.harness import dockerfile

DOCKERFILE = """\
ARG BASE=python:3.13-slim
FROM ${BASE} AS build
ARG EXTRAS="a b"
ENV COLOUR=blue
WORKDIR /src
COPY LICENSE ./
COPY parts parts
RUN mkdir -p /opt/effective-load/bin \\
    && echo "$COLOUR $EXTRAS ${UNKNOWN:-none}" $(cat LICENSE parts/one) > /opt/said \\
    && printf '#!/bin/sh\\nexit %s\\n' "$(cat parts/status)" > /opt/effective-load/bin/effective-load \\
    && chmod 755 /opt/effective-load/bin/effective-load && echo '{"bomFormat": 1}' > /sbom.cdx.json
ENTRYPOINT ["/opt/effective-load/bin/effective-load"]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a Dockerfile of a few steps."""
    (tmp_path / "parts").mkdir()
    files = {"Dockerfile": DOCKERFILE, "LICENSE": "free", "parts/one": "1", "parts/status": "0", "secret": "x"}
    for name, text in {**files, ".dockerignore": "*\n!LICENSE\n!parts\n"}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(dockerfile, "ROOT", tmp_path)
    return tmp_path


def built(project: Path, **arguments: str) -> tuple[Path, list[str]]:
    """The root, and the entry point."""
    root = project / "root"
    return root, dockerfile.build(root, "/bin/true", arguments)


@pytest.mark.parametrize(("given", "extras"), [({}, "a b"), ({"EXTRAS": ""}, "")])
def test_steps_run_in_a_root_and_an_environment_of_their_own(
    project: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], extras: str
) -> None:
    monkeypatch.setenv("UNKNOWN", "of the machine")
    root, entrypoint = built(project, **given)
    assert (root / "opt/said").read_text() == f"blue {extras} none free1\n"
    assert sorted(path.name for path in (root / "src").iterdir()) == ["LICENSE", "parts"]
    assert entrypoint == [f"{root}/opt/effective-load/bin/effective-load"]


def test_a_step_that_fails_is_named(project: Path) -> None:
    (project / "Dockerfile").write_text("FROM a\nRUN true\nRUN exit 3\n")
    with pytest.raises(dockerfile.StepError, match="RUN ended with 3: exit 3"):
        built(project)


def test_what_is_wrong_with_what_was_made_is_found(project: Path) -> None:
    (project / "parts/status").write_text("7")
    root, entrypoint = built(project)
    site = root / "opt/effective-load/lib/python3.13/site-packages"
    for path in (site / "pip", site / "adapter"):
        path.mkdir(parents=True)
    (site / "adapter" / "one.py").touch()
    said = "\n".join(dockerfile.faults(root, entrypoint))
    for sentence in ("--version ended with 7", "pip is left", "is not installed", "0 of 1 modules are compiled"):
        assert sentence in said


def test_the_real_context_has_what_the_real_steps_copy(tmp_path: Path) -> None:
    dockerfile.build_context(tmp_path)
    steps = dockerfile.instructions((dockerfile.ROOT / "Dockerfile").read_text(encoding="utf-8"))
    copied = [source for word, rest in steps if word == "COPY" and "--from" not in rest for source in rest.split()[:-1]]
    assert len(copied) >= 5
    assert all((tmp_path / source).exists() for source in copied)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(copied)
