"""The page of many services: every service with its gains, sortable and searchable, and nothing of a name that runs."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapter.cli import main
from adapter.commands.replay.fleet.command import fleet_page
from adapter.commands.replay.fleet.parts import PolicyName, ServiceRow, to_json
from lab.harness.chromium import Tab, chromium_tab, find_chromium
from tests.replay.fleet.kit import part, row

SERVICES = (
    row("checkout", {"hours": 100.0, "over": 600.0, "cost": 4.5}, {"hours": 80.0, "over": 60.0, "cost": 3.6}),
    row("search", {"hours": 100.0, "over": 0.0, "cost": 4.5}, {"hours": 130.0, "over": 120.0, "cost": 5.85}),
    ServiceRow(PolicyName("shop", "orphan"), error="no history"),
)


def cells(text: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", text.split("<tbody>")[1].split("</tbody>", maxsplit=1)[0])
    return [[re.sub("<[^>]+>", "", cell) for cell in re.findall(r"<t[hd][^>]*>.*?</t[hd]>", row)] for row in rows]


def test_every_service_has_its_gains_the_largest_first() -> None:
    text = fleet_page(part(services=SERVICES))
    assert cells(text) == [
        ["shop/checkout", "+20", "+0.90", "100", "80", "+9", "10", "1", ""],
        ["shop/search", "−30", "−1.35", "100", "130", "−2", "0", "2", "more time over high"],
    ]
    assert "no history" in text
    assert "Replay of 3 services" in text


def test_hostile_names_and_errors_are_text() -> None:
    hostile = "</script><script>alert(1)</script>"
    services = [row(hostile, {}, {}), ServiceRow(PolicyName(hostile, hostile), error=hostile)]
    text = fleet_page(part(services=services, **{"from": hostile}))
    assert hostile not in text
    assert len(re.findall(r"<script\b", text)) == 2


PROGRAM = find_chromium()


@pytest.fixture
async def tab() -> AsyncIterator[Tab]:
    if PROGRAM is None:
        pytest.skip("no Chromium is installed")
    async with chromium_tab(PROGRAM) as tab:
        yield tab


@pytest.mark.integration
async def test_the_table_is_sorted_by_a_click_and_searched_by_a_name(tab: Tab, tmp_path: Path) -> None:
    file = tmp_path / "fleet.html"
    file.write_text(fleet_page(part(services=SERVICES)))
    await tab.open(file.as_uri(), width=390)
    shown = (
        "[...document.querySelectorAll('tbody tr')].filter((row) => !row.hidden).map((row) => row.cells[0].innerText)"
    )
    assert await tab.evaluate(shown) == ["shop/checkout", "shop/search"]
    await tab.evaluate("document.querySelectorAll('th button')[4].click()")
    assert await tab.evaluate(shown) == ["shop/search", "shop/checkout"]
    await tab.evaluate("document.querySelectorAll('th button')[4].click()")
    assert await tab.evaluate(shown) == ["shop/checkout", "shop/search"]
    await tab.evaluate("document.querySelectorAll('th button')[0].click()")
    assert await tab.evaluate(shown) == ["shop/search", "shop/checkout"]
    await tab.evaluate(
        "(() => { const input = document.querySelector('input'); input.value = 'CHECK'; input.oninput(); })()"
    )
    assert await tab.evaluate(shown) == ["shop/checkout"]
    assert tab.messages == []
    assert set(tab.requests) == {file.as_uri()}


def test_merged_parts_have_one_page(tmp_path: Path) -> None:
    for index in (0, 1):
        (tmp_path / f"{index}.json").write_text(to_json(part(index, 2, SERVICES[index : index + 1])))
    page = tmp_path / "fleet.html"
    assert main(["replay", "--merge", str(tmp_path / "0.json"), str(tmp_path / "1.json"), "--html", str(page)]) == 0
    assert [row[0] for row in cells(page.read_text())] == ["shop/checkout", "shop/search"]
