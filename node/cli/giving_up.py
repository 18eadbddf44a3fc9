"""The reason known when a command gives up waiting for a task or a run, and its exit code."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from node.cli.failures import NO_TIME, TIMED_OUT
from node.model.errors import ParleyError, PeerUnreachable, RefusedByParticipant
from node.model.outcomes import UNANSWERED, PlanningOutcome
from node.model.taskstate import TaskState

if TYPE_CHECKING:
    from node.client.users import UserClient
    from node.model.wire.runs import Explanation

_ASKING_S = 5
"""Limit of asking for the reason, after the time of ``--timeout`` has passed."""

_DIGITS = 8
_WITHOUT_TIME = frozenset(
    {
        PlanningOutcome.NO_TIME,
        PlanningOutcome.CONFLICT,
        PlanningOutcome.CLOCK,
        PlanningOutcome.SUSPENDED,
    }
)
"""Outcomes for which a preview has the same exit code."""


@dataclass(frozen=True)
class Followed:
    """The task or the run that a command follows."""

    noun: str
    id: UUID

    def __str__(self) -> str:
        """Return it as people type it: ``run 7c1e90ab``."""
        return f"{self.noun} {self.digits}"

    @property
    def digits(self) -> str:
        """Return the first digits of its id, as many as commands print."""
        return str(self.id)[:_DIGITS]


@dataclass(frozen=True)
class KnownReason:
    """The reason why there is no result yet, and the exit code that says the same."""

    sentence: str
    exit_code: int = TIMED_OUT


async def find_known_reason(client: UserClient, followed: Followed | None) -> KnownReason | None:
    """Return the reason known by now; None if nothing is followed, or the node does not answer."""
    if followed is None:
        return None
    import asyncio  # slow to load, which lists do not need

    explain = client.explain_run if followed.noun == "run" else client.explain_task
    with contextlib.suppress(ParleyError, TimeoutError):
        async with asyncio.timeout(_ASKING_S):
            explanation = await explain(followed.id)
        return KnownReason(explanation.sentence, _exit_code(explanation))
    return None


def _exit_code(explanation: Explanation) -> int:
    """Return the exit code that says why no run came: refused, no time, node away, or too late."""
    if explanation.state == TaskState.REFUSED:
        return RefusedByParticipant.exit_code
    newest = explanation.decisions[0] if explanation.decisions else None
    if newest is None or newest.placed:
        return TIMED_OUT
    if newest.outcome in UNANSWERED:
        return PeerUnreachable.exit_code
    return NO_TIME if newest.outcome in _WITHOUT_TIME else TIMED_OUT
