"""The views of the page, in a real browser: what a reader does in them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest

from node.api.page import static_files
from node.model.times import SECOND, parse_duration
from tests.acceptance.outsider import Outsider
from tests.architecture.sources import REPOSITORY
from tests.support.accessibility import violations
from tests.support.browser import Page, new_page
from tests.support.mesh_day import NO_PORT, MeshDay
from tests.support.page_hands import button, press_button
from tests.support.page_opened import LIVE
from tests.support.page_views import go
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.timeout(180), pytest.mark.asyncio(loop_scope="session")]

PICTURES = REPOSITORY / "build" / "pictures"
UPLOT = "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"
"""SHA-256 of dist/uPlot.iife.min.js of uPlot 1.6.32, as the registry has it (MIT)."""


async def corner(page: Page) -> tuple[float, float]:
    """Return where on the page the canvas of the timeline begins, from the left and the top."""
    left, top = await page.evaluate(
        "(({x, y}) => [x, y])"
        "(document.querySelector('#timeline-view canvas').getBoundingClientRect())"
    )
    return left, top


async def point(page: Page, x: float, y: float) -> None:
    """Move the pointer to a point on the canvas of the timeline."""
    left, top = await corner(page)
    await page.call("Input.dispatchMouseEvent", type="mouseMoved", x=left + x, y=top + y)


async def drag(page: Page, x: float, y: float, by: float, *, shift: bool = False) -> None:
    """Drag from a point on the canvas of the timeline to the right."""
    left, top = await corner(page)
    shared = {"y": top + y, "button": "left", "clickCount": 1, "modifiers": 8 if shift else 0}
    for kind, moved in (("mousePressed", 0.0), ("mouseMoved", by), ("mouseReleased", by)):
        where = {"x": left + x + moved, "buttons": 1, **shared}
        await page.call("Input.dispatchMouseEvent", type=kind, **where)


@pytest.mark.nightly
async def test_a_pair_is_shown_both_ways(browser: str, day: MeshDay) -> None:
    """The view of a pair has a line for each direction, and a click opens the run."""
    async with new_page(browser) as page:
        await page.open(f"{day.url}/#token={day.token}")
        await page.until(LIVE)
        await go(page, "pair")
        heads = "[...document.querySelectorAll('#pair-view .u-legend tbody th')]"
        lines = await page.evaluate(f"{heads}.map((each) => each.innerText)")
        assert lines[:3] == ["berlin → prague", "prague → berlin", "round trip"]
        assert "Mean" in await page.text("#pair-view .u-legend")
        await page.click("#pair-view details[data-key^=list] summary")
        await page.until("document.querySelector('#pair-view details[open] td a')")
        await page.click("#pair-view details[open] td a")
        await page.until("document.querySelector('#drawer[open] .facts')")
        assert await page.evaluate(
            "location.hash.startsWith('#view=pair&source=berlin&dest=prague')"
        )
        assert page.complaints() == []


@pytest.mark.nightly
async def test_the_timeline_is_moved_and_zoomed(browser: str, day: MeshDay) -> None:
    """Keys zoom and move the span, dragging moves it, and all of it is in the address."""
    label = "document.querySelector('#timeline-view canvas').ariaLabel"
    async with new_page(browser) as page:
        await page.open(f"{day.url}/#token={day.token}")
        await page.until(LIVE)
        await go(page, "timeline")
        await page.evaluate("document.querySelector('#timeline-view canvas').focus()")
        await page.call("Input.dispatchKeyEvent", type="keyDown", key="-", text="-")
        await page.until("location.hash.includes('length=14400') && location.hash.includes('at=')")
        before = await page.evaluate("new URLSearchParams(location.hash.slice(1)).get('at')")
        await drag(page, 600, 40, 60)
        moved = f"new URLSearchParams(location.hash.slice(1)).get('at') < '{before}'"
        await page.until(moved)
        assert not await page.evaluate("document.querySelector('#drawer').open")
        await page.call("Input.dispatchKeyEvent", type="keyDown", key="Home")
        await page.until("!location.hash.includes('at=')")
        await page.until(f"{label}.includes('berlin · normal')")
        assert page.complaints() == []


NAMES_PX = 124
"""Width of the names of lanes beside the timeline."""
LANE_PX = 41
"""Middle of the bars of the first lane, which is that of exclusive runs."""


FORM = "document.getElementById('act-body')"
POINTED = """new Promise((resolve) => {
    const end = Date.now() + 1000;
    const tip = document.querySelector('#timeline-view .tip');
    const look = () => {
        if (!tip.hidden && tip.innerText.includes('idle')) resolve(true);
        else if (Date.now() > end) resolve(false);
        else setTimeout(look, 16);
    };
    look();
})"""
"""A promise of whether a run of the test idle is pointed at within a second."""

CALL = f"{FORM}.querySelector('.call pre').textContent"
CANVAS = "document.querySelector('#timeline-view canvas')"


@asynccontextmanager
async def two_hours(
    browser: str, a: Outsider, begin: datetime
) -> AsyncIterator[tuple[Page, float]]:
    """Open the timeline from an instant on; yield it, and how many seconds a pixel has."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    async with new_page(browser) as page:
        await page.open(f"{a.url}/#token={a.token}")
        await page.until(LIVE)
        at = begin.strftime("%Y-%m-%dT%H:%M:%SZ")
        await page.evaluate(f"location.hash = 'view=timeline&length=7200&at={at}'")
        await page.until("document.querySelector('#timeline-asks').textContent")
        await page.until("document.querySelector('#view-heading').textContent === 'Timeline'")
        yield page, 7200 / (await page.evaluate(f"{CANVAS}.clientWidth") - NAMES_PX)
        # The browser itself complains of answers that the page tells in words.
        assert [each for each in page.complaints() if " (Unprocessable " not in each] == []


