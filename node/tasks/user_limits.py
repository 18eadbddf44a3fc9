"""Applies the limits of this host to its own users, before any other node is asked."""

from __future__ import annotations

from node.access.tokens import AccessTokens
from node.model.errors import LimitRefused
from node.model.host_limits.rules import LimitRefusal, User, Verdict
from node.model.wire.host_limits import TaskLimit
from node.model.wire.tasks import TaskDocument
from node.sharing.host_limits import LimitKeeper
from node.store.core import Core
from node.store.tasks import StoredTask
from node.tasks.drafting import TaskDrafter


class UserLimits:
    """Refuses tasks that the limits of this host do not allow the user who asks for them."""

    def __init__(
        self, core: Core, keeper: LimitKeeper, drafter: TaskDrafter, tokens: AccessTokens
    ) -> None:
        """``keeper`` has the limits, ``drafter`` checks the documents of tasks."""
        self._tokens = tokens
        self._name = core.settings.name
        self._keeper = keeper
        self._drafter = drafter

    @property
    def bounds(self) -> bool:
        """True if the limits of this host bind users with a token."""
        return self._keeper.limits.bounds_tokens

    async def user(self, label: str, campaign: str) -> User:
        """Return the user of a label, as one who posts a task of a campaign."""
        return User.of(await self._tokens.lowest_principal(label), campaign)

    async def judge(self, user: User, document: TaskDocument) -> Verdict | None:
        """Judge a task for a user; None if they are not limited. No node is asked.

        :raises InvalidDocument: a field is wrong.
        """
        if not (user.bound or self._keeper.limits.groups_of_user(user)):
            return None
        if document.seats is None:
            draft = self._drafter.draft(document)
        else:
            draft = await self._drafter.draft_new_pool_task(document, document.seats)
        return self._keeper.judge_user(user, draft.task)

    def require(self, user: User, task: StoredTask) -> None:
        """Check that the limits of this host admit a task of a user as it would be stored.

        :raises LimitRefused: the limits do not allow it.
        """
        self._require_admitted(self._keeper.judge_user(user, task))

    async def require_document(self, user: User, document: TaskDocument) -> None:
        """Check that the limits of this host would admit a task of a user. No node is asked.

        :raises InvalidDocument: a field is wrong.
        :raises LimitRefused: the limits do not allow it.
        """
        self._require_admitted(await self.judge(user, document))

    def _require_admitted(self, verdict: Verdict | None) -> None:
        if isinstance(verdict, LimitRefusal):
            limit = TaskLimit(node=self._name, **vars(verdict))
            raise LimitRefused(f"{self._name}: {verdict.reason}", [limit])
