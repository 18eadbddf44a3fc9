"""Whether this host takes part in a task, and the task as it is then known here."""

from __future__ import annotations

from node.capabilities import Capabilities
from node.model.errors import InvalidDocument
from node.model.wire.participants import Introduction, IntroductionAnswer
from node.store import tasks
from node.store.database import Database
from node.store.tasks import StoredTask


class Consent:
    """Accepts or refuses introductions."""

    def __init__(self, database: Database, capabilities: Capabilities, identity: str) -> None:
        """``identity`` is this node's."""
        self._database = database
        self._capabilities = capabilities
        self._identity = identity

    async def consider(self, lead: str, introduction: Introduction) -> IntroductionAnswer:
        """Check that this host can do its part; keep the task if it can."""
        answered = self.judge(introduction)
        if answered.accepted and lead != self._identity:
            async with self._database.transaction() as connection:
                if not await tasks.keep(connection, stored(introduction, lead)):
                    taken = f"a task with the id {introduction.task} is led by another node"
                    return IntroductionAnswer(accepted=False, reason=taken)
        return answered

    def judge(self, introduction: Introduction) -> IntroductionAnswer:
        """What it would say to this introduction; nothing is kept."""
        reason = self._why_not(introduction)
        if reason is not None:
            return IntroductionAnswer(accepted=False, reason=reason)
        return IntroductionAnswer(accepted=True, tools=self._offered(introduction))

    def _offered(self, introduction: Introduction) -> tuple[str, ...]:
        return tuple(
            name
            for name in self._capabilities.offered(introduction.test)
            if not introduction.tools or name in introduction.tools
        )

    def _why_not(self, introduction: Introduction) -> str | None:
        places = introduction.participants
        if introduction.participant >= len(places):
            return f"there is no participant {introduction.participant}"
        if places[introduction.participant].node != self._identity:
            return "this is another node than the one meant"
        try:
            test = self._capabilities.test(introduction.test)
            spec = self._capabilities.spec(test, introduction.spec)
        except InvalidDocument as error:
            return error.detail
        if test.scheduling_class(spec) is not introduction.scheduling_class:
            return f"{introduction.test} is {test.scheduling_class(spec)} here"
        if not self._offered(introduction):
            return self._capabilities.why_none(introduction.test)
        return None


def stored(introduction: Introduction, lead: str) -> StoredTask:
    """The task as it is kept."""
    return StoredTask(
        id=introduction.task,
        lead=lead,
        state="active",
        reason=None,
        test=introduction.test,
        spec=introduction.spec,
        tool=introduction.tool,
        tools=list(introduction.tools),
        scheduling_class=introduction.scheduling_class,
        duration=introduction.duration,
        priority=introduction.priority,
        participants=[p.model_dump(mode="json") for p in introduction.participants],
        participant=introduction.participant,
        addresses=introduction.addresses,
        schedule=introduction.schedule.model_dump(mode="json"),
        campaign=introduction.campaign,
        reference=introduction.reference,
        created_at=introduction.created_at,
    )
