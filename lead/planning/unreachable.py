"""Retry times for participants that do not answer, and retry pauses in general. Pure.

An unreachable period begins with the first question that got no answer and ends with the next
answer. During it, the participant is probed now and then: the pause doubles with each unanswered
question, and is drawn between half of it and all of it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from lead.model.reasons import no_valid_answer, unreachable
from node.model import times
from node.model.reason import Reason

PAUSE_FIRST = times.SECOND
PAUSE_MAX = 5 * times.MINUTE
_TOGETHER = (PAUSE_MAX // 2, times.MINUTE, 10 * times.SECOND)


@dataclass(frozen=True)
class UnreachablePeriod:
    """The period since which a participant has not answered, and when it is asked again."""

    name: str
    since: int
    cause: str
    failures: int
    failed_at: int
    ask_at: int

    def why(self) -> Reason:
        """Return the period as a reason, which stays the same while it lasts."""
        return why_unanswered(self.name, self.since, self.cause)


def why_unanswered(name: str, since: int, cause: str) -> Reason:
    """Return why a participant cannot be asked that has given no answer since an instant."""
    prefix = f"{name} cannot be reached: "
    if cause.startswith(prefix):
        return unreachable(name, since, cause.removeprefix(prefix))
    return no_valid_answer(name, since, cause)


def after_unanswered_question(
    before: UnreachablePeriod | None,
    name: str,
    cause: str,
    asked_at: int,
    now: int,
    rng: random.Random,
) -> UnreachablePeriod:
    """Return the period after a question sent at ``asked_at`` got no answer.

    Questions that were in flight together count once.
    """
    if before is None:
        ask_at = now + jittered_pause(PAUSE_FIRST, PAUSE_MAX, 0, rng)
        return UnreachablePeriod(name, asked_at, cause, 1, now, ask_at)
    if asked_at <= before.failed_at:
        return before
    ask_at = now + jittered_pause(PAUSE_FIRST, PAUSE_MAX, before.failures, rng)
    return UnreachablePeriod(name, before.since, before.cause, before.failures + 1, now, ask_at)


def jittered_pause(first: int, most: int, failures: int, rng: random.Random) -> int:
    """Return ``first`` doubled per failure, at most ``most``, times a random factor of 1/2 to 1."""
    pause = min(most, first << min(failures, 20))
    return pause // 2 + rng.randrange(pause // 2 + 1)


def align_retries(now: int, pause: int, phase: int = 0) -> int:
    """Return when to retry after a pause: rounded up, so that many retry at the same instant.

    Then time that became free goes to the task that the policies choose, not to the first one that
    retries, and the pool is evaluated once for all. Each lead has a ``phase`` of its own: two leads
    that gave seats at the same instant would not see what the other is about to book.
    """
    retry_at = now + pause
    step = next((step for step in _TOGETHER if step <= pause), 1)
    return retry_at + (phase - retry_at) % step
