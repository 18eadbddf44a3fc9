"""The forms of the page, in a real browser with a real node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.acceptance.outsider import Outsider
from tests.support.accessibility import violations
from tests.support.browser import Page, new_page
from tests.support.page_hands import BODY, MESH, choose, click_labelled, press_button, says
from tests.support.page_opened import LIVE

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="session")]


@asynccontextmanager
async def form_of(browser: str, a: Outsider, opener: str, place: str = "") -> AsyncIterator[Page]:
    """Open the page of a node as its owner, and a form by the button with these words."""
    async with new_page(browser) as page:
        await page.open(f"{a.url}/#token={a.token}")
        await page.until(LIVE)
        if place:
            await page.evaluate(f"location.hash = '{place}'")
        await press_button(page, "body", opener)
        await page.until(f"{BODY}.querySelector('form')")
        assert await violations(page) == []
        yield page
        # The browser itself complains of answers that the page tells in words.
        wrong = [each for each in page.complaints() if " (Unprocessable " not in each]
        assert wrong == []


async def test_a_task_is_created_beside_its_plan(browser: str, a: Outsider) -> None:
    """The form has the fields of each test, shows the plan beside them, and creates the task."""
    async with form_of(browser, a, "New task …") as page:
        await page.until(says("Still needed: dest."))
        assert await page.evaluate(f"{BODY}.querySelector('.confirm').disabled")
        await choose(page, "test", "idle")
        await page.until(says("Takes 1 s on each node, background"))
        await choose(page, "duration", "2 s")
        await choose(page, "class", '"normal"')
        await choose(page, "repeat", "1 h 30 min")
        await page.until(f"{says('Takes 2 s on each node, normal')} && {says('Starts')}")
        await page.until(f"{BODY}.querySelector('.call pre').textContent.includes('PT1H30M')")
        before = (await a.get("/v1/tasks", limit=1))["items"]
        await press_button(page, "#act", "Create this task")
        await page.until(says("was created"))
        task = (await a.get("/v1/tasks", limit=1))["items"][0]
        assert task["id"] not in {each["id"] for each in before}
        spec = {"duration": "PT2S", "class": "normal", "participants": []}
        assert task["test"] == {"type": "idle", "spec": spec}
        assert task["schedule"]["repeat"] == "PT1H30M"
        await press_button(page, "#act", "Undo: cancel")
        await page.until(says("The task is cancelled."))


@pytest.mark.nightly
async def test_an_alternative_is_taken_by_a_click(browser: str, a: Outsider) -> None:
    """The plan of a task without time has other tasks, each of which fills the form."""
    spec = {"duration": "PT20M", "class": "exclusive"}
    blocker = await a.planned(await a.create("idle", spec=spec))
    try:
        async with form_of(browser, a, "New task …") as page:
            await choose(page, "test", "idle")
            await choose(page, "class", '"exclusive"')
            await choose(page, "slip", "30 s")
            await page.until(says("What would find time"))
            await page.until(f"{BODY}.querySelector('.alternatives button')")
            await page.evaluate(f"{BODY}.querySelector('.alternatives button').click()")
            await page.until(f"{BODY}.querySelector('.preview .verdict.done')")
            await page.until(says("Starts"))
    finally:
        await a.cancel(blocker)


@pytest.mark.nightly
async def test_a_task_is_edited_and_put_back(browser: str, a: Outsider) -> None:
    """The form of a task says what would be changed, changes just that, and can put it back."""
    fields = {"schedule": {"repeat": "PT1H"}, "reference": {"ticket": 7}}
    task = await a.planned(await a.create("idle", **fields))
    path = f"/v1/tasks/{task['id']}"
    async with form_of(browser, a, "Edit", f"task={task['id']}") as page:
        await page.until(says("Nothing is changed yet."))
        await choose(page, "repeat", "30m")
        await choose(page, "duration", "P1000D")
        await page.until(f"{BODY}.querySelector('.field .wrong:not([hidden])')")
        await choose(page, "duration", "3s")
        await page.until(f"{says('repeat: 1 h → 30 min')} && {says('duration: by default → 3 s')}")
        await press_button(page, "#act", "Change this task")
        await page.until(says("The task is changed."))
        changed = await a.get(path)
        assert (changed["schedule"]["repeat"], changed["duration"]) == ("PT30M", "PT3S")
        assert changed["reference"] == fields["reference"]
        await press_button(page, "#act", "Undo: put it back")
        await page.until(says("The task is as it was before."))
        back = await a.get(path)
        assert (back["schedule"], back["test"]) == (task["schedule"], task["test"])
    await a.cancel(task)


@pytest.mark.nightly
async def test_a_mesh_file_is_checked_planned_and_applied(browser: str, a: Outsider) -> None:
    """A pasted file is checked line by line, planned, applied, and what was created taken back."""
    async with form_of(browser, a, "Mesh file …", "view=mesh") as page:
        await choose(page, "mesh file, in TOML or JSON", MESH.replace('"hourly"', '"hourli"'))
        await page.until(says("line 10, /measure/0/schedule"))
        await choose(page, "mesh file, in TOML or JSON", MESH)
        await page.until(says("Mesh pasted: 2 would be created, 0 edited, 0 cancelled"))
        await page.until(says("runs would be booked, the first at"))
        await press_button(page, "#act", "Apply to 2 tasks")
        await page.until(says("Mesh pasted: 2 created"))
        mesh = await a.get("/v1/meshes/pasted")
        assert mesh["tasks"] == {"active": 2}
        asked = {"text": MESH.replace("PT1H", "PT30M").replace('["a", "b"]', '["a", "b", "c"]')}
        trial = (await a.ask("POST", "/v1/meshes/trials", asked)).body
        assert [len(trial[each]) for each in ("create", "edit", "end")] == [4, 2, 0]
        await press_button(page, "#act", "Undo: cancel what was created")
        await page.until(says("What was created is cancelled."))
        assert (await a.get("/v1/meshes/pasted"))["tasks"] == {"cancelled": 2}


@pytest.mark.nightly
async def test_a_reservation_is_made_edited_and_removed(browser: str, a: Outsider) -> None:
    """A record is created by its form, changed and put back, and removed after a question."""
    async with form_of(browser, a, "New reservation …", "view=sharing") as page:
        for label, value in (("kind", '"quiet"'), ("name", "Switch"), ("start", "in 20 h")):
            await choose(page, label, value)
        await choose(page, "duration", "1 s")
        await page.until(f"{BODY}.querySelector('.call pre').textContent.includes('PT20H')")
        await press_button(page, "#act", "Create this reservation")
        await page.until(says("is 1 s; give 1 min or longer"))
        await choose(page, "duration", "1 h")
        await press_button(page, "#act", "Create this reservation")
        await page.until(says("The reservation Switch was created"))
        (made,) = (await a.get("/v1/reservations"))["items"]
        assert (made["kind"], made["duration"]) == ("quiet", "PT1H")
        await page.press("Escape")
        await click_labelled(page, "edit Switch")
        await page.until(f"{BODY}.querySelector('form')")
        await choose(page, "duration", "90 min")
        await page.until(says("duration: 1 h → 1 h 30 min"))
        await press_button(page, "#act", "Change this reservation")
        await press_button(page, "#act", "Undo: put it back")
        await page.until(says("as it was before"))
        assert (await a.get(f"/v1/reservations/{made['id']}"))["duration"] == "PT1H"
        await page.press("Escape")
        await click_labelled(page, "remove Switch")
        await page.until("document.activeElement.textContent === 'Leave it'")
        assert await violations(page) == []
        await press_button(page, "#act", "Remove")
        await page.until(says("It is removed."))
        assert (await a.get("/v1/reservations"))["items"] == []


@pytest.mark.nightly
async def test_a_pool_has_its_policies_edited(browser: str, a: Outsider) -> None:
    """A pool is created by its form, and its policies are changed there."""
    async with form_of(browser, a, "New pool …", "view=sharing") as page:
        await choose(page, "name", "written")
        await choose(page, "match", "{country")
        await page.until(says("This is not JSON"))
        await choose(page, "match", '{"name": "a"}')
        await press_button(page, "#act", "Create this pool")
        await page.until(says("The pool written was created"))
        await page.press("Escape")
        await click_labelled(page, "edit written")
        await page.until(f"{BODY}.querySelector('form')")
        await choose(page, "set", "pscheduler")
        await press_button(page, "#act", "Change this pool")
        await page.until(says("The pool written is changed"))
        assert (await a.get("/v1/pools/written"))["policy"]["set"] == "pscheduler"
    answer = await a.ask("DELETE", "/v1/pools/written")
    assert answer.status == 204
