"""Allocation of ports from a node's range. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any
from uuid import UUID

from node.model.reason import Reason
from node.model.reasons import no_port_told, port_not_of_tools

_RANDOM_TRIES = 8
"""Random tries for a free port before all are searched; usually most ports are free."""


def consecutive_ports(
    needing: Mapping[UUID, int], every: range, used: AbstractSet[int], rng: random.Random
) -> dict[UUID, int | None]:
    """Return for each run the first of the consecutive free ports that it needs, or None.

    No port is given to two runs. ``needing`` has the number of ports per run; ``every`` is the
    range of the node's ports.
    """
    in_use, bases = set(used), dict[UUID, int | None]()
    for run, count in needing.items():
        base = _find_free(range(every.start, every.stop + 1 - count, 2), count, in_use, rng)
        bases[run] = base
        if base is not None:
            in_use.update(range(base, base + count))
    return bases


def single_ports(
    needing: Iterable[UUID], every: range, used: AbstractSet[int], rng: random.Random
) -> dict[UUID, int]:
    """Return a port for each run: a free one if possible, else any of the range.

    A run with a single port does not use it all the time, so sharing one is allowed. Only every
    second port of ``every`` is given out, because tools of one port may also use the next one.
    """
    in_use, ports = set(used), dict[UUID, int]()
    bases = range(every.start, every.stop - 1, 2) or every
    for run in needing:
        free = _find_free(bases, 1, in_use, rng)
        ports[run] = rng.choice(bases) if free is None else free
        in_use.add(ports[run])
    return ports


def announced_ports(data: Mapping[str, Any]) -> range:
    """Return the ports that a node has told in its hold; empty if it has told none."""
    port, count = data.get("port"), data.get("ports", 1)
    if not isinstance(port, int) or not isinstance(count, int):
        return range(0)
    return range(port, port + count)


def foreign_port_refusal(name: str, told: range, every: range, *, at_home: bool) -> Reason | None:
    """Return why a task of another node sends nothing to these ports of a node; None if it may.

    ``every`` are the ports of this host's tools. A card may have an address that is not the node's,
    so ports beyond those are for nodes that are ``at_home``: their API answers at that address.
    """
    if not told:
        return no_port_told(name)
    if at_home or (told.start in every and told.stop - 1 in every):
        return None
    return port_not_of_tools(name, told.start, every.start, every.stop - 1)


def _find_free(
    bases: Sequence[int], count: int, used: AbstractSet[int], rng: random.Random
) -> int | None:
    """Return a random base with ``count`` free ports from there on; None if there is none."""

    def is_free(port: int) -> bool:
        return used.isdisjoint(range(port, port + count))

    if not bases:
        return None
    port = next(filter(is_free, (rng.choice(bases) for _ in range(_RANDOM_TRIES))), None)
    if port is None and (free := list(filter(is_free, bases))):
        return rng.choice(free)
    return port
