"""The invariants of a simulated world, which must hold whatever fails in it.

Some hold at every instant and are checked while the world runs (:func:`watch`); the others hold
once all faults are repaired and the nodes have settled (:func:`check`). The checks read the tables
and do not rely on the constraints that they verify.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lead.simulation import seats
from lead.simulation.clock import pause
from lead.simulation.memory.rows import RunRow, TaskRow, unpack
from lead.simulation.node import Host, SimulatedWorld
from node.model import times
from node.model.classes import SchedulingClass, blockers
from node.model.ids import TaskId, run_id
from node.model.recurrence import Recurrence, nominal_starts, slip_of
from node.model.runstate import LIVE, OVER, RunState
from node.model.scheduling import first_slot, recurrence_of
from node.model.taskstate import TaskState
from node.model.wire.campaigns import DEFAULT
from node.model.wire.tasks import Schedule
from node.tasks.termination import TOO_LATE

NAMES = (
    "no forbidden overlap on any node",
    "each run is on all its participants or on none",
    "no hold is older than twice its life",
    "nothing due is missing without a reason",
    "no slot is measured twice or under two ids",
    "every displaced run was planned again",
    "every message was delivered",
    "no node has two seats of a term, and no term has more seats than requested",
    "no slot of a pool task is measured more often than it has seats, or twice by a node",
    "every empty seat has its reason",
    "no fault in the program was logged",
)
"""The invariants that are checked, for the report."""

_STARTING = 15 * times.SECOND
"""Time a node may take to drop an old hold after a start, and between two looks."""
_UNDER_WAY = 2 * times.MINUTE
"""Time after which an operation that was in progress at some instant must have ended."""
_SLOTS_MAX = 100_000


def watch(world: SimulatedWorld) -> None:
    """Check the invariants that hold at every instant."""
    for host in world.hosts:
        for sentence in (
            *_overlaps(host),
            *_old_holds(host, world.loop.now),
            *seats.find_overfull_terms(host),
        ):
            world.history.violated(sentence)


async def check(world: SimulatedWorld) -> None:
    """Check the invariants that hold once the nodes have settled."""
    for host in world.hosts:
        harvest(world, host)
        tasks = host.database.tables.tasks.rows.values()
        told = (*_missing(world, host, tasks), *_told_twice(host))
        of_runs = (*_overlaps(host), *_stuck(host), *told)
        for sentence in (*of_runs, *seats.find_seat_faults(world, host)):
            world.history.violated(sentence)
    unsettled = dict.fromkeys(_unsettled(world))
    if unsettled:
        # An operation may just be in progress: only what is still unsettled later is a violation.
        await pause(_UNDER_WAY)
        still = set(_unsettled(world))
        for sentence in unsettled:
            if sentence in still:
                world.history.violated(sentence)
    if world.history.repaired and not world.scenario.faults.forgotten_runs:
        sentence = f"{world.history.repaired} differences were repaired although nothing was lost"
        world.history.violated(sentence)
    for sentence in world.loop.faults:
        world.history.violated(f"uncaught error: {sentence}")


def harvest(world: SimulatedWorld, host: Host, before: int = times.LATEST) -> None:
    """Record the outcome of the runs that a host leads and that ended before ``before``."""
    tables = host.database.tables
    for run in tables.runs.ended_before(before):
        if run.slot < world.end and tables.led_here(run.task_id):
            task = tables.tasks.rows[run.task_id]
            campaign = task.campaign or DEFAULT
            world.history.over(run, host.name, campaign, len(task.nodes))
    if before < times.LATEST:
        # The tasks of seats may be deleted next, so check them and keep their participants now.
        parts = [task for task in tables.tasks.rows.values() if task.parent is not None]
        ended = [task for task in parts if task.state == TaskState.FINISHED]
        for sentence in _missing(world, host, ended):
            world.history.violated(sentence)
        world.history.parties.update((task.id, task.nodes) for task in parts)


def _unsettled(world: SimulatedWorld) -> Iterator[str]:
    """Describe operations that may be in progress now but must end soon."""
    for host in world.hosts:
        yield from _differences(world, host)
        yield from _old_letters(host)
        yield from _lost_displaced(world, host)
        yield from _old_holds(host, world.loop.now)


def _overlaps(host: Host) -> Iterator[str]:
    """Describe runs of mutually exclusive classes that are booked for overlapping times."""
    live = [
        (run.starts_at, run.ends_at, run)
        for run in host.database.tables.runs.rows.values()
        if run.state in LIVE and run.participant is not None
    ]
    live.sort(key=lambda entry: entry[:2])
    for clash in (SchedulingClass.EXCLUSIVE, SchedulingClass.NORMAL):
        # One sweep per class: the latest end so far of the runs that exclude it.
        latest, holder = 0, None
        others = blockers(clash)
        for starts_at, ends_at, run in live:
            kind = SchedulingClass(run.scheduling_class)
            if kind is clash and starts_at < latest and holder is not None and holder is not run:
                yield f"{host.name} has {holder.id} and {run.id} booked for the same time"
            if kind in others and ends_at > latest:
                latest, holder = ends_at, run


def _old_holds(host: Host, loop_now: int) -> Iterator[str]:
    """Describe holds that did not expire in time.

    A node that is down or whose clock has just jumped is not checked.
    """
    if host.service is None or loop_now - host.clock.stepped_at < _UNDER_WAY:
        return
    now = host.clock.now()
    for hold in host.database.tables.exchanges.held.values():
        life = hold.expires_at - hold.held_at
        up_for = loop_now - host.up_since
        if now - hold.held_at > 2 * life + _STARTING and up_for > _STARTING:
            yield f"{host.name} still holds exchange {hold.id} after more than twice its life"


def _stuck(host: Host) -> Iterator[str]:
    """Describe runs that are past their time and not in a final state."""
    patience = host.world.nodes.tend + host.world.nodes.part_grace + _UNDER_WAY
    now = host.clock.now()
    tables = host.database.tables
    for run in tables.runs.rows.values():
        task = tables.tasks.rows[run.task_id]
        over_at = run.ends_at
        if run.state == RunState.WAITING and task.lead == host.identity:
            recurrence = _recurrence(task)
            over_at = run.slot + task.duration + slip_of(recurrence, task.duration, run.slot)
        if run.state not in OVER and over_at + patience < now:
            yield f"{host.name}: run {run.id} should have ended long ago and is still {run.state}"


def _missing(world: SimulatedWorld, host: Host, tasks: Iterable[TaskRow]) -> Iterator[str]:
    """Describe slots of which the lead has no record at all."""
    tables = host.database.tables
    for task in tasks:
        limited = unpack(task.schedule).get("max_runs") is not None
        if (
            task.lead != host.identity
            or limited
            or task.state not in {TaskState.ACTIVE, TaskState.FINISHED}
        ):
            continue
        if task.id in tables.pool_tasks.rows:
            continue
        recurrence = _recurrence(task)
        first = first_slot(recurrence, task.created_at)
        if first is None:
            continue
        known = world.history.slots.get(task.id, {})
        rows = {run.slot for run in tables.runs.by_task.of(task.id)}
        gaps = tables.gaps.by_task.of(task.id)
        for slot in nominal_starts(recurrence, first - 1, world.end, _SLOTS_MAX):
            if not _is_over(recurrence, task, slot, host):
                break
            told = any(gap.first_slot <= slot <= gap.last_slot for gap in gaps)
            if slot not in known and slot not in rows and not told:
                instant = times.format_instant(slot)
                yield f"{host.name}: slot {instant} of task {task.id} is missing without a reason"


def _told_twice(host: Host) -> Iterator[str]:
    """Describe slots that are in a gap although they have a run that is over."""
    tables = host.database.tables
    for gap in tables.gaps.rows.values():
        for run in tables.runs.by_task.of(gap.task_id):
            again = run.freed or run.state == RunState.DISPLACED or run.state not in OVER
            if gap.first_slot <= run.slot <= gap.last_slot and not again:
                yield f"{host.name}: run {run.id} is {run.state}, and its slot is in gap {gap.id}"


def _is_over(recurrence: Recurrence, task: TaskRow, slot: int, host: Host) -> bool:
    window = task.duration + slip_of(recurrence, task.duration, slot)
    return slot + window + host.world.nodes.tend < host.clock.now()


def _recurrence(task: TaskRow) -> Recurrence:
    schedule = Schedule.model_validate(unpack(task.schedule))
    return recurrence_of(schedule, task.created_at)


def _differences(world: SimulatedWorld, lead: Host) -> Iterator[str]:
    """Describe future runs that only some of their participants have."""
    tables = lead.database.tables
    soon = lead.clock.now() + _UNDER_WAY
    hosts = {host.identity: host for host in world.hosts}
    for task in tables.tasks.rows.values():
        if task.lead != lead.identity:
            continue
        ours = {run.id: run for run in tables.runs.by_task.of(task.id) if _to_come(lead, run, soon)}
        for identity in task.nodes:
            other = hosts[identity]
            if other is lead:
                continue
            theirs = {
                run.id
                for run in other.database.tables.runs.by_task.of(task.id)
                if _to_come(other, run, soon)
            }
            for run in ours.keys() - theirs:
                yield f"{other.name} does not have run {run}, which {lead.name} leads"
            for run in theirs - ours.keys():
                yield f"{other.name} has run {run} booked, but its lead {lead.name} does not"


def _to_come(host: Host, run: RunRow, soon: int) -> bool:
    booked = run.state in {RunState.BOOKED, RunState.SET_ASIDE}
    return booked and run.starts_at > soon and host.database.tables.committed(run.exchange_id)


def _old_letters(host: Host) -> Iterator[str]:
    now = host.clock.now()
    for message in host.database.tables.outbox.rows.values():
        if now - message.created_at > 2 * _UNDER_WAY:
            yield f"{host.name} could not deliver message {message.id} ({message.kind})"


def _lost_displaced(world: SimulatedWorld, host: Host) -> Iterator[str]:
    tables = host.database.tables
    for task in tables.tasks.rows.values():
        if task.lead != host.identity or task.state != TaskState.ACTIVE:
            continue
        known = world.history.slots.get(task.id, {})
        for run in tables.runs.by_task.of(task.id):
            if run.state != RunState.DISPLACED or TOO_LATE in (run.reason or ""):
                continue
            following = run_id(TaskId(task.id), run.slot, run.attempt + 1)
            became = known.get(run.slot, 0)
            attempt = became if isinstance(became, int) else became[0]
            if following not in tables.runs.rows and attempt <= run.attempt:
                yield f"{host.name}: displaced run {run.id} was not planned again"
