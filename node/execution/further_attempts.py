"""Further attempts of slots whose runs came to nothing, at their lead.

Both functions are part of the transaction that ends a run, which has locked it.
"""

from __future__ import annotations

from collections.abc import Sequence

from node.model.attempts import is_tried_again, passing_reason, retry_terms
from node.model.ids import TaskId, run_id
from node.model.nodekinds import NodeKind, kind_of
from node.model.reasons import measured_after_all, tried_again
from node.model.runstate import RunState
from node.model.wire.participants import RunEnd
from node.store import bookings, notices, outbox, runs, tasks
from node.store.database import Connection
from node.store.runs import LockedRun, NextAttempt

_NOT_BEGUN = frozenset({RunState.WAITING, RunState.BOOKED, RunState.SET_ASIDE})


async def try_again(
    connection: Connection, run: LockedRun, reasons: Sequence[str | None], now: int
) -> None:
    """Have the slot of a run planned again, if one of the ``reasons`` of its parts may pass.

    Nodes of another kind book a slot once, and are not asked again.
    """
    why = passing_reason(reasons)
    if why is None or any(kind_of(it.node) is not NodeKind.PARLEY for it in run.participants):
        return
    task = await tasks.fetch(connection, run.task)
    if task is None:
        return
    retry = retry_terms(task.terms.schedule)
    slot = run.slot, run.attempt
    if not is_tried_again(task.terms.recurrence, retry, task.terms.duration, slot, now):
        return
    attempt = run.attempt + 1
    following = NextAttempt(
        run.id, run_id(TaskId(run.task), run.slot, attempt), attempt, tried_again(run.attempt, why)
    )
    for of, nominal in await runs.create_waiting_attempts(connection, [following], now):
        await tasks.wake_planning(connection, of, now + retry.after, nominal)
        await notices.notify(connection, "task", of, "plan")


async def make_way(connection: Connection, run: LockedRun, identity: str, now: int) -> bool:
    """Return whether a run that was measured after all may stand for its slot.

    It may not if another attempt is under way or has a result, as a later one that was measured
    after all as well. Attempts that have not begun are cancelled; ``identity`` is this node's,
    which leads them, and the others are told.
    """
    states = await runs.other_attempts(connection, run.task, run.slot, run.attempt)
    if not _NOT_BEGUN.issuperset(states.values()):
        return False
    why = measured_after_all(run.id)
    others = sorted({it.node for it in run.participants} - {identity})
    for gone in await runs.set_state(connection, list(states), RunState.CANCELLED, why, now):
        lost = await bookings.restore(connection, [gone.id], now)
        await bookings.tell_leads(connection, lost, now)
        end = RunEnd(run=gone.id, state=RunState.CANCELLED, reason=why).model_dump(mode="json")
        await outbox.post(connection, others, outbox.MessageKind.RUN_END, end, now)
        await notices.notify(connection, "run", gone.id, gone.task, RunState.CANCELLED)
    return True
