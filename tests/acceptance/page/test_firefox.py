"""The page in a real Firefox: it draws, follows events, and its form plans a task."""

from __future__ import annotations

import pytest

from node.web import static_files
from tests.acceptance.outsider import Outsider
from tests.support.firefox import firefox
from tests.support.page_opened import LIVE

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.needs("firefox"),
]


async def test_the_page_works_in_firefox(a: Outsider) -> None:
    """The views open, an event arrives, and the form of a task shows its plan."""
    task = await a.planned(await a.create("idle", schedule={"repeat": "PT1H"}))
    async with firefox() as page:
        await page.open(f"{a.url}/#token={a.token}")
        await page.until(f"{LIVE} && document.querySelector('#new-task:not([hidden])')")
        modules = sorted(
            name for name in static_files() if name.endswith(".js") and "uplot" not in name
        )
        for name in modules:
            await page.evaluate(f"import('/web/{name}').then(() => true)")
        await page.evaluate("location.hash = 'view=tasks'")
        await page.until("document.querySelector('#tasks tr.task.running')")
        await a.cancel(task)
        gone = f"document.querySelector('#tasks tr.gone[data-key=\"{task['id']}\"]')"
        await page.until(gone)
        await page.evaluate("document.getElementById('new-task').click()")
        await page.until("document.getElementById('task-test')")
        await page.evaluate(
            "(() => { const test = document.getElementById('task-test'); test.value = 'idle';"
            "for (const kind of ['input', 'change'])"
            "test.dispatchEvent(new Event(kind, { bubbles: true })); })()"
        )
        await page.until("document.querySelector('#act .verdict.done')")
        wrong = [each for each in page.complaints if "422" not in each]
        assert wrong == []
