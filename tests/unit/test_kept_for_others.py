"""Time reserved for a blocked task is also protected when the runs of others are booked."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from lead.model.records import PoolTask
from lead.planning.pool_view import SeatCase
from lead.policy.view import CampaignView
from lead.pool.assignment import CaseResult
from node.model import times
from node.model.classes import SchedulingClass
from node.model.recurrence import slip_of
from node.model.scheduling import recurrence_of
from node.model.terms import Term
from node.model.timeline import Booking
from node.model.wire.seats import SeatRequest
from tests.support.clocks import START
from tests.support.episodes import Host, booked, case_of, run_episode

NAMES = [f"n{number}" for number in range(1, 21)]
KEPT_FROM = START + 5 * times.MINUTE
"""The end of the run that the lead knows of; all twenty nodes seem to be free then."""


def _lasting(pool_task: PoolTask, duration: int) -> PoolTask:
    return replace(pool_task, terms=replace(pool_task.terms, duration=duration))


def _blocked(after: int) -> SeatCase:
    """Return the longest waiting task: twenty nodes together for two minutes, at ``after``."""
    case = case_of("all", "ops", NAMES, 20, created_at=START - times.DAY)
    pool_task = _lasting(case.pool_task, 2 * times.MINUTE)
    at = START + after
    return replace(
        case,
        pool_task=pool_task,
        request=SeatRequest(pool="europe", k=20, together=True),
        open=replace(case.open, term=Term(at, at + times.HOUR), over_at=at + times.HOUR),
        slots=[at],
        begins=at,
    )


def _single(node: str, duration: int, *, hours: int) -> SeatCase:
    """Return runs on one node whose slip of ten minutes reaches into the reserved time."""
    case = case_of(f"on {node}", "ops", [node], hours=hours)
    return replace(case, pool_task=_lasting(case.pool_task, duration))


async def _held(single: SeatCase, after: int = 0) -> CaseResult:
    """Return the result of the single task in an episode where a later one is blocked."""
    blocked = _blocked(after)
    hosts = [Host(name) for name in NAMES]
    run = UUID(int=1), UUID(int=2), "idle", SchedulingClass.EXCLUSIVE, 9
    hosts[-1].bookings.append(
        Booking(*run, at := START + after, at + 30 * times.MINUTE, fixed=False)
    )
    runs = [booked("r1", "ops", ["n1"], start=at, end=KEPT_FROM + after)]
    pool = {"policy_set": "maui-reservations"}
    ruling = await run_episode(hosts, [CampaignView("ops")], [blocked, single], pool, runs)
    by_name = {result.case.name: result for result in ruling.results}
    assert dict(by_name.pop(blocked.name).taken) == {}
    [result] = by_name.values()
    return result


@pytest.mark.parametrize("hours", [1, 3])
async def test_runs_beside_a_protected_slot_slip_no_further(hours: int) -> None:
    """The ordinary task ends before the slot however late it is booked within its slip."""
    result = await _held(_single("n2", 3 * times.MINUTE, hours=hours))
    assert dict(result.taken) == {1: "n2"}
    [part] = result.parts
    recurrence = recurrence_of(part.task.terms.schedule, START)
    assert recurrence.anchor == START
    slip = slip_of(recurrence, part.task.terms.duration, START)
    assert START + slip + part.task.terms.duration == KEPT_FROM


@pytest.mark.parametrize(("hours", "slip"), [(3, 2 * times.MINUTE), (2, 10 * times.MINUTE)])
async def test_a_slot_beside_later_runs_of_a_term_is_protected_too(hours: int, slip: int) -> None:
    """All runs of a term slip no further than its last run may before the slot."""
    result = await _held(_single("n2", 3 * times.MINUTE, hours=hours), 2 * times.HOUR)
    assert dict(result.taken) == {1: "n2"}
    [part] = result.parts
    recurrence = recurrence_of(part.task.terms.schedule, START)
    assert slip_of(recurrence, part.task.terms.duration, START) == slip


async def test_no_seat_if_its_run_cannot_end_before_the_slot() -> None:
    """A node that is busy until then is skipped: the reason names the slot, and when it is over."""
    result = await _held(_single("n1", 3 * times.MINUTE, hours=1))
    assert (dict(result.taken), list(result.parts)) == ({}, [])
    start, end = (times.to_the_second(KEPT_FROM + each * times.MINUTE) for each in (0, 2))
    holder = f"task {_blocked(0).pool_task.id}, which is blocked"
    assert result.reasons == {"n1": f"its time from {start} to {end} is kept for {holder}"}
