"""Booking under all faults at once: hypothesis chooses what happens to three real nodes.

Nodes and databases are real; wires and clock belong to the test. A message may be lost before or
after its effect, be repeated or delayed, or meet a lead that dies, a clock that jumps, a
cancellation or another lead's plan. No invariant may be violated after any step; at the end all
wires are healed, time passes, and everything must have settled by itself.

``PARLEY_EXAMPLES=2000 python -m pytest tests/integration/test_booking_machine.py`` runs that many
examples without a time limit.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lead.planning.agenda import PAUSE_MAX
from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import Conflict, NotFound, ParleyError, PeerUnreachable
from node.model.wire.participants import HoldAnswer, Introduction
from node.model.wire.tasks import Schedule
from node.store import runs
from node.store.database import Database
from tests.support.clocks import START, ManualClock
from tests.support.invariants import always, settled
from tests.support.worlds import (
    DURATION,
    HOLD_LIFE,
    Call,
    Site,
    Wire,
    World,
    exchange_of,
    hold_request,
    introduction,
)

T = TypeVar("T")
Fault: TypeAlias = tuple[str, int, str, str]
Wish: TypeAlias = tuple[int, list[int], SchedulingClass, int, Schedule]

EXAMPLES = int(os.environ.get("PARLEY_EXAMPLES", "3"))
MORE_EXAMPLES = 20
STEPS = 16
TASKS_MAX = 12
TICK = 7 * times.SECOND

NODES = st.integers(0, 2)
ANY = st.integers(0, 30)
CLASSES = st.sampled_from(
    [SchedulingClass.EXCLUSIVE] * 3 + [SchedulingClass.NORMAL, SchedulingClass.BACKGROUND]
)
SCHEDULES = st.builds(
    lambda start, slip, repeat, max_runs: Schedule(
        start=START + start * DURATION,
        slip=slip * DURATION,
        repeat=repeat and repeat * DURATION,
        until=repeat and START + (start + 3 * repeat) * DURATION,
        max_runs=repeat and max_runs,
        slip_random=slip == 2,
    ),
    start=st.integers(3, 4),
    slip=st.integers(0, 2),
    repeat=st.none() | st.none() | st.integers(1, 3),
    max_runs=st.none() | st.integers(1, 2),
)
FAULTS = st.tuples(
    st.sampled_from(["hold", "commit", "hold", "propose", "release"]),
    st.sampled_from([1, 1, 2]),
    st.sampled_from(["answered", "asked"]),
    st.sampled_from(
        ["die", "drop", "die", "cut", "wait", "die", "cancel run", "plan", "cancel task"]
    ),
)
"""The kind of message, its number, whether before or after its effect, and what happens then."""

_LETTERS = "SELECT next_at FROM outbox"

WISHES = st.tuples(
    NODES,
    st.lists(NODES, min_size=1, max_size=3, unique=True),
    CLASSES,
    st.integers(-1, 2),
    SCHEDULES,
)
"""Lead, participants, class, priority and schedule of a task; few slots, so that they conflict."""


class Lender(Protocol):
    """A provider of databases."""

    async def lend(self, size: int) -> Database:
        """Return an empty database."""
        ...

    async def take_back(self, database: Database) -> None:
        """Clear a database for reuse."""
        ...

    async def close(self) -> None:
        """Close all databases."""
        ...


class TappedWire(Wire):
    """A wire that records its messages, so that they can be repeated."""

    tape: list[tuple[Call, Callable[[], Awaitable[Any]]]]
    heard: dict[int, Any]

    async def _call(self, what: str, action: Callable[[], Awaitable[T]]) -> T:
        place = len(self.tape)
        self.tape.append(((self._sender.name, self.name, what), action))

        async def record_answer() -> T:
            self.heard[place] = answer = await action()
            return answer

        return await super()._call(what, record_answer)


class Booking(RuleBasedStateMachine):
    """Three nodes, some tasks, and all that can happen to them."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, lender: Lender, scratch: str, directory: Path
    ) -> None:
        """Create a machine on one loop; the databases are reused by the next example."""
        super().__init__()
        self.loop = loop
        self.scratch = scratch
        self.lender = lender
        self.world = World(lender.lend, ManualClock(), directory)
        self.tasks: list[tuple[Site, Introduction]] = []
        self.tape: list[tuple[Call, Callable[[], Awaitable[Any]]]] = []
        self.heard: dict[int, Any] = {}

    def do(self, action: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        return self.loop.run_until_complete(action)

    @initialize(wishes=st.lists(WISHES, min_size=2, max_size=4), fault=FAULTS)
    def begin(self, wishes: list[Wish], fault: Fault) -> None:
        """Start three nodes that know each other, and create some tasks."""

        async def begin() -> None:
            await self.world.__aenter__()
            for name in "abc":
                await self.world.site(name, connections=6)
            for site in self.world.sites:
                wires = {}
                for other in self.world.sites:
                    wire = TappedWire(self.world, site, other)
                    wire.tape, wire.heard = self.tape, self.heard
                    wires[other.identity] = wire
                site.node.wires = wires  # type: ignore[attr-defined]

        self.do(begin())
        for wish in wishes:
            self.wish(wish, fault)

    @property
    def sites(self) -> list[Site]:
        """Return the nodes."""
        return self.world.sites

    # -- what users do -----------------------------------------------------------------------------

    @precondition(lambda self: len(self.tasks) < TASKS_MAX)
    @rule(wish=WISHES, fault=st.none() | FAULTS)
    def wish(self, wish: Wish, fault: Fault | None) -> None:
        """Create and plan a task whose participants do not know it yet."""
        lead, places, kind, priority, schedule = wish
        if schedule.start is None or schedule.start <= self.world.clock.now():
            return
        site = self.sites[lead]
        task = introduction(
            [self.sites[place] for place in places],
            accepted=None,
            scheduling_class=kind,
            priority=priority,
            schedule=schedule,
        ).model_copy(
            update={"task": UUID(int=len(self.tasks) + 1), "created_at": self.world.clock.now()}
        )
        self.do(site.keep(task, site))
        self.tasks.append((site, task))
        self.do(self._plan(site, fault))

    @precondition(lambda self: len(self.tasks) < TASKS_MAX)
    @rule(wishes=st.lists(WISHES, min_size=2, max_size=3), fault=FAULTS)
    def wishes(self, wishes: list[Wish], fault: Fault) -> None:
        """Create some tasks one after the other with the same fault."""
        for wish in wishes:
            self.wish(wish, fault)

    @precondition(lambda self: self.tasks)
    @rule(which=ANY, by=NODES)
    def cancel_task(self, which: int, by: int) -> None:
        """Cancel a task at its lead or at a participant."""
        self.do(self._cancel_task(which, by))

    async def _cancel_task(self, which: int, by: int) -> None:
        _, task = self.tasks[which % len(self.tasks)]
        try:
            await self.sites[by].node.termination.cancel_task(task.task)
        except NotFound:
            note("the task is not known there")

    @rule(which=ANY, by=NODES)
    def cancel_run(self, which: int, by: int) -> None:
        """Cancel a run at a node that knows it."""
        self.do(self._cancel_run(which, by))

    async def _cancel_run(self, which: int, by: int) -> None:
        site = self.sites[by]
        rows = await site.rows("SELECT id FROM run ORDER BY starts_at, id")
        if rows:
            await site.node.termination.cancel_run(rows[which % len(rows)][0])

    # -- what leads do -----------------------------------------------------------------------------

    @rule(lead=NODES, fault=st.none() | FAULTS)
    def plan(self, lead: int, fault: Fault | None) -> None:
        """Let a lead plan what is due, with a fault meanwhile."""
        self.do(self._plan(self.sites[lead], fault))

    @rule()
    def plan_together(self) -> None:
        """Let all leads plan at the same time."""

        async def together() -> None:
            await asyncio.gather(*(self._plan(site, None) for site in self.sites))

        self.do(together())

    async def _plan(self, site: Site, fault: Fault | None) -> None:
        if fault is not None:
            self.world.watch = self._watch(site, *fault)
        await site.workers.run_once()
        await asyncio.gather(*site.workers._busy, return_exceptions=True)
        if fault is not None:
            self.world.watch = None

    def _watch(
        self, lead: Site, what: str, number: int, when: str, effect: str
    ) -> Callable[[Call, str], Awaitable[None]]:
        count = 0

        async def watch(call: Call, phase: str) -> None:
            nonlocal count
            if (call[0], call[2], phase) != (lead.name, what, when):
                return
            count += 1
            if count != number:
                return
            self.world.watch = None
            note(f"{effect} at {call}, {phase}")
            await self._happen(effect, call)

        return watch

    async def _happen(self, effect: str, call: Call) -> None:
        """Interrupt a lead between two messages."""
        if effect == "die":
            raise asyncio.CancelledError
        if effect == "wait":
            await self._sleep(HOLD_LIFE + TICK)
        elif effect == "cancel run":
            await self._cancel_run(self.world.clock.now() % 31, self._place(call[1]))
        elif effect == "cancel task":
            await self._cancel_task(len(self.tape), self._place(call[1]))
        elif effect == "plan":
            await asyncio.gather(*(self._plan(s, None) for s in self.sites if s.name != call[0]))
        elif call[0] != call[1]:
            self.world.cut |= {frozenset(call[:2])} if effect == "cut" else set()
            raise PeerUnreachable(f"{call[1]} does not answer")

    def _place(self, name: str) -> int:
        return "abc".index(name)

    # -- what the network does ---------------------------------------------------------------------

    @rule(one=NODES, other=NODES)
    def cut(self, one: int, other: int) -> None:
        """Cut a wire, or mend it."""
        if one != other:
            self.world.cut ^= {frozenset((self.sites[one].name, self.sites[other].name))}

    @precondition(lambda self: self.tape)
    @rule(which=ANY)
    def again(self, which: int) -> None:
        """Repeat one of the last messages, or deliver it after it was given up."""
        place = max(0, len(self.tape) - 1 - which)
        call, action = self.tape[place]
        self.do(self._again(place, call, action))

    async def _again(self, place: int, call: Call, action: Callable[[], Awaitable[Any]]) -> None:
        note(f"{call} comes again")
        try:
            answer = await action()
        except ParleyError as error:
            note(error.detail)
            return
        if call[2] == "hold" and place in self.heard:
            assert isinstance(answer, HoldAnswer)
            assert answer == self.heard[place]
        self.heard[place] = answer

    @precondition(lambda self: self.tasks)
    @rule(which=ANY, at=NODES)
    def old_lease(self, which: int, at: int) -> None:
        """Send a hold under a lease that was lost long ago; it must be refused."""
        lead, task = self.tasks[which % len(self.tasks)]

        async def hold() -> None:
            site = self.sites[at]
            rows = await site.rows("SELECT lease_epoch FROM task WHERE id = $1", task.task)
            if not rows or not rows[0][0]:
                return
            request = hold_request(task, [START + 20 * DURATION], epoch=rows[0][0] - 1)
            try:
                answer = await site.node.time_line.hold(
                    exchange_of(request), lead.identity, request
                )
            except Conflict:
                return
            msg = f"a hold under an old lease was accepted: {answer}"
            raise AssertionError(msg)

        self.do(hold())

    # -- time --------------------------------------------------------------------------------------

    @rule(ticks=st.integers(1, 8))
    def time_passes(self, ticks: int) -> None:
        """Let some seconds pass while all nodes work."""
        self.do(self._pass(ticks * TICK, TICK))

    @rule(ticks=st.integers(1, 8))
    def a_lead_sleeps(self, ticks: int) -> None:
        """Let some seconds pass in which no lead plans or delivers, so that holds expire."""
        for _ in range(ticks):
            self.do(self._sleep(TICK))

    async def _sleep(self, duration: int) -> None:
        self.world.clock.advance(duration)
        for site in self.sites:
            await site.tend()

    @rule(minutes=st.integers(1, 6))
    def minutes_pass(self, minutes: int) -> None:
        """Let minutes pass, so that runs begin and end."""
        self.do(self._pass(minutes * times.MINUTE, times.MINUTE // 2))

    async def _pass(self, duration: int, step: int) -> None:
        end = self.world.clock.now() + duration
        while self.world.clock.now() < end:
            self.world.clock.advance(step)
            for site in self.sites:
                await self._plan(site, None)
                await site.deliver()
                await site.tend()
                await self._run(site)

    async def _run(self, site: Site) -> None:
        """Start and finish committed runs on time, as the launcher does."""
        now = site.clock.now()
        due = "SELECT id FROM run WHERE state = 'booked' AND starts_at <= $1"
        for row in await site.rows(due, now):
            async with site.database.transaction() as connection:
                await runs.begin(connection, row[0], now)
        over = "UPDATE run SET state = 'finished' WHERE state = 'running' AND ends_at <= $1"
        await site.execute(over, now)

    # -- what must hold ----------------------------------------------------------------------------

    @invariant()
    def nothing_forbidden(self) -> None:
        """Check what must hold at any time on each node."""
        for site in self.sites:
            assert self.do(always(site)) == []

    def teardown(self) -> None:
        """Mend all wires, let time pass, and check that everything has settled."""
        try:
            if self.sites:
                self.do(self._settle())
        finally:
            self.do(self._give_back())

    async def _settle(self) -> None:
        self.world.cut = set()
        await self._pass(2 * HOLD_LIFE + TICK, TICK)
        for site in self.sites:
            assert await always(site, holds=True) == []
        # The last plans may have displaced runs: deliver those messages without planning any more.
        while due := [row[0] for s in self.sites for row in await s.rows(_LETTERS)]:
            self.world.clock.move_to(min(due))
            for site in self.sites:
                await site.deliver()
                await site.tend()
        assert await settled(self.sites, self.scratch, HOLD_LIFE, PAUSE_MAX) == []

    async def _give_back(self) -> None:
        for site in self.sites:
            await self.lender.take_back(site.database)
        await self.world.__aexit__(None, None, None)


@pytest.mark.timeout(0 if "PARLEY_EXAMPLES" in os.environ else 300)
@pytest.mark.parametrize(
    "examples", [EXAMPLES, pytest.param(MORE_EXAMPLES, marks=pytest.mark.nightly)]
)
def test_booking_survives_whatever_happens(
    own_lender: Lender, empty_dsn: str, tmp_path: Path, examples: int
) -> None:
    """No sequence of plans, faults, cancellations and lost messages violates an invariant."""
    loop = asyncio.new_event_loop()

    class Here(Booking):
        """The machine with this loop and these databases."""

        def __init__(self) -> None:
            super().__init__(loop, own_lender, empty_dsn, tmp_path)

    try:
        run_state_machine_as_test(
            Here,
            settings=settings(
                max_examples=examples,
                stateful_step_count=STEPS,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                # Shrinking takes minutes; a failure is replayed by its blob.
                phases=[Phase.explicit, Phase.reuse, Phase.generate],
            ),
        )
    finally:
        loop.run_until_complete(own_lender.close())
        loop.close()
