"""Promised seats are taken back from whoever borrowed them. Pure.

When a group is below its target and has work, groups above theirs give way, always the one that is
furthest above; inside a group the run that has run for the shortest time goes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lead.policy.verdict import Axis, RefusalRule

NOTHING_LENT = RefusalRule(
    Axis.PREEMPT,
    "nothing-lent",
    "{group} holds {held} of its {target} seats, and no other group is above its own",
)


def take_back(
    short: int, held: Mapping[str, int], targets: Mapping[str, int], unit: int = 1
) -> dict[str, int]:
    """How much each group gives up so that ``short`` seats come free, as far as that goes."""
    above = {name: amount - targets[name] for name, amount in held.items()}
    taken: dict[str, int] = {}
    while short > 0 and above:
        furthest = max(above, key=lambda name: above[name])
        amount = min(unit, short, above[furthest])
        if amount <= 0:
            break
        above[furthest] -= amount
        taken[furthest] = taken.get(furthest, 0) + amount
        short -= amount
    return taken


def shortest_running(running: Iterable[tuple[int, str]], most: int) -> list[str]:
    """At most so many runs of a group, given as (running time, run): the youngest first."""
    return [run for _, run in sorted(running)][:most]
