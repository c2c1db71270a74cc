"""A settings file that changes while the adapter runs."""

from pathlib import Path

import pytest

from adapter.settings import Settings, SettingsError, SettingsFile


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An empty settings file."""
    made = tmp_path / "settings.yaml"
    made.write_text("", encoding="utf-8")
    return made


@pytest.fixture
def watched(file: Path) -> SettingsFile:
    """The file after a first look."""
    made = SettingsFile(file)
    assert made.changed() == Settings()
    return made


def test_rewriting_is_seen_and_touching_is_not(file: Path, watched: SettingsFile) -> None:
    assert watched.changed() is None
    file.touch()
    assert watched.changed() is None
    file.write_text("logging: {level: debug}", encoding="utf-8")
    changed = watched.changed()
    assert changed is not None
    assert changed.logging.level == "debug"


def test_a_configmaps_symlink_swap_is_seen(tmp_path: Path) -> None:
    """As the kubelet does it: settings.yaml → ..data/settings.yaml, and ..data → the latest of dated folders."""
    for version, level in (("..1", "info"), ("..2", "debug")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "settings.yaml").write_text(f"logging: {{level: {level}}}", encoding="utf-8")
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "settings.yaml").symlink_to("..data/settings.yaml")
    watched = SettingsFile(tmp_path / "settings.yaml")
    first = watched.changed()
    (tmp_path / "..data_tmp").symlink_to("..2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    second = watched.changed()
    assert first is not None
    assert second is not None
    assert (first.logging.level, second.logging.level) == ("info", "debug")


def test_a_broken_file_is_complained_about_once_and_its_repair_taken_over(file: Path, watched: SettingsFile) -> None:
    file.write_text("servre: {}", encoding="utf-8")
    with pytest.raises(SettingsError, match="did you mean server"):
        watched.changed()
    assert watched.changed() is None
    file.write_text("server: {port: 1}", encoding="utf-8")
    repaired = watched.changed()
    assert repaired is not None
    assert repaired.server.port == 1


def test_a_vanished_file_is_complained_about_once_and_noticed_when_it_returns(
    file: Path, watched: SettingsFile
) -> None:
    file.unlink()
    with pytest.raises(SettingsError, match="cannot be read"):
        watched.changed()
    assert watched.changed() is None
    file.write_text("", encoding="utf-8")
    assert watched.changed() == Settings()
