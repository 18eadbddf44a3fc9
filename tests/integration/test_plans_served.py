"""Plans over HTTP, of a node without a lead."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import aiohttp
import pytest

from node.client.users import UserClient
from node.model import times
from node.model.errors import InvalidDocument, NotFound, NoTime
from node.model.principals import Role
from node.model.wire.plans import Outcome
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.reservations import document as reservation
from tests.support.served_nodes import Asker, Served, answered, give_token, know, served

MESH = """
name = "wide"
[groups]
all = ["a", "b"]
[tests.idle]
type = "idle"
spec = { duration = "PT1M", class = "exclusive" }
[schedules.hourly]
repeat = "PT1H"
[[measure]]
shape = "full-mesh"
members = "all"
test = "idle"
schedule = "hourly"
"""
ELSEWHERE = """
archives = ["elsewhere"]
[archives.elsewhere]
archiver = "http"
spec = { url = "http://127.0.0.1:1/" }
"""


@pytest.fixture
async def pair(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[tuple[Served, Served]]:
    """Return two nodes that know each other; neither has a lead, and a has an owner."""
    async with contextlib.AsyncExitStack() as stack:
        a = await stack.enter_async_context(served("a", await new_database(), clock, tmp_path))
        b = await stack.enter_async_context(served("b", await new_database(), clock, tmp_path))
        await know(a, b)
        await know(b, a)
        await give_token(a)
        yield a, b


@pytest.fixture
async def client(pair: tuple[Served, Served], clock: ManualClock) -> AsyncIterator[UserClient]:
    """Return the client of the owner of a, which knows b; neither has a lead."""
    async with UserClient(pair[0].settings.public_url, "secret", clock) as user:
        yield user


async def test_a_node_without_its_lead_answers(client: UserClient) -> None:
    """A node whose lead is another process makes plans by asking the participants itself."""
    spec = {"duration": "PT1M", "class": "exclusive", "participants": ["a", "b"]}
    plan = await client.plan({"test": {"type": "idle", "spec": spec}, "runs": 1})
    assert (plan.outcome, plan.placed) == (Outcome.FOUND, 1)
    assert [participant.answer for participant in plan.participants] == ["accepts", "accepts"]
    assert [full.added_s for full in plan.occupancy] == [60, 60]


async def test_a_pool_task_is_planned_without_a_lead(client: UserClient) -> None:
    """A plan of a pool task names the nodes of its seats without a running lead."""
    spec = {"duration": "PT1M", "class": "exclusive"}
    await client.add_pool({"name": "all", "match": {}})
    document = {"test": {"type": "idle", "spec": spec}, "participants": {"pool": "all", "k": 2}}
    plan = await client.plan(document)
    assert (await client.tasks(seats=True)).items == ()
    assert (plan.outcome, plan.placed) == (Outcome.FOUND, 2)
    assert [seat.number for seat in plan.seats] == [1, 2]
    assert {seat.node for seat in plan.seats} == {"a", "b"}
    assert [full.added_s for full in plan.occupancy] == [60, 60]


async def test_only_an_open_task_led_here_can_be_replaced(client: UserClient) -> None:
    """A plan says which task it cannot be the edit of, and why."""
    document = {"test": {"type": "idle", "spec": {"duration": "PT1M"}}}
    task = await client.create_task({**document, "schedule": {"repeat": "PT1H"}})
    replacing = {**document, "instead_of": str(task.id)}
    assert (await client.plan(replacing)).outcome is Outcome.FOUND
    await client.add_pool({"name": "all", "match": {}})
    with pytest.raises(InvalidDocument, match="named nodes only"):
        await client.plan({**replacing, "participants": {"pool": "all", "k": 1}})
    await client.cancel_task(task.id)
    with pytest.raises(InvalidDocument, match="is cancelled"):
        await client.plan(replacing)
    with pytest.raises(NotFound):
        await client.plan({**document, "instead_of": str(UUID(int=7))})


async def test_a_task_that_needs_time_is_refused_with_what_would_find_it(
    client: UserClient,
) -> None:
    """Nothing is created if no run finds time; what is offered instead can be posted."""
    await client.add_reservation(reservation(START, duration="PT1H"))
    document = {
        "test": {"type": "idle", "spec": {"duration": "PT1M", "class": "exclusive"}},
        "schedule": {"start": times.format_instant(START + 10 * times.MINUTE)},
    }
    with pytest.raises(NoTime, match="what would find time: 1") as refusal:
        await client.create_task(document, if_time=True)
    assert "reserved for demo 'SC26'" in refusal.value.detail
    assert (await client.tasks()).items == ()
    [offer, *_] = refusal.value.offers
    task = await client.create_task(offer.document, if_time=True)
    assert task.schedule.start is not None
    assert task.schedule.start >= START + times.HOUR


async def test_the_trial_of_a_mesh_asks_others_only_for_what_its_user_may_post(
    pair: tuple[Served, Served],
) -> None:
    """A user sends results nowhere: what they may not post is previewed with no participant."""
    a, b = pair
    await give_token(a, "of alice", "alice", Role.RUN)
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer of alice"}) as session:
        alice = Asker(a, session)
        for text, asked in ((MESH + ELSEWHERE, False), (MESH, True)):
            status, trial = await alice.ask("POST", "/v1/meshes/trials", {"text": text})
            assert (status, len(trial["create"])) == (200, 2), trial
            assert (answered(b, "/v1/participant/") > 0) is asked
