"""Agreement of the other nodes of a run, asked immediately before it begins here.

A lead says who takes part in its runs. One that lies could so aim a stream at a node that never
heard of the task. For a test that sends whether or not the receiver answers, more than strangers
are sent, a node that does not lead the run therefore asks the other participants themselves.

A node whose database was restored knows runs that may be over. Until it has compared with the
others, it asks them about each run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol
from uuid import UUID

from node.capability.catalog import Capabilities
from node.core import Core
from node.execution.targets import ForeignTargets
from node.model.errors import NotFound, ParleyError, in_words_of
from node.model.wire.participants import BookedRun
from node.model.wire.tasks import Participant
from node.store import runs
from node.store.runs import DueRun


class BookingSource(Protocol):
    """Another node that can be asked about a run."""

    async def booked_run(self, run: UUID) -> BookedRun:
        """Return a run as it is booked there; raises ``NotFound`` if it is not."""
        ...


class ParticipantAgreement:
    """Asks other participants whether they have a run, and answers them."""

    def __init__(
        self,
        core: Core,
        capabilities: Capabilities,
        targets: ForeignTargets,
        peer: Callable[[str], BookingSource],
    ) -> None:
        """``peer(identity)`` returns the client of a known node."""
        self._database = core.database
        self._identity = core.identity
        self._capabilities = capabilities
        self._targets = targets
        self._peer = peer

    def to_ask(self, run: DueRun) -> tuple[Participant, ...]:
        """Return those who have to agree to a run that another node leads before it begins here."""
        test = self._capabilities.tests[run.test]
        if not self._targets.exceeds(test, self._capabilities.spec(test, run.spec)):
            return ()
        return tuple(it for it in run.participants if it.node not in {self._identity, run.lead})

    async def refusal(self, run: DueRun, asked: Sequence[Participant]) -> str | None:
        """Return why one of these participants has not agreed to a run; None if all have."""
        refusals = await asyncio.gather(*(self._refusal(run, each) for each in asked))
        return next(filter(None, refusals), None)

    async def _refusal(self, run: DueRun, participant: Participant) -> str | None:
        name = participant.name
        answer = await self._has_booked(participant.node, run)
        if isinstance(answer, ParleyError):
            return (
                f"{in_words_of(name, answer)}; a task of another node sends nothing to it at this "
                "rate unless it confirms that it takes part"
            )
        if not answer:
            return (
                f"{name} has not booked this run, so nothing is sent to it at this rate for a task "
                "of another node"
            )
        return None

    async def restore_refusal(self, run: DueRun) -> str | None:
        """Return why a run that this node knows from a backup does not begin; None if it may.

        It may if another node has it booked, and none that answers does not have it.
        """
        names = {run.lead: "its lead"} | {it.node: it.name for it in run.participants}
        names.pop(self._identity, None)
        answers = await asyncio.gather(*(self._has_booked(other, run) for other in names))
        unreachable = []
        for name, answer in zip(names.values(), answers, strict=True):
            if answer is False:
                return (
                    f"{name} does not have this run, which this node knows from the backup from "
                    "which its database was restored"
                )
            if isinstance(answer, ParleyError):
                unreachable.append(in_words_of(name, answer))
        if len(unreachable) < len(names):
            return None
        return (
            f"{'; '.join(unreachable)}; this node knows the run from the backup from which its "
            "database was restored, and no participant confirms that it still stands"
        )

    async def _has_booked(self, node: str, run: DueRun) -> bool | ParleyError:
        """Return whether another node has booked a run like this, or why it cannot be asked."""
        try:
            peer = self._peer(node)
        except NotFound as error:
            return error
        try:
            there = await peer.booked_run(run.id)
        except NotFound:
            return False
        except ParleyError as error:
            return error
        return there == BookedRun(task=run.task, lead=run.lead, starts_at=run.starts_at)

    async def answer(self, sender: str, run: UUID) -> BookedRun:
        """Return a run that is booked here, for its lead or another participant of its task.

        :raises NotFound: there is none.
        """
        async with self._database.connection() as connection:
            found = await runs.booked_with(connection, run, sender)
        if found is None:
            msg = f"no run {run} is booked here in which you take part"
            raise NotFound(msg)
        return found
