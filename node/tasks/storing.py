"""Storing of new tasks: those that come at the same time share the statements and the transaction.

A transaction stores all of its tasks or none. If anything hinders it, each of them is stored alone,
so that one that cannot be stored hinders no other, and its own error is known.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from node.model.errors import Conflict, LimitUsedUp, PeerUnreachable
from node.model.host_limits.standing import LimitStanding
from node.model.taskstate import TaskState
from node.model.wire.archives import ArchiveChoice
from node.results.archives import Archives
from node.runtime.batching import Batcher
from node.sharing.host_limits import LimitKeeper
from node.store import notices, outbox, tasks
from node.store.core import Core
from node.store.database import Connection
from node.store.outbox import OutgoingMessage
from node.store.tasks import FirstPlanning, Made, StoreAlong, StoredTask
from node.tasks.pool_tasks import PoolTaskChecker, PoolTaskRequest

TOGETHER = 64
"""Number of tasks that are stored in one transaction at most."""


@dataclass(frozen=True)
class Withdrawal:
    """Messages that end a task at its participants, unless it is stored before they are due."""

    messages: Sequence[int]
    due_at: int


@dataclass(frozen=True)
class NewTask:
    """A task to be stored, with its first slot, and what is stored with it.

    ``key`` and ``digest`` are the Idempotency-Key and the digest of the request. ``sought`` is what
    a pool task asks for. ``along`` stores what else belongs to the task. ``place`` is its place in
    the list with which it was posted.
    """

    task: StoredTask
    standing: LimitStanding
    slot: int
    key: str | None
    digest: str
    archived: Sequence[ArchiveChoice] = ()
    prepared: Withdrawal | None = None
    sought: PoolTaskRequest | None = None
    along: StoreAlong | None = None
    place: int = 0


class NewTaskStore:
    """Stores the new tasks that this node leads."""

    def __init__(
        self, core: Core, limits: LimitKeeper, archives: Archives, seating: PoolTaskChecker
    ) -> None:
        """``limits`` count the tasks of users, ``seating`` stores what pool tasks ask for."""
        self._database = core.database
        self._clock = core.clock
        self._horizon = core.settings.horizon
        self._limits = limits
        self._archives = archives
        self._seating = seating
        self._keys: Batcher[str, Made | None] = Batcher(self._find, items_max=TOGETHER)
        self._withdrawals: Batcher[tuple[Sequence[OutgoingMessage], int], Withdrawal] = Batcher(
            self._prepare, items_max=TOGETHER
        )
        self._tasks: Batcher[NewTask, bool] = Batcher(
            self._keep_all, items_max=TOGETHER, apart=self._exclusive_keys, at_once=2
        )

    async def find_made_with(self, key: str) -> Made | None:
        """Return what a request with this Idempotency-Key has made; None if the key is new."""
        return await self._keys.ask(key)

    async def _find(self, keys: Sequence[str]) -> list[Made | None]:
        async with self._database.connection() as connection:
            found = await tasks.find_idempotency(connection, keys)
        return [found.get(key) for key in keys]

    async def prepare_withdrawal(
        self, messages: Sequence[OutgoingMessage], delay: int
    ) -> Withdrawal:
        """Write the messages that end a task which is about to be introduced, due after ``delay``.

        All callers have the same delay.
        """
        return await self._withdrawals.ask((messages, delay))

    async def _prepare(
        self, asked: Sequence[tuple[Sequence[OutgoingMessage], int]]
    ) -> list[Withdrawal]:
        now, delay = self._clock.now(), asked[0][1]
        posts = [message for messages, _ in asked for message in messages]
        async with self._database.connection() as connection:
            numbers = iter(await outbox.post_all(connection, posts, now, delay))
        return [Withdrawal([next(numbers) for _ in messages], now + delay) for messages, _ in asked]

    async def keep(self, new: NewTask) -> bool:
        """Store a task; False if another request used its key in the meantime.

        :raises LimitUsedUp: its user has as many open tasks as their rule allows.
        :raises PeerUnreachable: its participants are being told already that it does not exist.
        :raises Conflict: its campaign or its pool was removed in the meantime.
        """
        return await self._tasks.ask(new)

    def _exclusive_keys(self, new: NewTask) -> list[Hashable]:
        """Return the keys that no two tasks of a transaction may share.

        These are the Idempotency-Key, and the count of open tasks of their user under a rule.
        """
        rule = self._limits.limits.rule(new.standing.rule)
        counted = rule is not None and rule.tasks_max is not None
        account = (new.standing.rule, new.task.limit_user) if counted else None
        return [it for it in (new.key, account) if it is not None]

    async def _keep_all(self, several: Sequence[NewTask]) -> list[bool]:
        try:
            async with self._database.transaction() as connection:
                return await self._keep_in(connection, several)
        except (PeerUnreachable, LimitUsedUp) as error:  # of one of them
            if len(several) == 1:
                raise
            raise _NotTogether from error

    async def _keep_in(self, connection: Connection, several: Sequence[NewTask]) -> list[bool]:
        now = self._clock.now()
        claimed = await _claim_keys(connection, several, now)
        new_ones = [new for new in several if new.key is None or new.key in claimed]
        await _cancel_withdrawals(connection, new_ones)
        for new in new_ones:
            await self._limits.require_room(connection, new.task, new.standing)
        await tasks.keep_all(connection, [(new.task, new.standing) for new in new_ones])
        for new in new_ones:
            if new.archived:
                await self._archives.keep_of_task(connection, new.task.id, new.archived)
            if new.along is not None:
                await new.along(connection, new.task)
        await self._open_planning(connection, new_ones, now)
        told: list[tuple[object, ...]] = [
            ("task", new.task.id, TaskState.ACTIVE) for new in new_ones
        ]
        for new in new_ones:
            if new.sought is not None:
                await self._seating.keep(connection, new.task, new.sought, new.slot, now)
                told.append(("seats", new.task.id, "wanted"))
        await notices.notify_all(connection, told)
        return [new in new_ones for new in several]

    async def _open_planning(
        self, connection: Connection, new_ones: Sequence[NewTask], now: int
    ) -> None:
        first = {new.task.id: self._first_planning(new, now) for new in new_ones}
        opened = await tasks.open_planning(connection, first)
        for new in new_ones:
            if new.task.id not in opened:
                msg = (
                    f"the campaign {new.task.terms.campaign} was removed a moment ago; name "
                    "another one"
                )
                raise Conflict(msg)

    def _first_planning(self, new: NewTask, now: int) -> FirstPlanning:
        terms = new.task.terms
        if terms.recurrence.follows:
            return FirstPlanning(None, None, new.place)
        plan_at = max(now, new.slot - self._horizon + terms.duration)
        return FirstPlanning(new.slot, plan_at, new.place)


class _NotTogether(Exception):
    """Some of several tasks cannot be stored: each is to be tried alone."""


async def _claim_keys(connection: Connection, several: Sequence[NewTask], now: int) -> set[str]:
    made = {new.key: Made(new.digest, new.task.id) for new in several if new.key is not None}
    return await tasks.keep_idempotency(connection, made, now) if made else set()


async def _cancel_withdrawals(connection: Connection, new_ones: Sequence[NewTask]) -> None:
    """Delete the messages that would end the tasks.

    :raises PeerUnreachable: some are being sent already, so that their task cannot be stored.
    """
    prepared = [(new.task, new.prepared) for new in new_ones if new.prepared is not None]
    due_at = {number: each.due_at for _, each in prepared for number in each.messages}
    recalled = await outbox.recall(connection, due_at) if due_at else set()
    for task, each in prepared:
        if not recalled.issuperset(each.messages):
            names = ", ".join(p.name for p in task.terms.parties)
            msg = (
                f"{names}: some of them took too long to answer, and have been told by now that "
                "this task does not exist; post the task again"
            )
            raise PeerUnreachable(msg)
