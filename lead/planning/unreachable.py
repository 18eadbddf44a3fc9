"""When a participant that does not answer is asked again, and pauses in general. Pure.

A silence begins with the first question that got no answer and ends with the next answer. While it
lasts there is one question now and then: the pause doubles with each that is not answered, and is
drawn between half of it and all of it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from node.model import times
from node.model.times import to_the_second

PAUSE_FIRST = times.SECOND
PAUSE_MAX = 5 * times.MINUTE
_TOGETHER = (PAUSE_MAX // 2, times.MINUTE, 10 * times.SECOND)


@dataclass(frozen=True)
class UnreachablePeriod:
    """A participant has not answered since an instant; it is asked again at another one."""

    name: str
    since: int
    cause: str
    failures: int
    failed_at: int
    ask_at: int

    def in_words(self) -> str:
        """For the reasons of what waits for it: the same words as long as the silence lasts."""
        since = to_the_second(self.since)
        away = f"{self.name} cannot be reached: "
        if self.cause.startswith(away):
            return f"{self.name} cannot be reached since {since}: {self.cause.removeprefix(away)}"
        return f"{self.name} gives no sensible answer since {since}: {self.cause}"


def after_unanswered_question(
    before: UnreachablePeriod | None,
    name: str,
    cause: str,
    asked_at: int,
    now: int,
    rng: random.Random,
) -> UnreachablePeriod:
    """The silence after a question asked at ``asked_at`` got no answer.

    Questions that were on their way together count once.
    """
    if before is None:
        ask_at = now + jittered_pause(PAUSE_FIRST, PAUSE_MAX, 0, rng)
        return UnreachablePeriod(name, asked_at, cause, 1, now, ask_at)
    if asked_at <= before.failed_at:
        return before
    ask_at = now + jittered_pause(PAUSE_FIRST, PAUSE_MAX, before.failures, rng)
    return UnreachablePeriod(name, before.since, before.cause, before.failures + 1, now, ask_at)


def jittered_pause(first: int, most: int, failures: int, rng: random.Random) -> int:
    """``first`` doubled with each failure, at most ``most``; from half of that to all of it."""
    pause = min(most, first << min(failures, 20))
    return pause // 2 + rng.randrange(pause // 2 + 1)


def align_retries(now: int, pause: int, phase: int = 0) -> int:
    """When to try again after a pause: somewhat later, so that many are tried at the same instant.

    What has become free meanwhile goes to whom the policies name among them, not to whoever was
    tried first; and the pool is looked at once for all. Another ``phase`` is another lead's: of
    two that gave at one instant each would miss what the other one is about to book.
    """
    again = now + pause
    step = next((step for step in _TOGETHER if step <= pause), 1)
    return again + (phase - again) % step
