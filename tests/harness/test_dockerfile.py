"""The build context of the image has what the Dockerfile copies."""

from pathlib import Path

from lab.harness import dockerfile


def test_the_real_context_has_what_the_real_steps_copy(tmp_path: Path) -> None:
    dockerfile.build_context(tmp_path)
    steps = dockerfile.instructions((dockerfile.ROOT / "Dockerfile").read_text(encoding="utf-8"))
    copied = [source for word, rest in steps if word == "COPY" and "--from" not in rest for source in rest.split()[:-1]]
    assert len(copied) >= 5
    assert all((tmp_path / source).exists() for source in copied)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(copied)
