"""A lead takes no part of a run that has not begun, over HTTP, and takes it once it has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from node.model import times
from node.model.early_parts import LAUNCH_HORIZON
from node.model.errors import TooEarly
from node.model.runstate import RunState
from node.model.wire.participants import IntervalShare, IntervalsMessage, PartMessage
from node.store import runs
from node.store.runs import KeptPart
from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.served_nodes import asker, served
from tests.support.served_pairs import Pair, paired

LARGE = {"samples": "x" * 500_000}


@pytest.fixture
async def pair(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Pair]:
    """Serve a, the lead, and b."""
    async with (
        asker("a", await new_database(), clock, tmp_path / "a") as a,
        served("b", await new_database(), clock, tmp_path / "b") as b,
    ):
        yield await paired(a, b, clock)


async def _first_run(pair: Pair) -> tuple[UUID, int]:
    """Book two runs; return the first one and its start."""
    await pair.book(1)
    [run, _] = await pair.a.rows("SELECT id, starts_at FROM run ORDER BY starts_at")
    return run[0], run[1]


def _part(run: UUID, at: int | None, reason: str | None = None) -> PartMessage:
    result = LARGE if reason is None else None
    return PartMessage(
        run=run, result=result, reason=reason, started_at=at, finished_at=at, command=None
    )


async def _parts(pair: Pair) -> int:
    return len(await pair.a.rows("SELECT FROM part"))


async def test_a_part_of_a_run_that_has_not_begun_is_refused(pair: Pair) -> None:
    """Until clocks may say that the run has begun, its lead keeps nothing, and says when to ask."""
    run, start = await _first_run(pair)
    a = pair.b.peer(pair.a.node.card.identity)
    limit = pair.a.node.settings.clock_limit
    for ahead, seconds in ((times.MINUTE, 30), (limit + 1, 1)):
        pair.clock.move_to(start - ahead)
        with pytest.raises(TooEarly, match="there can be no part of it yet") as refused:
            await a.send_part(_part(run, start))
        assert refused.value.retry_after_s == seconds
        share = IntervalShare(number=0, result={}, reason=None)
        with pytest.raises(TooEarly):
            await a.send_intervals(IntervalsMessage(run=run, intervals=(share,)))
    assert await _parts(pair) == 0
    pair.clock.move_to(start - limit)
    await a.send_part(_part(run, start))
    assert await _parts(pair) == 1


async def test_why_a_part_cannot_begin_is_heard_before_the_start(pair: Pair) -> None:
    """A participant that finds that it cannot begin says so as soon as it looks at the run."""
    run, start = await _first_run(pair)
    a = pair.b.peer(pair.a.node.card.identity)
    looked_at = start - LAUNCH_HORIZON - pair.a.node.settings.clock_limit
    pair.clock.move_to(looked_at - 1)
    with pytest.raises(TooEarly):
        await a.send_part(_part(run, None, "the tool is missing"))
    pair.clock.move_to(looked_at)
    await a.send_part(_part(run, None, "the tool is missing"))
    assert await _parts(pair) == 1


async def test_a_part_that_came_too_early_is_sent_again(pair: Pair) -> None:
    """A part that a lead refuses because its clock was wrong comes to it all the same."""
    run, start = await _first_run(pair)
    pair.clock.move_to(start - times.MINUTE)
    async with pair.b.database.transaction() as connection:
        assert await runs.begin(connection, run, start)
    part = KeptPart(1, "b", {"slept_ms": 1.0}, None, start, start)
    await pair.b.collector.keep_own(run, part, RunState.FAILED)
    await pair.b.outbox.run_once()
    assert await _parts(pair) == 0
    pair.clock.move_to(start)
    await pair.b.outbox.run_once()
    assert await _parts(pair) == 1
