"""The page in a real Chromium that has no network: it draws, says nothing on the console, and asks for nothing."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapter.commands.replay.page.report import page
from lab.harness.chromium import Tab, chromium_tab, find_chromium
from tests.replay.page import kit
from tests.replay.page.test_page import HOSTILE

PROGRAM = find_chromium()
pytestmark = [pytest.mark.integration, pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed")]

DRAWN = """[...document.querySelectorAll("canvas")].map((canvas) => {
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  return new Set(new Uint32Array(pixels.buffer)).size;
})"""
CHARTS = 3


@pytest.fixture
async def tab() -> AsyncIterator[Tab]:
    assert PROGRAM is not None
    async with chromium_tab(PROGRAM) as tab:
        yield tab


def written(folder: Path, name: str = "policy") -> str:
    """A page with every part, and a policy of this name. Returns its URL."""
    runs = kit.three(stock=kit.run(name, 0.8, over_high=3600.0), policy=kit.run(f"{name} 2", 1.0))
    report = kit.report(kit.policy_named(name), runs, source=name)
    file = folder / "replay.html"
    file.write_text(page(report), encoding="utf-8")
    return file.as_uri()


async def test_the_page_draws_its_charts_without_a_request_or_a_message(tab: Tab, tmp_path: Path) -> None:
    url = written(tmp_path)
    for width, dark in ((1280, False), (390, True)):
        await tab.open(url, width=width, dark=dark)
        colours = await tab.evaluate(DRAWN)
        assert len(colours) == CHARTS
        assert min(colours) > 10, "a chart is empty"
        assert await tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
            "the page is wider than a phone"
        )
    assert set(tab.requests) == {url}
    assert tab.messages == []


async def test_a_hostile_name_does_not_run(tab: Tab, tmp_path: Path) -> None:
    for name in HOSTILE[:4]:
        await tab.open(written(tmp_path, name))
        assert await tab.evaluate("document.querySelector('h1 bdi').textContent") == f"{name}/{name}"
        assert await tab.evaluate("document.images.length") == 0
    assert len(set(tab.requests)) == 1
    assert tab.messages == []


async def test_the_content_policy_stops_scripts_and_requests_that_the_page_does_not_have(
    tab: Tab, tmp_path: Path
) -> None:
    url = written(tmp_path)
    await tab.open(url)
    await tab.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<img src=https://a.invalid/x onerror=alert(1)>')"
    )
    await tab.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {text: 'window.ran = 1'}))"
    )
    assert await tab.evaluate("fetch('https://a.invalid/').then(() => 'sent', () => 'refused')") == "refused"
    assert await tab.evaluate("window.ran") is None
    assert len(tab.messages) >= 3
    assert all("Content Security Policy" in message for message in tab.messages)


async def test_a_run_is_hidden_by_its_button_and_a_chart_is_read_by_keys(tab: Tab, tmp_path: Path) -> None:
    await tab.open(written(tmp_path))
    before = await tab.evaluate(DRAWN)
    await tab.evaluate("document.querySelector('[data-toggle]').click()")
    await tab.drawn()
    assert await tab.evaluate("document.querySelector('[data-toggle]').getAttribute('aria-pressed')") == "false"
    assert await tab.evaluate(DRAWN) != before
    await tab.evaluate("document.getElementById('chart-replicas').focus()")
    for _ in range(3):
        await tab.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight", code="ArrowRight")
    await tab.drawn()
    tip = await tab.evaluate("document.querySelector('#chart-replicas .tip').innerText")
    assert "UTC" in tip
    assert "policy 2" in tip
