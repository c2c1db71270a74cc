"""The performance page says what the stored results say, and says so itself where it does not."""

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from lab.benchmarks import record
from lab.benchmarks.page import rendering
from lab.benchmarks.page.figures import exponent, figure, percent
from lab.benchmarks.page.rendering import Page, PageError

_LAYOUT = """{% for one in aims %}
{{ one.what }} {{ one.figure }} {{ one.verdict }}
{% endfor %}
{{ sections | join }}"""
_ORIGIN = {"command": "python -m x", "commit": "abc", "date": "2026-11-22 21:00 UTC", "machine": {"processors": 2}}


def _page(folder: Path, section: str, **results: Any) -> Page:
    (folder / "page.md.j2").write_text(_LAYOUT)
    (folder / "10_one.md.j2").write_text(section)
    for name, content in results.items():
        (folder / f"{name}.json").write_text(json.dumps({**_ORIGIN, **content}))
    return Page(folder, folder)


def test_figures_have_the_digits_that_were_asked_for() -> None:
    written = [figure(value) for value in (0.15834, 1.481, 16.38, 967.2, 20000, 0.0999, 0.0, 1.0)]
    assert written == ["0.16", "1.5", "16", "967", "20,000", "0.10", "0", "1.0"]
    assert figure(10.86, 3) == "10.9"
    assert percent(0.0082) == "0.82 %"


def test_the_exponent_of_a_line_is_1_and_of_a_square_2() -> None:
    assert exponent([(1, 5), (2, 10), (4, 20)]) == pytest.approx(1)
    assert exponent([(1, 5), (2, 20), (4, 80)]) == pytest.approx(2)


@pytest.mark.parametrize(
    ("most", "verdict"), [("2, 'ms'", "met"), ("1, 'ms', 'TLS alone takes 1 ms'", "**missed**: TLS alone takes 1 ms")]
)
def test_an_aim_is_shown_with_its_figure_and_its_verdict_before_the_sections(
    tmp_path: Path, most: str, verdict: str
) -> None:
    section = f'{{{{ aim("cost", results.x.ms, "<=", {most}) }}}}It takes {{{{ results.x.ms | figure }}}} ms.'
    assert _page(tmp_path, section, x={"ms": 1.23}).text() == f"cost 1.23 ms {verdict}\nIt takes 1.2 ms.\n"


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ('{{ aim("cost", 3, "<=", 1) }}', "the aim 'cost' is missed (3, limit 1), and the template gives no reason"),
        ("{{ results.y.ms }}", "there is no result y.json"),
        ("{{ results.x.seconds | figure }}", "'dict object' has no attribute 'seconds'"),
        ("{{ source('old') }}", "old.json lacks command, commit, date, machine"),
    ],
)
def test_a_template_that_cannot_be_filled_is_named_with_what_is_missing(
    tmp_path: Path, section: str, says: str
) -> None:
    (tmp_path / "old.json").write_text("{}")
    with pytest.raises(PageError) as fault:
        _page(tmp_path, section, x={"ms": 1}).text()
    assert str(fault.value).startswith("lab/benchmarks/page/10_one.md.j2: ")
    assert says in str(fault.value)


def test_a_page_that_differs_from_the_results_is_a_fault_until_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendering, "Page", lambda: _page(tmp_path, "{{ results.x.ms | figure }} ms", x={"ms": 1.23}))
    monkeypatch.setattr(rendering, "ROOT", tmp_path)
    monkeypatch.setattr(rendering, "PAGE", tmp_path / "performance.md")
    assert len(list(rendering.faults())) == 1
    rendering.write()
    assert list(rendering.faults()) == []
    assert (tmp_path / "performance.md").read_text() == "1.2 ms\n"


def test_a_stored_result_says_how_to_measure_it_again_without_paths_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = types.SimpleNamespace(__spec__=types.SimpleNamespace(name="lab.benchmarks.serving.__main__"))
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(
        sys, "argv", ["x", "--rounds", "2", "-o", str(tmp_path / "a.json"), "--python", "/some/where/python"]
    )
    record.write(tmp_path / "a.json", {"ms": 1, "machine": "not mine"})
    stored = json.loads((tmp_path / "a.json").read_text())
    assert list(stored) == [*record.KEYS, "ms"]
    assert stored["command"] == "python -m lab.benchmarks.serving --rounds 2 --python python"
    assert stored["machine"]["processors"] > 0
    assert str(tmp_path) not in json.dumps(stored)
