"""Many requests at a time: all are tried, few at once, and what is hopeless stops them."""

from __future__ import annotations

import io

import pytest

from node.cli.meshwork import Work
from node.cli.progress import Progress
from node.model import times
from node.model.errors import Conflict, ParleyError, PeerUnreachable, RefusedByParticipant
from tests.clocks import ManualClock


def _work(clock: ManualClock, at_once: int) -> tuple[Work, io.StringIO]:
    told = io.StringIO()
    return Work(Progress(stream=told), clock, at_once), told


@pytest.mark.parametrize("at_once", [1, 3, 64])
async def test_all_are_tried_and_few_at_once(clock: ManualClock, at_once: int) -> None:
    """Failures are counted by cause, with one of those they met; the most frequent sets the end."""
    work, told = _work(clock, at_once)
    seen: list[int] = []
    most = running = 0

    async def act(number: int) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await clock.sleep(0)
        clock._now += times.SECOND
        seen.append(number)
        running -= 1
        if number % 3 == 0:
            raise RefusedByParticipant("b: no")
        if number == 1:
            raise Conflict("twice")

    await work.each("created", range(10), str, act)
    assert sorted(seen) == list(range(10))
    assert most == min(at_once, 10)
    assert (work.done["created"], work.left, work.exit_code) == (5, 0, 3)
    assert [(f["detail"], f["count"]) for f in work.failures()] == [("b: no", 4), ("twice", 1)]
    assert work.failures()[0]["example"] == "0"
    assert "created: 5 of 10, 1.0/s, 5 s left" in told.getvalue()


@pytest.mark.parametrize("error", [PeerUnreachable("nobody answers"), Conflict("twice")])
async def test_what_is_hopeless_stops_all(clock: ManualClock, error: ParleyError) -> None:
    """What is left is counted, also of what would have come behind it."""
    work, _ = _work(clock, 1)

    async def act(number: int) -> None:
        if number == 2:
            raise error

    await work.each("edited", range(5), str, act)
    await work.each("created", range(5), str, act)
    hopeless = isinstance(error, PeerUnreachable)
    assert (work.done["edited"], work.left) == ((2, 7) if hopeless else (4, 0))
    assert work.done["created"] == (0 if hopeless else 4)
