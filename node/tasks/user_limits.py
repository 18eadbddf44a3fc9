"""Applies the limits of this host to its own users, before any other node is asked."""

from __future__ import annotations

from node.core import Core
from node.model.errors import LimitRefused
from node.model.host_limits.rules import LimitRefusal, User, Verdict
from node.model.wire.host_limits import TaskLimit
from node.model.wire.tasks import TaskDocument
from node.sharing.host_limits import LimitKeeper
from node.store.tasks import StoredTask
from node.tasks.drafting import TaskDrafter


class UserLimits:
    """Refuses tasks that the limits of this host do not allow the user who asks for them."""

    def __init__(self, core: Core, keeper: LimitKeeper, drafter: TaskDrafter) -> None:
        """``keeper`` has the limits, ``drafter`` checks the documents of tasks."""
        self._name = core.settings.name
        self._keeper = keeper
        self._drafter = drafter

    @property
    def bounds(self) -> bool:
        """Return whether users have limits."""
        return self._keeper.limits.bounds_users

    async def judge(self, user: User, document: TaskDocument) -> Verdict | None:
        """Judge a task for a user; None if they are not limited. No node is asked.

        :raises InvalidDocument: a field is wrong.
        """
        if not self.bounds:
            return None
        if document.seats is None:
            draft = self._drafter.draft(document)
        else:
            draft = await self._drafter.draft_seat_task(document, document.seats)
        return self._keeper.judge_user(user, draft.task)

    async def require(self, user: User, document: TaskDocument) -> None:
        """Return if a user may have this new task.

        :raises InvalidDocument: a field is wrong.
        :raises LimitRefused: the limits do not allow it.
        """
        self._require(await self.judge(user, document))

    def require_edited(self, user: User, task: StoredTask) -> None:
        """Return if a user may have a task as it would be after an edit.

        :raises LimitRefused: the limits do not allow it.
        """
        self._require(self._keeper.judge_user(user, task))

    def _require(self, verdict: Verdict | None) -> None:
        if isinstance(verdict, LimitRefusal):
            limit = TaskLimit(node=self._name, **vars(verdict))
            raise LimitRefused(f"{self._name}: {verdict.in_words()}", [limit])