@pytest.mark.nightly
async def test_a_marked_span_begins_a_task(browser: str, a: Outsider, free_hour: datetime) -> None:
    """Shift and drag opens the form of a task that starts there and is as long, with its plan."""
    async with two_hours(browser, a, free_hour) as (page, pixel_s):
        await drag(page, NAMES_PX + 900, LANE_PX, 100, shift=True)
        await page.until(f"{FORM}.querySelector('form') && {CALL}")
        await page.evaluate(
            "((test) => { test.value = 'idle'; for (const kind of ['input', 'change'])"
            " test.dispatchEvent(new Event(kind, { bubbles: true })); })"
            "(document.getElementById('task-test'))"
        )
        await page.until(f"{FORM}.innerText.includes('Starts') && {CALL}.includes('duration')")
        assert await violations(page) == []
        (PICTURES / "what-if.png").write_bytes(await page.picture())
        said = re.search("-d '(.*)'", await page.evaluate(CALL))
        assert said
        document = json.loads(said[1])
        start = datetime.fromisoformat(document["schedule"]["start"])
        assert abs((start - free_hour).total_seconds() - 900 * pixel_s) <= 30
        length = parse_duration(document["test"]["spec"]["duration"])
        assert abs(length / SECOND - 100 * pixel_s) <= 30
        await page.press("Escape")
        await page.evaluate(f"{CANVAS}.focus()")
        await page.press("Escape")
        await page.call("Input.dispatchKeyEvent", type="keyDown", key="w", text="w")
        middle = (free_hour + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        await page.until(f"document.getElementById('act').open && {CALL}.includes('{middle}')")


@pytest.mark.nightly
async def test_a_dragged_run_moves_its_task(browser: str, a: Outsider, free_hour: datetime) -> None:
    """Shift and drag of a planned run opens the form of its task, which moves once confirmed."""
    spec = {"duration": "PT10M", "class": "exclusive"}
    task = await a.create("idle", spec=spec, schedule={"start": free_hour.isoformat()})
    run = await a.run(task)
    path = f"/v1/tasks/{task['id']}"
    begin = free_hour - timedelta(minutes=30)
    starts = datetime.fromisoformat(run["starts_at"])
    async with two_hours(browser, a, begin) as (page, pixel_s):
        await page.until(f"{CANVAS}.ariaLabel.includes(': 1 exclusive')")
        x = NAMES_PX + ((starts - begin).total_seconds() + 120) / pixel_s
        await page.evaluate(f"{CANVAS}.focus()")
        # Runs are counted before they come one by one, and only then can one be chosen. It is
        # pointed at, because a walk by arrows may come to runs of other tests.
        async with asyncio.timeout(PATIENCE_S):
            await point(page, x, LANE_PX)
            while not await page.evaluate(POINTED):
                await point(page, x + 1, LANE_PX)
                await point(page, x, LANE_PX)
        await page.call("Input.dispatchKeyEvent", type="keyDown", key="w", text="w")
        await page.until(f"{FORM}.innerText.includes('Nothing is changed yet.')")
        await page.press("Escape")
        await drag(page, x, LANE_PX, 200, shift=True)
        await page.until(f"{FORM}.innerText.includes('Would be changed')")
        await page.until(f"{FORM}.innerText.includes('were freed')")
        await page.until(f"{FORM}.innerText.includes('Starts')")
        assert await violations(page) == []
        (PICTURES / "what-if-moved.png").write_bytes(await page.picture())
        assert (await a.get(path))["revision"] == task["revision"]
        await page.evaluate(f"{FORM}.querySelector('.confirm').click()")
        await page.until(f"{FORM}.innerText.includes('The task is changed.')")
        moved = datetime.fromisoformat((await a.get(path))["schedule"]["start"])
        assert abs((moved - starts).total_seconds() - 200 * pixel_s) <= 30
    await a.cancel(task)


@pytest.mark.parametrize(("view", "words"), [("alerts", "all"), ("pair", "7 d")])
@pytest.mark.nightly
async def test_a_choice_keeps_the_focus(browser: str, day: MeshDay, view: str, words: str) -> None:
    """A bar that is drawn anew leaves the focus to what was chosen by keyboard."""
    async with new_page(browser) as page:
        await page.open(f"{day.url}/#token={day.token}")
        await page.until(LIVE)
        await go(page, view)
        await press_button(page, "#view-tools", words)
        chosen = f"{button('#view-tools', words)}.ariaPressed === 'true'"
        await page.until(chosen)
        assert await page.evaluate(f"document.activeElement === {button('#view-tools', words)}")


@pytest.mark.nightly
async def test_a_word_finds_runs_and_their_causes(browser: str, day: MeshDay) -> None:
    """The key "/" goes to the search, which finds runs without a result, grouped by cause."""
    async with new_page(browser) as page:
        await page.open(f"{day.url}/#token={day.token}")
        await page.until(LIVE)
        await page.call("Input.dispatchKeyEvent", type="keyDown", key="/", text="/")
        await page.until("document.activeElement.id === 'search-field'")
        await page.type(str(day.explained)[:8])
        await page.press("Enter")
        await page.until("document.querySelectorAll('.runs tbody tr').length === 1")
        assert NO_PORT in await page.text(".runs")
        await page.evaluate("void (location.hash = 'view=search&q=address+throughput')")
        found = "document.querySelector('#search-view .causes')?.innerText"
        await page.until(f"{found}?.includes('5203') && !{found}.includes('prague')")
        assert page.complaints() == []


STOPS = """[...document.querySelectorAll(
    'a[href], button, input, select, textarea, summary, [tabindex="0"]')]
    .filter((each) => each.checkVisibility({ visibilityProperty: true }) && !each.disabled)"""


async def test_tab_reaches_everything(browser: str, day: MeshDay) -> None:
    """The first stop skips to the content, and each link, button and field is a stop."""
    async with new_page(browser) as page:
        await page.open(f"{day.url}/#token={day.token}")
        await page.until(LIVE)
        await page.press("Tab")
        assert await page.evaluate("document.activeElement.id") == "skip"
        await page.press("Enter")
        assert await page.evaluate("document.activeElement.id") == "main"
        await go(page, "pair")
        await page.evaluate(f"document.activeElement.blur(), window.left = new Set({STOPS}), null")
        for _ in range(await page.evaluate("left.size") + 2):
            await page.press("Tab")
            await page.evaluate("left.delete(document.activeElement)")
        assert await page.evaluate("[...left].map((each) => each.outerHTML)") == []


@pytest.mark.nightly
async def test_lists_are_read_without_javascript(browser: str, day: MeshDay) -> None:
    """A browser without scripts shows where the lists are, and each as a table."""
    async with new_page(browser) as page:
        await page.call("Emulation.setScriptExecutionDisabled", value=True)
        await page.open(day.url)
        await holds(page, "document.querySelector('noscript a')?.checkVisibility()")
        links = await page.evaluate(
            "[...document.querySelectorAll('noscript a')].map((each) => each.getAttribute('href'))"
        )
        assert len(links) == 6
        for link in links:
            place = day.url.replace("://", f"://anybody:{day.token}@")
            await page.open(f"{place}{link}")
            await holds(page, f"location.href.endsWith({json.dumps(link)})")
            await holds(page, "document.querySelectorAll('table tr').length > 1")


async def holds(page: Page, condition: str) -> None:
    """Wait until a condition holds in a page that runs no scripts, and so no timers either."""
    async with asyncio.timeout(PATIENCE_S):
        while not await page.evaluate(f"Boolean({condition})"):
            pass


async def test_the_plot_is_the_one_that_was_released() -> None:
    """The vendored file is unchanged, and its licence is beside it."""
    file = static_files()["uplot.js"].body
    assert hashlib.sha256(file).hexdigest() == UPLOT
    assert re.match(rb"/\*! https://github\.com/leeoniya/uPlot \(v1\.6\.32\) \*/", file)
    licence = REPOSITORY / "node" / "web" / "uplot.LICENSE"
    assert licence.read_text().startswith("The MIT License (MIT)")
