"""The tasks of the users: most for hours ahead, a few for now; more than there is time for."""

from __future__ import annotations

import random
from typing import Any

from node.model import times
from node.model.times import format_duration, format_instant
from tests.chaos.plan import HORIZON_H

_CLASSES = {"exclusive": 30, "normal": 42, "background": 18, "background-multi": 10}
_PRIORITIES = (0, 0, 0, 1, 5, 10)
_FIRST = 40 * times.MINUTE
_LAST = (HORIZON_H - 1) * times.HOUR


def document(
    rng: random.Random, lead: str, names: list[str], now: int, reference: str
) -> dict[str, Any]:
    """Return a task document; in three of four the lead is a participant."""
    count = rng.choice((1, 2, 2, 2, 3, 3))
    participants = rng.sample(names, count)
    if rng.random() < 0.75 and lead not in participants:
        participants[rng.randrange(count)] = lead
    duration, schedule = rng.choices((_single, _batch, _soon), (55, 35, 10))[0](rng, now)
    scheduling_class = rng.choices(list(_CLASSES), list(_CLASSES.values()))[0]
    return {
        "test": {
            "type": "idle",
            "spec": {"duration": format_duration(duration), "class": scheduling_class},
        },
        "participants": participants,
        "schedule": schedule,
        "priority": rng.choice(_PRIORITIES),
        "reference": reference,
    }


def _single(rng: random.Random, now: int) -> tuple[int, dict[str, Any]]:
    """Return duration and schedule of one run some hours ahead."""
    start = now + rng.randrange(_FIRST, _LAST)
    slip = rng.choice((0, times.MINUTE, 10 * times.MINUTE, 30 * times.MINUTE))
    duration = rng.randrange(10, 400) * times.SECOND
    return duration, {"start": format_instant(start), "slip": format_duration(slip)}


def _batch(rng: random.Random, now: int) -> tuple[int, dict[str, Any]]:
    """Return duration and schedule of up to twenty runs in one exchange."""
    start = now + rng.randrange(_FIRST, _LAST)
    repeat = rng.choice((5, 10, 15, 20)) * times.MINUTE
    until = start + rng.randrange(2, 20) * repeat
    duration = rng.randrange(5, 120) * times.SECOND
    schedule = {
        "start": format_instant(start),
        "repeat": format_duration(repeat),
        "until": format_instant(until),
        "slip_random": rng.random() < 0.2,
    }
    return duration, schedule


def _soon(rng: random.Random, now: int) -> tuple[int, dict[str, Any]]:
    """Return duration and schedule of a few runs from now on, which are really executed."""
    schedule: dict[str, Any] = {"slip": format_duration(rng.choice((10, 30, 60)) * times.SECOND)}
    if rng.random() < 0.6:
        start = now + rng.randrange(2, 60) * times.SECOND
        repeat = rng.choice((70, 90)) * times.SECOND
        schedule |= {
            "start": format_instant(start),
            "repeat": format_duration(repeat),
            "until": format_instant(start + rng.randrange(1, 4) * repeat),
        }
    return rng.randrange(1, 4) * times.SECOND, schedule


def edit(rng: random.Random, now: int, schedule: dict[str, Any]) -> dict[str, Any]:
    """Return a change of a task with this schedule as a merge patch."""
    kind = rng.choice(("priority", "slip", "start", "until", "spec"))
    if kind == "priority":
        return {"priority": rng.choice(_PRIORITIES)}
    if kind == "slip":
        return {"schedule": {"slip": format_duration(rng.randrange(0, 10) * times.MINUTE)}}
    if kind == "spec":
        return {
            "test": {"spec": {"duration": format_duration(rng.randrange(5, 120) * times.SECOND)}}
        }
    if kind == "until" and "until" in schedule:
        later = rng.randrange(1, 5) * times.HOUR
        return {"schedule": {"until": format_instant(now + _FIRST + later)}}
    return {"schedule": {"start": format_instant(now + rng.randrange(_FIRST, _LAST))}}
