"""The tasks of the users: most for hours ahead, a third for now; more than there is time for."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from node.model import times
from node.model.times import format_duration, format_instant
from tests.chaos.plan import HORIZON_H

_CLASSES = {"exclusive": 30, "normal": 42, "background": 18, "background-multi": 10}
_PRIORITIES = (0, 0, 0, 1, 5, 10)
_FIRST = 40 * times.MINUTE
_LAST = (HORIZON_H - 1) * times.HOUR
_SLIPS_SOON = (10, 30, 60)
_TAKING = 0.15
"""The part of the tasks whose runs take of a resource, of which every node keeps two."""
_ARCHIVED = ("all", "all", "succeeded", "failed")
Json = dict[str, Any]


class Place(Protocol):
    """A node, as far as tasks name it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def address(self) -> str:
        """The address that measurements use."""
        ...

    @property
    def results(self) -> Path:
        """The file to which it delivers results."""
        ...


@dataclass(frozen=True)
class Wish:
    """A task document, and what its user remembers of it."""

    document: Json
    participants: tuple[str, ...]
    soon: bool
    over_at: int
    """The latest end of its last run, in microseconds since 1970."""

    @property
    def idle(self) -> bool:
        """Return whether its spec has a duration that can be edited."""
        return bool(self.document["test"]["type"] == "idle")


def wish(rng: random.Random, lead: Place, places: list[Place], now: int, reference: str) -> Wish:
    """Return a wish of a user of ``lead``; in three of four tasks the lead is a participant."""
    count = rng.choice((1, 2, 2, 2, 3, 3))
    participants = rng.sample(places, count)
    if rng.random() < 0.75 and lead not in participants:
        participants[rng.randrange(count)] = lead
    made = rng.choices((_single, _batch, _soon), (42, 26, 32))[0]
    wished = made(rng, lead, participants, now, reference)
    if rng.random() < _TAKING:
        wished.document["takes"] = [f"link@{rng.choice(places).name}:{rng.choice((1, 1, 2))}"]
    return wished


def _single(
    rng: random.Random, _lead: Place, participants: list[Place], now: int, reference: str
) -> Wish:
    """Return a wish for one run some hours ahead."""
    start = now + rng.randrange(_FIRST, _LAST)
    slip = rng.choice((0, times.MINUTE, 10 * times.MINUTE, 30 * times.MINUTE))
    duration = rng.randrange(10, 400) * times.SECOND
    schedule = {"start": format_instant(start), "slip": format_duration(slip)}
    document = _idle(rng, participants, duration, schedule, reference)
    return Wish(document, _names(participants), soon=False, over_at=start + slip + duration)


def _batch(
    rng: random.Random, _lead: Place, participants: list[Place], now: int, reference: str
) -> Wish:
    """Return a wish for up to twenty runs in one exchange."""
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
    document = _idle(rng, participants, duration, schedule, reference)
    return Wish(document, _names(participants), soon=False, over_at=until)


def _soon(
    rng: random.Random, lead: Place, participants: list[Place], now: int, reference: str
) -> Wish:
    """Return a wish for a few runs from now on, which are really executed."""
    slip = rng.choice(_SLIPS_SOON) * times.SECOND
    schedule: Json = {"slip": format_duration(slip)}
    over_at = now + slip
    if rng.random() < 0.6:
        start = now + rng.randrange(2, 60) * times.SECOND
        repeat = rng.randrange(10, 40) * times.SECOND
        until = start + rng.randrange(1, 6) * repeat
        over_at = until + slip
        schedule |= {
            "start": format_instant(start),
            "repeat": format_duration(repeat),
            "until": format_instant(until),
        }
    duration = rng.randrange(1, 3) * times.SECOND
    document = _idle(rng, participants, duration, schedule, reference)
    if len(participants) > 1 and rng.random() < 0.2:
        _measure(rng, participants, document)
        del participants[1 if document["test"]["type"] == "rtt" else 2 :]
    if rng.random() < 0.8:
        spec = {"path": str(lead.results)}
        document["archives"] = [{"archiver": "file", "spec": spec, "runs": rng.choice(_ARCHIVED)}]
    return Wish(document, _names(participants), soon=True, over_at=over_at + 5 * times.SECOND)


def _measure(rng: random.Random, participants: list[Place], document: Json) -> None:
    """Let the first participant measure to the second, with real packets, for about a second."""
    source, dest = participants[:2]
    del document["participants"]
    if rng.random() < 0.75:
        spec: Json = {"source": source.name, "dest": dest.address, "count": 3}
        document["test"] = {"type": "rtt", "spec": {**spec, "interval": "PT0.2S"}}
    else:
        spec = {"source": source.name, "dest": dest.name, "count": 20}
        document["test"] = {"type": "latency", "spec": {**spec, "interval": "PT0.02S"}}


def _idle(
    rng: random.Random, participants: list[Place], duration: int, schedule: Json, reference: str
) -> Json:
    scheduling_class = rng.choices(list(_CLASSES), list(_CLASSES.values()))[0]
    spec = {"duration": format_duration(duration), "class": scheduling_class}
    return {
        "test": {"type": "idle", "spec": spec},
        "participants": list(_names(participants)),
        "schedule": schedule,
        "priority": rng.choice(_PRIORITIES),
        "reference": reference,
    }


def _names(participants: list[Place]) -> tuple[str, ...]:
    return tuple(participant.name for participant in participants)


def edit(rng: random.Random, now: int, wished: Wish) -> Json:
    """Return a change of a task as a merge patch; what begins soon stays soon."""
    kinds = ["priority", "slip"]
    if wished.idle:
        kinds.append("spec")
    if not wished.soon:
        kinds += ["start", "until"]
    kind = rng.choice(kinds)
    if kind == "priority":
        return {"priority": rng.choice(_PRIORITIES)}
    if kind == "slip":
        slip = rng.choice(_SLIPS_SOON) if wished.soon else 60 * rng.randrange(0, 10)
        return {"schedule": {"slip": format_duration(slip * times.SECOND)}}
    if kind == "spec":
        seconds = rng.randrange(1, 3) if wished.soon else rng.randrange(5, 120)
        return {"test": {"spec": {"duration": format_duration(seconds * times.SECOND)}}}
    if kind == "until" and "until" in wished.document["schedule"]:
        later = rng.randrange(1, 5) * times.HOUR
        return {"schedule": {"until": format_instant(now + _FIRST + later)}}
    return {"schedule": {"start": format_instant(now + rng.randrange(_FIRST, _LAST))}}
