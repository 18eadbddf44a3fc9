"""The actions that the page offers, in a real browser with a real node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from tests.acceptance.outsider import Json, Outsider
from tests.support.browser import Page, new_page
from tests.support.loopback import free_port
from tests.support.page_hands import button, click_labelled, press_button
from tests.support.page_opened import LIVE

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="session")]

ACT = "document.getElementById('act')"


@asynccontextmanager
async def shown(browser: str, a: Outsider, token: str, task: Json) -> AsyncIterator[Page]:
    """Open the page of a node as the user of a token, with the runs of a task only."""
    async with new_page(browser) as page:
        await page.open(f"{a.url}/#token={token}")
        await page.until(f"{LIVE} && document.querySelector('#last')")
        await page.evaluate(f"location.hash = 'task={task['id']}'")
        await page.until("!document.getElementById('filter').hidden")
        yield page
        # The browser itself complains of answers that the page tells in words.
        assert [each for each in page.complaints() if "409 (Conflict)" not in each] == []


@pytest.mark.nightly
async def test_a_button_keeps_the_focus_while_its_task_changes(browser: str, a: Outsider) -> None:
    """The reader who has moved to a button keeps it, though somebody else pauses the task."""
    task = await a.planned(await a.create("idle", schedule={"repeat": "PT1H"}))
    async with shown(browser, a, a.token, task) as page:
        cancel = button("#filter-actions", "Cancel")
        await page.until(f"Boolean({cancel})")
        await page.evaluate(f"{cancel}.focus()")
        await a.ask("POST", f"/v1/tasks/{task['id']}/pause")
        await page.until(f"Boolean({button('#filter-actions', 'Resume')})")
        assert await page.evaluate(f"document.activeElement === {cancel}")
    await a.cancel(task)


async def test_tasks_are_paused_resumed_and_cancelled(browser: str, a: Outsider) -> None:
    """Each action tells its call before it is done, and its outcome; a pause can be undone."""
    task = await a.planned(await a.create("idle", schedule={"repeat": "PT1H"}))
    path = f"/v1/tasks/{task['id']}"
    async with shown(browser, a, a.token, task) as page:
        await press_button(page, "#filter-actions", "Pause")
        await page.until(f"{ACT}.innerText.includes('POST {path}/pause')")
        assert (await a.get(path))["state"] == "active"
        await press_button(page, "#act", "Pause")
        await page.until(f"{ACT}.innerText.includes('The task is paused.')")
        assert (await a.get(path))["state"] == "paused"
        await press_button(page, "#act", "Undo: resume")
        await page.until(f"{ACT}.innerText.includes('The task is planned again.')")
        assert (await a.get(path))["state"] == "active"
        await page.press("Escape")
        await page.until(f"!{ACT}.open")
        await press_button(page, "#filter-actions", "Cancel")
        # Enter does nothing before the reader has moved to the button of what cannot be undone.
        await page.until("document.activeElement.textContent === 'Leave it'")
        await press_button(page, "#act", "Cancel")
        await page.until(f"{ACT}.innerText.includes('The task is cancelled.')")
        assert (await a.get(path))["state"] == "cancelled"


@pytest.mark.nightly
async def test_problems_come_in_words(browser: str, a: Outsider) -> None:
    """The page tells what the node refuses, with its reason."""
    task = await a.planned(await a.create("idle", schedule={"repeat": "PT1H"}))
    async with shown(browser, a, a.token, task) as page:
        await press_button(page, "#filter-actions", "Pause")
        await page.until(f"{ACT}.innerText.includes('/pause')")
        await a.cancel(task)
        await press_button(page, "#act", "Pause")
        await page.until(f"{ACT}.querySelector('.verdict.failed')")
        assert "has ended" in await page.text("#act")


@pytest.mark.nightly
async def test_a_run_is_cancelled_and_measured_again(browser: str, a: Outsider) -> None:
    """The drawer of a run cancels it, and measures once more what it measured."""
    task = await a.create("idle", schedule={"start": "PT3M"})
    run = await a.run(task)
    async with shown(browser, a, a.token, task) as page:
        await page.evaluate(f"location.hash = 'run={run['id']}'")
        await press_button(page, "#drawer", "Cancel this run")
        await page.until(f"{ACT}.innerText.includes('DELETE /v1/runs/{run['id']}')")
        await press_button(page, "#act", "Cancel this run")
        await page.until(f"{ACT}.innerText.includes('The run is cancelled.')")
        assert (await a.get(f"/v1/runs/{run['id']}"))["state"] == "cancelled"
        await page.press("Escape")
        await press_button(page, "#drawer", "Run now")
        await press_button(page, "#act", "Run now")
        await page.until(f"{ACT}.innerText.includes('measures once')")
        newest = (await a.get("/v1/tasks", limit=1))["items"][0]
        assert (newest["headline"], newest["schedule"]["repeat"]) == (task["headline"], None)
        await press_button(page, "#act", "Undo: cancel")
        await page.until(f"{ACT}.innerText.includes('The task is cancelled.')")


@pytest.mark.nightly
async def test_all_like_one_are_cancelled(browser: str, a: Outsider) -> None:
    """Tasks like one are counted and listed before they are cancelled, and no others are."""
    fields = {"schedule": {"repeat": "PT1H"}, "reference": {"mesh": "alike"}}
    alike = [await a.planned(await a.create("idle", **fields)) for _ in range(3)]
    other = await a.planned(await a.create("idle", schedule={"repeat": "PT1H"}))
    async with shown(browser, a, a.token, alike[0]) as page:
        await press_button(page, "#filter-actions", "Cancel all like this")
        await page.until(f"{ACT}.innerText.includes('of the mesh alike: 3')")
        await page.until(f"{ACT}.querySelectorAll('.alike li').length === 3")
        await press_button(page, "#act", "Cancel 3 tasks")
        await page.until(f"{ACT}.innerText.includes('3 tasks cancelled')")
    states = [(await a.get(f"/v1/tasks/{task['id']}"))["state"] for task in (*alike, other)]
    assert states == ["cancelled"] * 3 + ["active"]
    await a.cancel(other)


@pytest.mark.parametrize(
    ("role", "offered"),
    [
        ("read", []),
        ("run", ["Run now", "Pause", "Edit", "Cancel", "Cancel all like this"]),
        (
            "operate",
            ["Run now", "Pause", "Try again now", "Edit", "Cancel", "Cancel all like this"],
        ),
    ],
)
@pytest.mark.nightly
async def test_only_what_the_token_permits_is_offered(
    browser: str, a: Outsider, role: str, offered: list[str]
) -> None:
    """The page has no buttons for those who only read, and a release for those who operate."""
    asked = {"label": f"page-{role}", "role": role}
    made = (await a.ask("POST", "/v1/tokens", asked)).body
    if role == "run":  # they see their own tasks only
        headers = {"Authorization": f"Bearer {made['token']}"}
        document = {"test": {"type": "idle", "spec": {}}, "schedule": {"repeat": "PT1H"}}
        answer = await a.ask("POST", "/v1/tasks", document, headers)
        assert answer.status == 201, answer
        task = answer.body
    else:
        task = await a.planned(await a.create("idle", schedule={"repeat": "PT1H"}))
    async with shown(browser, a, made["token"], task) as page:
        await page.until("document.querySelector('#filter-name').innerText.startsWith('idle')")
        names = "[...document.querySelectorAll('#filter-actions button')].map((e) => e.innerText)"
        await page.until(f"{names}.join() === '{','.join(offered)}'")
        await page.evaluate("location.hash = 'view=tasks'")
        await page.until("document.querySelector('#tasks table')")
        acting = await page.evaluate("document.querySelectorAll('td.more button').length > 0")
        assert acting is bool(offered)
        await page.evaluate("location.hash = 'view=timeline'")
        asks = "document.querySelector('#timeline-asks').textContent"
        await page.until(f"{asks}.includes('{'W does' if offered else 'needs a token'}')")
        assert not await page.evaluate("document.getElementById('sign-in').checkVisibility()")
    await a.cancel(task)


@pytest.mark.nightly
async def test_an_alert_is_acknowledged_and_silenced(browser: str, a: Outsider) -> None:
    """Both buttons tell what they did, and undo it; who only reads has neither."""
    spec = {"dest": "127.0.0.1", "port": free_port(), "count": 1}
    reference = {"alerts": {"outcome": {"count": 1, "of": 1}}}
    task = await a.create("tcp", spec=spec, reference=reference, schedule={"repeat": "PT1H"})
    raised = await a.until(f"/v1/alerts?task={task['id']}", lambda found: found["items"])
    [alert] = raised["items"]
    path = f"/v1/alerts/{alert['id']}"
    async with new_page(browser) as page:
        await page.open(f"{a.url}/#token={a.token}")
        await page.until(LIVE)
        await page.evaluate("void (location.hash = 'view=alerts')")
        await press_button(page, "#alerts", "Acknowledge")
        await page.until(f"{ACT}.innerText.includes('PATCH {path}')")
        assert (await a.get(path))["acknowledged_at"] is None
        await press_button(page, "#act", "Acknowledge")
        await page.until(f"{ACT}.innerText.includes('You look after it.')")
        assert (await a.get(path))["acknowledged_at"] is not None
        await page.until("document.getElementById('alerts').innerText.includes('seen by')")
        await press_button(page, "#act", "Undo: take back that it is seen")
        await page.until(f"{ACT}.innerText.includes('Nobody looks after it.')")
        assert (await a.get(path))["acknowledged_at"] is None
        await page.press("Escape")
        await press_button(page, "#alerts", "Silence …")
        await page.until("document.getElementById('silence-hours')?.value === '8'")
        await page.evaluate("document.getElementById('silence-hours').value = 2")
        await press_button(page, "#act", "Silence")
        await page.until(f"{ACT}.innerText.includes('No webhook is told of it until')")
        silent = datetime.fromisoformat((await a.get(path))["silent_until"]) - datetime.now(UTC)
        assert timedelta(hours=1.9) < silent <= timedelta(hours=2)
        await page.press("Escape")
        await press_button(page, "#alerts", "End the silence")
        await press_button(page, "#act", "End the silence")
        await page.until(f"{ACT}.querySelector('.verdict.done')")
        assert (await a.get(path))["silent_until"] is None
        assert page.complaints() == []
    reader = await a.ask("POST", "/v1/tokens", {"label": "alert-reader", "role": "read"})
    async with new_page(browser) as page:
        await page.open(f"{a.url}/#token={reader.body['token']}")
        await page.until(LIVE)
        await page.evaluate("void (location.hash = 'view=alerts')")
        await page.until("document.querySelector('#alerts tbody tr')")
        assert await page.evaluate("document.querySelectorAll('#alerts button').length") == 0
    await a.cancel(task)


@pytest.mark.nightly
async def test_a_node_is_drained_and_takes_runs_again(browser: str, a: Outsider) -> None:
    """A drain tells what gives way before it begins, is told to other nodes, and is ended."""
    async with new_page(browser) as page:
        await page.open(f"{a.url}/#token={a.token}")
        await page.until(LIVE)
        await page.evaluate("void (location.hash = 'view=nodes')")
        await click_labelled(page, f"drain {a.name}")
        await page.until(f"{ACT}.innerText.includes('booked in the next 24 hours give way')")
        assert (await a.get("/v1/reservations"))["items"] == []
        await press_button(page, "#act", "Drain this node")
        await page.until(f"{ACT}.innerText.includes('The node takes no new runs.')")
        [drain] = (await a.get("/v1/reservations"))["items"]
        assert (drain["kind"], drain["name"]) == ("maintenance", "drained: maintenance")
        assert "maintenance (from " in (await a.get("/v1/nodes/self"))["attributes"]["drained"]
        await press_button(page, "#act", "Close")
        await page.until("document.querySelector('#node-list').innerText.includes('drained: main')")
        await click_labelled(page, f"end the drain of {a.name}")
        await press_button(page, "#act", "End the drain")
        await page.until(f"{ACT}.innerText.includes('The node takes runs again.')")
        assert (await a.get("/v1/reservations"))["items"] == []
        assert "drained" not in (await a.get("/v1/nodes/self"))["attributes"]
        assert page.complaints() == []
