"""The nodes to look at next: with whom this one measures often, and with the others seldom. Pure.

A look is two signed requests here and two answers there, so looking at all that are known, all the
time, costs each node of a fleet of *n* as much as *n* nodes. A round therefore has room for
``ROUND_MAX`` looks. A fleet that fits into it is looked at as a whole. Of a larger one those go
first whose look is the most overdue, measured in the interval in which it is wanted: each round for
a node with which open tasks are shared, ``SELDOM`` for every other one. A node that is new counts
as looked at ``SELDOM`` ago: it is due, and a partner among the first.

So a node of which nothing is wanted costs little, and whoever measures with hundreds looks at each
as often as there is room. That a node is away is also seen by all that is sent to it, and that it
is back by all that it sends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from collections.abc import Set as AbstractSet
from typing import TypeVar

from node.model import times

ROUND = 15 * times.SECOND
"""The time from one round to the next (µs)."""

SELDOM = 10 * times.MINUTE
"""The interval in which a node is looked at with which no task is shared (µs)."""

PARTNERS_EVERY = times.MINUTE
"""The interval in which it is found out with whom tasks are shared, from all open tasks (µs)."""

ROUND_MAX = 32
"""Maximum number of nodes in a round, without those that fetch their work, which are not asked."""

_EARLY = ROUND // 2
"""The time by which a round may begin too early (µs)."""

Node = TypeVar("Node")


def fits(known: Sized) -> bool:
    """Return whether so many others fit into one round, so that all are looked at in each."""
    return len(known) <= ROUND_MAX


def in_this_round(
    known: Sequence[Node],
    identity: Callable[[Node], str],
    partners: AbstractSet[str],
    looked_at: Mapping[str, int],
    now: int,
) -> list[Node]:
    """Return the nodes to look at in the round that begins ``now``, those most overdue first.

    ``partners`` are the identities of the nodes with which open tasks are shared, ``looked_at`` has
    the instant of the last look at each by identity, on the clock of ``now`` (µs).
    """
    if fits(known):
        return list(known)
    overdue = {
        identity(it): (now - looked_at[identity(it)] + _EARLY)
        / (ROUND if identity(it) in partners else SELDOM)
        for it in known
    }
    due = (it for it in known if overdue[identity(it)] >= 1)
    return sorted(due, key=lambda it: -overdue[identity(it)])[:ROUND_MAX]
