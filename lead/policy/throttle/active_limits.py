"""Limits on what may be under way at once, for everybody a run counts for. Pure.

A run counts for several *holders*: its campaign, the parents of that, its class, … Each may limit
the number of runs, the nodes and seats they take, what is still outstanding of their time, and so
on; a run must be within every limit of every holder. A limit is soft (when the pool is busy) and
hard (when room is left all the same).

One holder may override: its limits of nodes, seats and time take the place of those of all others
of that kind. An override of the number of runs is no more than a limit of its own: how many runs
others may have stays their affair.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from lead.policy.verdict import Axis, No, Rule
from lead.policy.view import Limit

RUNS: Final = "runs"
NODES: Final = "nodes"
SEATS: Final = "seats"
SEAT_TIME: Final = "seat_time"
"""Outstanding seat-µs: seats times the time that is left."""
TIME: Final = "time"
"""Outstanding µs of runs, however many seats each has."""

OVER = Rule(
    Axis.THROTTLE,
    "active limit",
    "{holder} would have {wanted} {kind} at once, of at most {limit} ({level})",
)


class Level(StrEnum):
    """How tight limits are: soft first, then hard with what is left."""

    SOFT = "soft"
    HARD = "hard"


@dataclass(frozen=True, slots=True)
class Holder:
    """Somebody a run counts for: its limits, and what it has under way, both by kind."""

    name: str
    limits: Mapping[str, Limit]
    in_use: Mapping[str, int] = field(default_factory=dict)


def limit_at(limit: Limit, level: Level) -> int | None:
    """The limit at a level; a soft one that is missing, or looser than the hard, is the hard."""
    if level is Level.HARD or limit.soft is None:
        return limit.hard
    return limit.soft if limit.hard is None else min(limit.soft, limit.hard)


def within_limits(
    request: Mapping[str, int],
    holders: Iterable[Holder],
    level: Level,
    overrides: Mapping[str, Limit] | None = None,
) -> No | None:
    """No with the first limit that would be exceeded, in the order of holders and their limits."""
    instead = {k: limit for k, limit in (overrides or {}).items() if k != RUNS}
    for holder in holders:
        for kind, own in holder.limits.items():
            most = limit_at(instead.get(kind, own), level)
            wanted = holder.in_use.get(kind, 0) + request.get(kind, 0)
            if most is not None and wanted > most:
                return OVER.says_no(
                    holder=holder.name, wanted=wanted, kind=kind, limit=most, level=level.value
                )
    return None


def outstanding(runs: Sequence[tuple[int, int]], after: int = 0) -> int:
    """What is left of these runs (seats, µs left) after so long: seat-µs."""
    return sum(seats * max(0, left - after) for seats, left in runs)
