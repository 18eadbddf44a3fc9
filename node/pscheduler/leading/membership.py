"""Tasks led here as tasks of a host that runs pScheduler: one for each revision.

A task is written before it is posted. If the answer to the post is lost, it is looked for before
another one is posted; a task that was deleted there keeps its id, so that the next one has another.
"""

from __future__ import annotations

import secrets
from uuid import UUID, uuid5

import structlog

from node.client.pscheduler import PschedulerHost
from node.model.errors import NotAllowed, NotFound, RequestError
from node.model.nodekinds import place_of
from node.model.wire.participants import Introduction, IntroductionAnswer
from node.pscheduler.dialects.registry import DIALECTS
from node.pscheduler.leading.delegation import (
    booked_length,
    delegated_test,
    delegation_answer,
    is_delegated,
)
from node.pscheduler.leading.translation import TranslatedTask, posted_document, translated_task
from node.pscheduler.tests.contract import Document
from node.store import pscheduler_bookings as store
from node.store.core import Core
from node.store.pscheduler_bookings import Membership, MembershipState

_ATTEMPTS_MAX = 20

log = structlog.get_logger()


class Memberships:
    """The tasks of this node at one host."""

    def __init__(self, core: Core, identity: str, name: str, host: PschedulerHost) -> None:
        self._identity = identity
        self._name = name
        self._place = place_of(identity)
        self._database = core.database
        self._sealing = core.sealing
        self._clock = core.clock
        self._host = host

    async def find(self, task: UUID, revision: int | None = None) -> Membership | None:
        """Return the newest task there of a revision, or of the newest one."""
        async with self._database.connection() as connection:
            return await store.find_membership(
                connection, self._sealing, task, self._identity, revision
            )

    async def lose(self, there: Membership) -> None:
        """Note that the host does not know a task any more."""
        log.warning("a task is not known there any more", node=self._name, task=str(there.task))
        async with self._database.connection() as connection:
            await store.note_membership_lost(connection, there.task_there)

    async def consider(self, introduction: Introduction) -> IntroductionAnswer:
        """Return whether the host has a tool for the test; nothing is posted.

        Its limits are known only when the task is posted.
        """
        if is_delegated(introduction):
            return await delegation_answer(self._host, introduction)
        try:
            task = translated_task(introduction, self._place)
        except NotAllowed as error:
            return _refusal(error.detail)
        return (await self._offer(task))[1]

    async def _offer(self, task: TranslatedTask) -> tuple[str | None, IntroductionAnswer]:
        """Return the tool that the host would use (None if it refuses), and the answer."""
        try:
            listed = await self._host.tools(task.document)
        except RequestError as error:
            return None, _refusal(error.detail)
        refusals = {each.name: each.refusal for each in listed}
        for dialect in task.dialects:
            if dialect.tool in refusals and refusals[dialect.tool] is None:
                return dialect.tool, IntroductionAnswer(accepted=True, tools=(dialect.own,))
        lacks = {
            each.own: refusals.get(each.tool) or f"{each.tool} is not installed there"
            for each in task.dialects
        }
        reason = "; ".join(f"{tool}: {why}" for tool, why in lacks.items())
        return None, _refusal(reason)

    async def join(self, introduction: Introduction) -> IntroductionAnswer:
        """Make the host have this revision of a task; note that earlier ones are to be ended."""
        if is_delegated(introduction):
            return await self._delegate(introduction)
        there = await self.find(introduction.task, introduction.revision)
        is_new = there is None or there.state is not MembershipState.STANDING
        if is_new and not (there is not None and await self._was_posted(there)):
            refusal = await self._post(introduction, 0 if there is None else there.attempt + 1)
            if refusal is not None:
                return refusal
        there = await self.find(introduction.task, introduction.revision)
        if there is None or there.state is not MembershipState.STANDING:
            return _refusal("the task was ended in the meantime")
        async with self._database.connection() as connection:
            await store.end_before(connection, there)
        return IntroductionAnswer(accepted=True, tools=(DIALECTS[there.tool].own,))

    async def _delegate(self, introduction: Introduction) -> IntroductionAnswer:
        """Write a task that the host is to measure alone; nothing is posted before its runs."""
        answer = await delegation_answer(self._host, introduction)
        found = delegated_test(introduction)
        if not answer.accepted or found is None:
            return answer
        name, spec = found
        test = {"type": name, "spec": spec}
        there = await self.find(introduction.task, introduction.revision)
        if there is None or there.state is not MembershipState.STANDING:
            attempt = 0 if there is None else there.attempt + 1
            there = self._new_membership(introduction, test, "", attempt)
            async with self._database.transaction() as connection:
                await store.write_membership(connection, self._sealing, there, self._clock.now())
                await store.note_membership(connection, there.task_there, booked_length(name, spec))
        async with self._database.connection() as connection:
            await store.end_before(connection, there)
        return answer

    async def _was_posted(self, there: Membership) -> bool:
        """Return whether a task whose post got no answer exists at the host."""
        return there.state is MembershipState.POSTING and await self._is_posted(there)

    async def _post(self, introduction: Introduction, attempt: int) -> IntroductionAnswer | None:
        """Post a revision under the first id that is free there; return the refusal, or None."""
        try:
            task = translated_task(introduction, self._place)
        except NotAllowed as error:
            return _refusal(error.detail)
        tool, answer = await self._offer(task)
        if tool is None:
            return answer
        for number in range(attempt, attempt + _ATTEMPTS_MAX):
            new = self._new_membership(introduction, task.document, tool, number)
            refusal = await self._post_as(introduction, task, new)
            if refusal is not None:
                return refusal
            if await self._is_posted(new):
                return None
        return _refusal("it keeps tasks of this node that nobody can end there")

    async def _post_as(
        self, introduction: Introduction, task: TranslatedTask, new: Membership
    ) -> IntroductionAnswer | None:
        """Post a task under an id; return the refusal, if it is not because of the id."""
        async with self._database.connection() as connection:
            now = self._clock.now()
            if not await store.write_membership(connection, self._sealing, new, now):
                return None
        document = posted_document(introduction, task.document, new.tool, new.key, self._place)
        try:
            await self._host.join(new.task_there, introduction.place, document)
        except NotAllowed as error:
            return await self._note_refusal(new, f"its limits forbid the task: {error.detail}")
        except RequestError as error:
            if not await self._has_task(new):
                return await self._note_refusal(new, error.detail)
        return None

    async def _note_refusal(self, new: Membership, reason: str) -> IntroductionAnswer:
        async with self._database.connection() as connection:
            await store.forget_membership(connection, new.task_there)
        return _refusal(reason)

    async def _has_task(self, there: Membership) -> bool:
        """Return whether the host has a task with this id, even one with another key."""
        try:
            await self._host.task(there.task_there, there.key)
        except NotAllowed:
            return True
        except NotFound:
            return False
        return True

    async def _is_posted(self, there: Membership) -> bool:
        """Return whether a task exists at the host, and note that it does."""
        try:
            document = await self._host.task(there.task_there, there.key)
        except (NotFound, NotAllowed):
            return False
        detail = document.get("detail")
        if not isinstance(detail, dict) or detail.get("enabled") is False:
            return False
        duration = self._host.duration_of(document)
        async with self._database.connection() as connection:
            await store.note_membership(connection, there.task_there, duration)
        return True

    def _new_membership(
        self, introduction: Introduction, test: Document, tool: str, attempt: int
    ) -> Membership:
        word = str(introduction.revision) if not attempt else f"{introduction.revision} {attempt}"
        return Membership(
            task_there=uuid5(introduction.task, word),
            task=introduction.task,
            node=self._identity,
            revision=introduction.revision,
            attempt=attempt,
            key=secrets.token_hex(16),
            test=introduction.test,
            spec=introduction.spec,
            test_there=test,
            participant=introduction.place,
            tool=tool,
        )


def _refusal(reason: str) -> IntroductionAnswer:
    return IntroductionAnswer(accepted=False, reason=reason[:1000])
