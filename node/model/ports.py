"""Which ports of its range a node gives out; pure."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from uuid import UUID

_DRAWN = 8
"""So often a free port is drawn by chance before all are looked at; most are free."""


def consecutive_ports(
    needing: Mapping[UUID, int], every: range, used: AbstractSet[int], rng: random.Random
) -> dict[UUID, int | None]:
    """For each that needs so many ports in a row the first of free ones, None if there are none.

    None of them is given twice. ``every`` is the range of the node's ports.
    """
    taken, found = set(used), dict[UUID, int | None]()
    for who, count in needing.items():
        first = _free(range(every.start, every.stop + 1 - count, 2), count, taken, rng)
        found[who] = first
        if first is not None:
            taken.update(range(first, first + count))
    return found


def single_ports(
    needing: Iterable[UUID], every: range, used: AbstractSet[int], rng: random.Random
) -> dict[UUID, int]:
    """For each a port: a free one, else any, for what has one port does not have it all the time.

    Every other one of ``every``: tools of one port may use the next as well.
    """
    taken, found = set(used), dict[UUID, int]()
    bases = range(every.start, every.stop - 1, 2) or every
    for who in needing:
        free = _free(bases, 1, taken, rng)
        found[who] = rng.choice(bases) if free is None else free
        taken.add(found[who])
    return found


def no_free_ports_reason(count: int, every: range) -> str:
    """Why a hold is refused that gets no row of ports."""
    return (
        f"no {count} ports in a row are free in {every.start}-{every.stop - 1} "
        "(PARLEY_PORT_FIRST, PARLEY_PORT_LAST)"
    )


def _free(
    bases: Sequence[int], count: int, used: AbstractSet[int], rng: random.Random
) -> int | None:
    """One of them from which on ``count`` are free; None if there is none."""

    def is_free(port: int) -> bool:
        return used.isdisjoint(range(port, port + count))

    if not bases:
        return None
    drawn = next(filter(is_free, (rng.choice(bases) for _ in range(_DRAWN))), None)
    if drawn is None and (free := list(filter(is_free, bases))):
        return rng.choice(free)
    return drawn
