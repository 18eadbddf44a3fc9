"""Leaving alone who has nothing or says no: growing pauses, per campaign, node and class. Pure.

The first refusal makes a pause of ten minutes, each further one doubles it, up to a day; each is
drawn anew between half and one and a half of it, so that many do not come back in step. One
success ends it. A question that was asked although the pause was not over (on the way, with
another one) does not lengthen it.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from typing import Final

from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule
from lead.policy.view import Backoff
from node.model import times

Key = tuple[str, str, str]
"""Campaign, node and class: an answer says nothing of any other."""
FIRST: Final = 10 * times.MINUTE
MOST: Final = times.DAY
JITTER: Final = (0.5, 1.5)

IN_BACKOFF = RefusalRule(
    Axis.FEASIBLE,
    "backoff",
    "{node} refused {campaign} {failures} times in a row and is left alone for a while",
)


def pause(failures: int, first: int = FIRST, most: int = MOST) -> int:
    """The pause (µs, before it is drawn) after so many refusals in a row; none after a success."""
    return min(most, first << min(failures - 1, 40)) if failures else 0


def after_refusal(
    before: Backoff | None, now: int, rng: random.Random, first: int = FIRST, most: int = MOST
) -> Backoff:
    """The backoff after one more refusal; the one before stands if it was not over yet."""
    if before is not None and now < before.until:
        return before
    failures = 1 + (before.failures if before else 0)
    return Backoff(failures, now + round(pause(failures, first, most) * rng.uniform(*JITTER)))


def after_answer(
    before: Mapping[Key, Backoff],
    asked: Collection[Key],
    given: Collection[Key],
    now: int,
    rng: random.Random,
) -> dict[Key, Backoff]:
    """All backoffs after an answer: those given something are free, the others asked wait."""
    after = {key: it for key, it in before.items() if key not in given}
    for key in asked:
        if key not in given:
            after[key] = after_refusal(before.get(key), now, rng)
    return after


def refuse_during_backoff(
    backoff: Backoff | None, node: str, campaign: str, now: int
) -> PolicyRefusal | None:
    """No while the pause lasts."""
    if backoff is None or now >= backoff.until:
        return None
    return IN_BACKOFF.says_no(
        until=backoff.until, node=node, campaign=campaign, failures=backoff.failures
    )
