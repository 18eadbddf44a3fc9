"""Backoff after refusals: growing pauses per campaign, node, class, and kind of refusal. Pure.

A node that refuses a question, or does not answer it, is not asked at all for a while. One that has
no time is not asked about that hour again for a while: it may be free in the next one.

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
from node.model import times

Key = tuple[str, ...]
"""Campaign, node, and class, and the beginning of the hour if the answer was about that hour only.

An answer holds for no other combination.
"""
FIRST: Final = 10 * times.MINUTE
MOST: Final = times.DAY
JITTER: Final = (0.5, 1.5)

IN_BACKOFF = RefusalRule(
    Axis.FEASIBLE,
    "backoff",
    "{node} refused {campaign} {failures:time} in a row and is not asked for a while",
)


NO_TIME_THEN = RefusalRule(
    Axis.FEASIBLE,
    "backoff",
    "{node} had no time for {campaign} in the hour from {hour} on, {failures:time} in a row, and "
    "is not asked about that hour for a while",
)


def key_of(campaign: str, node: str, class_: str, hour: int | None = None) -> Key:
    """Return the key of a refusal; without an ``hour`` (µs), of one that holds for all hours."""
    return (campaign, node, class_) if hour is None else (campaign, node, class_, str(hour))


def pause(failures: int, first: int = FIRST, most: int = MOST) -> int:
    """Return the pause (µs, without jitter) after ``failures`` refusals in a row."""
    return min(most, first << min(failures - 1, 40)) if failures else 0


def after_refusal(
    before: Backoff | None, now: int, rng: random.Random, first: int = FIRST, most: int = MOST
) -> Backoff:
    """Return the backoff after one more refusal; a backoff that is not over is unchanged."""
    if before is not None and now < before.until:
        return before
    failures = 1 + (before.failures if before else 0)
    return Backoff(failures, now + round(pause(failures, first, most) * rng.uniform(*JITTER)))


def bounded(backoffs: Mapping[Key, Backoff], now: int) -> dict[Key, Backoff]:
    """Return the backoffs, none of them longer from ``now`` than it can have been drawn.

    A clock that was ahead may have drawn it, and was set back since. Hours that are over are
    forgotten.
    """
    return {
        key: replace(it, until=min(it.until, now + round(pause(it.failures) * JITTER[1])))
        for key, it in backoffs.items()
        if (hour := _hour_of(key)) is None or now < hour + times.HOUR
    }


def _hour_of(key: Key) -> int | None:
    return int(key[3]) if len(key) > 3 else None  # noqa: PLR2004 - see Key


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


def refuse_during_backoff(
    backoffs: Mapping[Key, Backoff], keys: Collection[Key], now: int
) -> PolicyRefusal | None:
    """Return a refusal while one of the pauses under these keys lasts."""
    for key in keys:
        backoff = backoffs.get(key)
        if backoff is None or now >= backoff.until:
            continue
        campaign, node = key[:2]
        until, failures, hour = backoff.until, backoff.failures, _hour_of(key)
        if hour is None:
            return IN_BACKOFF.refuse(until=until, node=node, campaign=campaign, failures=failures)
        begin = times.to_the_second(hour)
        return NO_TIME_THEN.refuse(
            until=until, node=node, campaign=campaign, hour=begin, failures=failures
        )
    return None
