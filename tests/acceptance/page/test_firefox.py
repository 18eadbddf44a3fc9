"""The page in a real Firefox: its views, what it does, and the events that it follows."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from node.api.page import static_files
from tests.acceptance.outsider import Outsider
from tests.support.firefox import FirefoxPage, firefox
from tests.support.mesh_day import MeshDay
from tests.support.page_hands import MESH, choose, click_button, click_labelled, says
from tests.support.page_opened import LIVE
from tests.support.page_views import VIEWS, go

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.needs("firefox"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def fox() -> AsyncIterator[FirefoxPage]:
    """Start a Firefox, which all tests of this file share."""
    async with firefox() as page:
        yield page


async def opened(fox: FirefoxPage, at: Outsider | MeshDay) -> None:
    """Open the page of a node as its owner."""
    fox.complaints.clear()
    await fox.open(f"{at.url}/#token={at.token}")
    await fox.until(f"{LIVE} && document.querySelector('#new-task:not([hidden])')")


async def close(fox: FirefoxPage) -> None:
    """Close the dialog."""
    await fox.evaluate("document.getElementById('act-close').click()")
    await fox.until("!document.getElementById('act').open")


@pytest.mark.nightly
async def test_each_view_is_drawn_in_firefox(fox: FirefoxPage, day: MeshDay) -> None:
    """All modules load, each view is drawn as wide as the window at most, and nothing complains."""
    await opened(fox, day)
    for name in static_files():
        if name.endswith(".js") and "uplot" not in name:
            await fox.evaluate(f"import('/web/{name}').then(() => true)")
    for name in VIEWS:
        await go(fox, name)
        assert await fox.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
    await fox.evaluate(f"void (location.hash = 'view=events&run={day.explained}')")
    await fox.until("document.querySelector('#drawer[open] .trace')")
    assert fox.complaints == []


@pytest.mark.nightly
async def test_each_action_works_in_firefox(fox: FirefoxPage, a: Outsider) -> None:
    """A task is paused, planned again, measured now, edited, and cancelled with all like it."""
    fields = {"schedule": {"repeat": "PT1H"}, "reference": {"mesh": "foxes"}}
    tasks = [await a.planned(await a.create("idle", **fields)) for _ in range(2)]
    await opened(fox, a)
    await fox.evaluate("void (location.hash = 'view=tasks')")
    await fox.until(f"document.querySelector('#tasks tr.running[data-key=\"{tasks[0]['id']}\"]')")
    await fox.evaluate(f"void (location.hash = 'task={tasks[0]['id']}')")
    for offered, confirmed, outcome, undo, undone in (
        ("Pause", "Pause", "The task is paused.", "Undo: resume", "The task is planned again."),
        ("Run now", "Run now", "measures once", "Undo: cancel", "The task is cancelled."),
    ):
        await click_button(fox, "#filter-actions", offered)
        await click_button(fox, "#act", confirmed)
        await fox.until(says(outcome))
        await click_button(fox, "#act", undo)
        await fox.until(says(undone))
        await close(fox)
    await click_button(fox, "#filter-actions", "Edit")
    await fox.until(says("Nothing is changed yet."))
    await choose(fox, "repeat", "30m")
    await click_button(fox, "#act", "Change this task")
    await fox.until(says("The task is changed."))
    assert (await a.get(f"/v1/tasks/{tasks[0]['id']}"))["schedule"]["repeat"] == "PT30M"
    await close(fox)
    await click_button(fox, "#filter-actions", "Cancel all like this")
    await click_button(fox, "#act", "Cancel 2 tasks")
    await fox.until(says("2 tasks cancelled"))
    await close(fox)
    # An event tells the view.
    await fox.evaluate("void (location.hash = 'view=tasks')")
    await fox.until(f"document.querySelector('#tasks tr.gone[data-key=\"{tasks[1]['id']}\"]')")
    assert fox.complaints == []


@pytest.mark.nightly
async def test_each_form_works_in_firefox(fox: FirefoxPage, a: Outsider) -> None:
    """A task, a mesh, a reservation and a pool are created by their forms, and taken back."""
    await opened(fox, a)
    await click_button(fox, "body", "New task …")
    await fox.until("document.getElementById('task-test')")
    await choose(fox, "test", "idle")
    await fox.until("document.querySelector('#act .verdict.done')")
    await click_button(fox, "#act", "Create this task")
    await click_button(fox, "#act", "Undo: cancel")
    await fox.until(says("The task is cancelled."))
    await close(fox)
    await fox.evaluate("void (location.hash = 'view=mesh')")
    await click_button(fox, "body", "Mesh file …")
    await fox.until("document.querySelector('#act-body form')")
    await choose(fox, "mesh file, in TOML or JSON", MESH.replace("pasted", "typed"))
    await click_button(fox, "#act", "Apply to 2 tasks")
    await click_button(fox, "#act", "Undo: cancel what was created")
    await fox.until(says("What was created is cancelled."))
    await close(fox)
    await fox.evaluate("void (location.hash = 'view=sharing')")
    fields = {"kind": '"quiet"', "name": "Fox", "start": "in 20 h", "duration": "1 h"}
    for kind, values in (("reservation", fields), ("pool", {"name": "fox", "match": "{}"})):
        await click_button(fox, "body", f"New {kind} …")
        await fox.until("document.querySelector('#act-body form')")
        for label, value in values.items():
            await choose(fox, label, value)
        await click_button(fox, "#act", f"Create this {kind}")
        await fox.until(says(f"The {kind} {values['name']} was created"))
        await close(fox)
        await click_labelled(fox, f"remove {values['name']}")
        await click_button(fox, "#act", "Remove")
        await fox.until(says("It is removed."))
        await close(fox)
    wrong = [each for each in fox.complaints if "422" not in each]
    assert wrong == []
