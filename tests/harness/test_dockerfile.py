"""The Dockerfile's steps run without a container engine, and what is wrong with what they made is found."""

from pathlib import Path

import pytest

from lab.harness import dockerfile

DOCKERFILE = """\
FROM python:3.13-slim AS build
WORKDIR /src
COPY parts parts
RUN mkdir -p /opt/effective-load/bin \\
    && printf '#!/bin/sh\\nexit %s\\n' "$(cat parts/status)" > /opt/effective-load/bin/effective-load \\
    && chmod 755 /opt/effective-load/bin/effective-load && echo '{"bomFormat": 1}' > /sbom.cdx.json
ENTRYPOINT ["/opt/effective-load/bin/effective-load"]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a Dockerfile of a few steps."""
    (tmp_path / "parts").mkdir()
    for name, text in {"Dockerfile": DOCKERFILE, "parts/status": "7", ".dockerignore": "*\n!parts\n"}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(dockerfile, "ROOT", tmp_path)
    return tmp_path


def test_a_step_that_fails_is_named(project: Path) -> None:
    (project / "Dockerfile").write_text("FROM a\nRUN true\nRUN exit 3\n")
    with pytest.raises(dockerfile.StepError, match="RUN ended with 3: exit 3"):
        dockerfile.build(project / "root", "/bin/true", {})


def test_what_is_wrong_with_what_was_made_is_found(project: Path) -> None:
    root = project / "root"
    entrypoint = dockerfile.build(root, "/bin/true", {})
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
