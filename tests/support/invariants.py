"""The invariants of booking, read from the tables of real nodes: always, and once all is settled.

Each function returns sentences about violations; none is good. They use nothing of the product
but the schema and the rule of classes, which is written out here once more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.model.recurrence import nominal_starts, slip_of
from node.model.scheduling import recurrence_of
from node.model.wire.participants import Introduction
from tests.support.worlds import Site

_ALWAYS = """
SELECT 'overlap though their classes may not', one.id::text, other.id::text
FROM run AS one INNER JOIN run AS other ON one.id < other.id
WHERE one.participant IS NOT NULL AND other.participant IS NOT NULL
    AND one.state IN ('booked', 'running') AND other.state IN ('booked', 'running')
    AND one.starts_at < other.ends_at AND other.starts_at < one.ends_at
    AND (one.scheduling_class, other.scheduling_class)
        IN (('exclusive', 'exclusive'), ('exclusive', 'normal'), ('normal', 'exclusive'))
UNION ALL
SELECT 'is set aside for a run that is held no more', id::text, displaced_by::text FROM run
WHERE state = 'set-aside' AND NOT EXISTS (
    SELECT FROM run AS winner INNER JOIN exchange ON winner.exchange_id = exchange.id
    WHERE winner.id = run.displaced_by
        AND winner.state IN ('booked', 'set-aside') AND exchange.state = 'held'
)
UNION ALL
SELECT 'has more runs than max_runs', task.id::text, count(*)::text
FROM task INNER JOIN run ON run.task_id = task.id
INNER JOIN planning ON planning.task_id = task.id
WHERE run.state NOT IN ('cancelled', 'displaced', 'unplaced', 'waiting')
    AND jsonb_typeof(task.schedule -> 'max_runs') = 'number'
GROUP BY task.id HAVING count(*) > (task.schedule ->> 'max_runs')::integer
UNION ALL
SELECT 'is a slot with two runs', run.task_id::text, run.slot::text
FROM run INNER JOIN planning ON planning.task_id = run.task_id
WHERE run.state NOT IN ('cancelled', 'displaced', 'unplaced', 'missed', 'failed')
GROUP BY run.task_id, run.slot HAVING count(*) > 1
"""

_TOO_OLD = "SELECT id FROM exchange WHERE state = 'held' AND held_at + 2 * $1::interval <= $2"

_RUNS = """
SELECT run.id, run.task_id, run.slot, run.attempt, run.state::text, run.starts_at, run.reason,
    coalesce(exchange.state = 'held', false) AS held
FROM run LEFT JOIN exchange ON run.exchange_id = exchange.id
"""

_TASKS = """
SELECT task.id, task.state::text, planning.planned_to, planning.plan_at, planning.next_run_at
FROM task LEFT JOIN planning ON planning.task_id = task.id
"""


async def always(site: Site) -> list[str]:
    """Check between any two steps: no overlap, nothing set aside without cause, no surplus runs."""
    return [f"{site.name}: {one}, {other} {what}" for what, one, other in await site.rows(_ALWAYS)]


async def no_old_holds(site: Site, life: int) -> list[str]:
    """Check that a node whose loops run keeps no hold longer than twice its life."""
    rows = await site.rows(_TOO_OLD, life, site.clock.now())
    return [f"{site.name}: exchange {row[0]} is held longer than twice its life" for row in rows]


@dataclass(frozen=True)
class Ledger:
    """The contents of one node's tables."""

    site: Site
    runs: dict[UUID, Any]
    tasks: dict[UUID, Any]

    @property
    def booked(self) -> dict[UUID, int]:
        """Return the starts of the future runs here, by id."""
        now = self.site.clock.now() + self.site.node.settings.start_margin
        return {
            run: row["starts_at"]
            for run, row in self.runs.items()
            if row["state"] == "booked" and row["starts_at"] > now
        }


async def ledger(site: Site) -> Ledger:
    """Read a node's tables."""
    runs = {row["id"]: row for row in await site.rows(_RUNS)}
    tasks = {row["id"]: row for row in await site.rows(_TASKS)}
    return Ledger(site, runs, tasks)


async def settled(
    sites: Sequence[Site], tasks: Sequence[tuple[Site, Introduction]], longest_pause: int
) -> list[str]:
    """Check the state once all wires are whole and twice a hold's life has passed."""
    ledgers = {site.identity: await ledger(site) for site in sites}
    faults = [fault for found in ledgers.values() for fault in _leftovers(found)]
    for site in sites:
        faults += [
            f"{site.name}: {kind} not delivered" for _, kind, _ in await site.outbox_messages()
        ]
    for lead, task in tasks:
        others = [ledgers[p.node] for p in task.participants]
        faults += _all_or_none(ledgers[lead.identity], others, task)
        faults += _nothing_missing(ledgers[lead.identity], task, longest_pause)
    return faults


def _leftovers(found: Ledger) -> list[str]:
    return [
        f"{found.site.name}: run {run} is still {'held' if row['held'] else row['state']}"
        for run, row in found.runs.items()
        if row["held"] or row["state"] == "set-aside"
    ]


def _all_or_none(lead: Ledger, others: list[Ledger], task: Introduction) -> list[str]:
    """Check that the lead and every participant have the same future runs, at the same times."""

    def of_task(found: Ledger) -> dict[UUID, int]:
        rows = found.runs
        return {run: at for run, at in found.booked.items() if rows[run]["task_id"] == task.task}

    promised = of_task(lead)
    faults = [
        f"task {task.task}: {lead.site.name} has {promised} and {other.site.name} {of_task(other)}"
        for other in others
        if of_task(other) != promised
    ]
    state = lead.tasks[task.task]["state"]
    faults += [
        f"task {task.task} is {state} at its lead and active at {other.site.name}"
        for other in others
        if state != "active"
        and task.task in other.tasks
        and other.tasks[task.task]["state"] == "active"
    ]
    return faults


def _nothing_missing(lead: Ledger, task: Introduction, longest_pause: int) -> list[str]:
    """Check that each planned slot has a run, and that waiting ones have a reason and a retry."""
    row = lead.tasks[task.task]
    if row["state"] != "active":
        return []
    now = lead.site.clock.now()
    recurrence = recurrence_of(task.schedule, task.created_at)
    by_slot: dict[int, list[Any]] = defaultdict(list)
    for run in lead.runs.values():
        if run["task_id"] == task.task:
            by_slot[run["slot"]].append(run)
    faults = []
    if row["planned_to"] is not None:
        due = nominal_starts(recurrence, task.created_at - 1, row["planned_to"] + 1, 1000)
        faults += [f"task {task.task}: slot {slot} is gone" for slot in due if slot not in by_slot]
    margin = lead.site.node.settings.start_margin
    for slot, runs in by_slot.items():
        last = max(runs, key=lambda run: int(run["attempt"]))
        window_left = slot + slip_of(recurrence, task.duration, slot) > now + margin
        if last["state"] == "displaced" and window_left:
            faults.append(f"task {task.task}: slot {slot} was displaced and is not tried again")
    waits = [slot for slot, runs in by_slot.items() if any(r["state"] == "waiting" for r in runs)]
    if (waits or not by_slot) and not _is_tried_again(row, now, longest_pause):
        faults.append(f"task {task.task}: {waits or 'all'} waits and nobody plans it")
    return faults


def _is_tried_again(row: Any, now: int, longest_pause: int) -> bool:
    return row["plan_at"] is not None and row["plan_at"] <= now + longest_pause
