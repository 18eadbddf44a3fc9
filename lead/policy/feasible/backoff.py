"""Backoff after refusals: growing pauses per campaign, node, class, and kind of refusal. Pure.

A node that refuses a question, or does not answer it, is not asked for a while. One that has no
time has not refused: it may have some at another minute, and asking again is cheap.

The first refusal causes a pause of ten minutes, each further one doubles it, up to a day. Each
pause is drawn anew between half and one and a half of that (jitter), so that many do not retry in
step. One success ends it. A refusal of a question that was sent although the pause was not over
(already on its way, or together with another) does not lengthen it.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule
from lead.policy.view import Backoff
from node.model import backoff, times

Key = tuple[str, ...]
"""Campaign, node, and class; an answer holds for no other combination."""
FIRST: Final = 10 * times.MINUTE
MOST: Final = times.DAY
JITTER: Final = (0.5, 1.5)

IN_BACKOFF = RefusalRule(
    Axis.FEASIBLE,
    "backoff",
    "{node} refused {campaign} {failures:time} in a row and is not asked for a while",
)


def pause(failures: int, first: int = FIRST, most: int = MOST) -> int:
    """Return the pause (µs, without jitter) after ``failures`` refusals in a row."""
    return backoff.pause(failures, first, most)


def after_refusal(
    before: Backoff | None, now: int, rng: random.Random, first: int = FIRST, most: int = MOST
) -> Backoff:
    """Return the backoff after one more refusal; a backoff that is not over is unchanged."""
    if before is not None and now < before.until:
        return before
    failures = 1 + (before.failures if before else 0)
    return Backoff(failures, now + round(pause(failures, first, most) * rng.uniform(*JITTER)))


def capped_backoffs(backoffs: Mapping[Key, Backoff], now: int) -> dict[Key, Backoff]:
    """Return the backoffs, none of them longer from ``now`` than it can have been drawn.

    A clock that was ahead may have drawn it, and was set back since.
    """
    return {
        key: replace(it, until=min(it.until, now + round(pause(it.failures) * JITTER[1])))
        for key, it in backoffs.items()
    }


def after_answer(
    before: Mapping[Key, Backoff],
    asked: Collection[Key],
    given: Collection[Key],
    now: int,
    rng: random.Random,
) -> dict[Key, Backoff]:
    """Return all backoffs after an answer: keys in ``given`` are free, others asked wait."""
    after = {key: it for key, it in before.items() if key not in given}
    for key in asked:
        if key not in given:
            after[key] = after_refusal(before.get(key), now, rng)
    return after


def find_backoff_refusal(
    backoffs: Mapping[Key, Backoff], key: Key, now: int
) -> PolicyRefusal | None:
    """Return a refusal while the pause under this key lasts."""
    known = backoffs.get(key)
    if known is None or now >= known.until:
        return None
    campaign, node = key[:2]
    return IN_BACKOFF.refuse(
        until=known.until, node=node, campaign=campaign, failures=known.failures
    )
