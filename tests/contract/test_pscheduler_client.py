"""The client of hosts that run pScheduler, with a host that is written from the protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID, uuid4

import aiohttp
import pytest

from node.client.pscheduler import OfferedTool, PschedulerHost, PschedulerHosts
from node.model import times
from node.model.errors import (
    Conflict,
    NotAllowed,
    NotFound,
    PeerAnswered,
    PeerUnreachable,
    RequestError,
)
from node.runtime.clock import SystemClock
from tests.support.pscheduler.participant import Fault, StandIn, free_ports

KEY = "secret"
IDLE = {"type": "idleex", "spec": {"schema": 1, "duration": "PT5S"}}


@pytest.fixture
async def stand_in(tmp_path: Path) -> AsyncIterator[StandIn]:
    """A host that runs pScheduler, on loopback."""
    async with StandIn("ps.example", tmp_path, free_ports()) as host:
        yield host


@pytest.fixture
async def host(stand_in: StandIn) -> AsyncIterator[PschedulerHost]:
    """Its client."""
    async with aiohttp.ClientSession() as session:
        yield PschedulerHosts(session).client_at(stand_in.url)


async def joined(host: PschedulerHost) -> UUID:
    """Return a task in which the host takes part."""
    task = uuid4()
    document = {
        "test": IDLE,
        "schedule": {},
        "tool": "sleep",
        "participants": ["127.0.0.1", "ps.example"],
        "_key": KEY,
    }
    await host.join(task, 1, document)
    return task


def soon() -> int:
    """Return a whole second in some time."""
    now = SystemClock().now()
    return now - now % times.SECOND + times.HOUR


async def test_it_describes_itself(host: PschedulerHost) -> None:
    """Name, level, clock, horizon, and tools are read, whatever the certificate is."""
    described = await host.describe()
    assert (described.name, described.level) == ("ps.example", 6)
    assert abs((await host.clock()).now - SystemClock().now()) < times.MINUTE
    assert await host.horizon() == times.DAY
    assert await host.tools(IDLE) == [OfferedTool("sleep"), OfferedTool("nuttcp", "No such thing")]


async def test_a_node_of_parley_is_no_such_host(host: PschedulerHost, stand_in: StandIn) -> None:
    """A node that answers as pScheduler does is refused; it is added by its own URL."""
    stand_in.greeting = "This is a Parley 0.3 server on b."
    with pytest.raises(PeerAnswered, match=r"a node of Parley answers at .*; add it by"):
        await host.describe()


async def test_a_run_is_booked_completed_and_taken_back(
    host: PschedulerHost, stand_in: StandIn
) -> None:
    """A lead's conversation: post, ask for time, book, tell the data, look, and take back."""
    task, run, start = await joined(host), uuid4(), soon()
    assert host.duration_of(await host.task(task, KEY)) == 6 * times.SECOND
    span = (start, start + times.MINUTE)
    assert await host.runtimes(task, KEY, span, None) == [span]
    await host.book(task, run, KEY, start)
    assert host.start_of(await host.run(task, run, KEY)) == start
    await host.tell_data(task, run, KEY, [{}, {}])
    assert stand_in.runs[0].data_full == [{}, {}]
    after = (start + 6 * times.SECOND, span[1])
    assert await host.runtimes(task, KEY, span, None) == [after]
    assert list(await host.schedule(task, *span)) == [run]
    await host.drop(task, run, KEY)
    with pytest.raises(NotFound):
        await host.run(task, run, KEY)
    await host.end_task(task, KEY)
    assert stand_in.open_tasks == []


async def test_its_texts_become_messages(host: PschedulerHost, stand_in: StandIn) -> None:
    """An error keeps the words of the host, and is of the kind that its status says."""
    task, start = await joined(host), soon()
    await host.book(task, uuid4(), KEY, start)
    with pytest.raises(Conflict, match="scheduling conflict"):
        await host.book(task, uuid4(), KEY, start)
    with pytest.raises(NotAllowed):
        await host.book(task, uuid4(), "another", start + times.HOUR)
    with pytest.raises(RequestError, match="separate systems"):
        await host.join(task, 1, {"schedule": {}, "tool": "sleep", "participants": []})
    with pytest.raises(NotFound):
        await host.task(uuid4(), KEY)


async def test_a_host_that_dies_while_it_books_cannot_be_reached(
    host: PschedulerHost, stand_in: StandIn
) -> None:
    """An answer that does not come is told as such; the booking may stand."""
    task = await joined(host)
    stand_in.faults.add(Fault.DIES_AFTER_BOOKING)
    with pytest.raises(PeerUnreachable, match=r"127\.0\.0\.1"):
        await host.book(task, uuid4(), KEY, soon())
    assert len(stand_in.booked) == 1


@pytest.mark.parametrize(
    "answer",
    [
        "[" * 100_000,
        '{"state": ["pending"], "participant-data": 7, "result": "x", "errors": {}}',
        "null",
        '"text"',
        "7",
    ],
)
async def test_odd_answers_are_told_as_such(
    host: PschedulerHost, stand_in: StandIn, answer: str
) -> None:
    """A document that is not what pScheduler tells is an error, or lacks what cannot be read."""
    task = await joined(host)
    stand_in.odd = answer
    try:
        run = await host.run(task, uuid4(), KEY)
    except PeerAnswered:
        return
    assert run == {}
