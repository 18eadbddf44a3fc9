"""The view of the tasks: searched, sorted, page by page, and whole from the first answer on."""

from __future__ import annotations

import pytest

from tests.support import page_scene as scene
from tests.support.browser import new_page
from tests.support.mesh_day import MeshDay
from tests.support.page_opened import DRAWN, LIVE, TASKS, opened
from tests.support.page_stand_in import StandIn
from tests.support.page_views import go

pytestmark = [pytest.mark.timeout(60), pytest.mark.asyncio(loop_scope="session")]

NAMES = "[...document.querySelectorAll('#tasks tbody .what')].map((each) => each.innerText)"

LAST = """[...document.querySelectorAll('#tasks td.more')]
    .map((each) => each.getBoundingClientRect().right)"""
"""The right edges of the actions of the tasks."""


async def test_loading_is_not_no_task(browser: str, ordinary: StandIn) -> None:
    """Before the node has answered, an event does not make the page say that there is no task."""
    async with opened(browser, ordinary) as page:
        await page.until(f"{DRAWN} && {LIVE}")
        running = "document.getElementById('count-running').innerText"
        await page.until(f"{running} === '2'")
        ordinary.tasks_told.clear()
        await page.evaluate("void (location.hash = 'view=tasks')")
        await page.until("document.querySelector('#tasks')")
        run = next(run for run in ordinary.runs.values() if run.state == "running")
        await ordinary.put(run.model_copy(update={"state": "failed", "reason": "no"}))
        await page.until(f"{running} === '1'")
        # Timers go off in their order: this one after the one that the event has set.
        await page.evaluate("new Promise((resolve) => setTimeout(resolve, 70))")
        assert await page.text("#tasks") == "Loading …"
        ordinary.tasks_told.set()
        await page.until(TASKS)


@pytest.mark.nightly
async def test_a_long_name_moves_nothing(browser: str, ordinary: StandIn) -> None:
    """A task with a URL of 900 characters leaves the actions of all tasks on the screen."""
    spec = {"url": f"https://www.example.net/{'x' * 900}"}
    long = scene.task_of("http", "a.example", spec=spec)
    ordinary.tasks[long.id] = long
    async with opened(browser, ordinary, "#view=tasks") as page:
        await page.until(TASKS)
        for width in (390, 1440, 2560):
            await page.resize(width, 900)
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
            assert await page.evaluate(f"Math.max(...{LAST})") <= width


@pytest.mark.nightly
async def test_tasks_are_searched_and_sorted(browser: str, day: MeshDay) -> None:
    """A word leaves the tasks that have it, a head sorts them, and the address has both."""
    async with new_page(browser) as page:
        await page.open(f"{day.url}/#token={day.token}")
        await page.until(LIVE)
        await go(page, "tasks")
        assert "trace" in (await page.evaluate(NAMES))[0]  # what was refused comes first
        assert "ms there" in await page.text("#tasks tr.running td.value")
        await page.evaluate("document.querySelector('.tools input').focus()")
        await page.type("latency oslo")
        await page.until(f"{NAMES}.length === 8 && location.hash.includes('q=latency+oslo')")
        await page.click("#tasks a[data-sort=name]")
        await page.until("document.querySelector('#tasks [aria-sort=ascending] [data-sort=name]')")
        ascending = await page.evaluate(NAMES)
        await page.click("#tasks a[data-sort=name]")
        await page.until("document.querySelector('#tasks [aria-sort=descending]')")
        assert await page.evaluate(NAMES) == ascending[::-1]
        assert len(ascending) == 8  # the words stay
        assert "backbone" in await page.text("#tasks td.mesh")
        await page.evaluate("void (location.hash = 'view=tasks&q=nothing+like+it')")
        await page.until("document.querySelector('#tasks .empty.settled')")
        assert "No task has all of that." in await page.text("#tasks")
        assert page.complaints() == []


@pytest.mark.nightly
async def test_the_timeline_of_a_task_has_its_runs_only(browser: str, day: MeshDay) -> None:
    """The overview of one task of a mesh draws its runs one by one, and those of no other."""
    async with new_page(browser) as page:
        await page.open(f"{day.url}/#token={day.token}")
        await page.until(LIVE)
        label = "document.getElementById('canvas').ariaLabel"
        await page.until(f"/ [1-9]\\d\\d normal/.test({label})")
        await page.evaluate("void (location.hash = 'view=tasks&q=latency+oslo+lisbon')")
        await page.until(f"{NAMES}.length === 2")
        await page.click("#tasks td.more a")
        await page.until(f"/ 4[23] normal/.test({label})")
        assert page.complaints() == []
