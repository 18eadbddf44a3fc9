"""Shares over weeks: what each got of what was delivered, old windows counting less. Pure.

Use is summed in windows (a day each, seven of them), the one in progress first. A window counts
``decay`` times as much as the one after it. The usage of a campaign is its decayed sum over the
decayed sum of all: relative to what was delivered, not to what there was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from lead.policy.view import Charge, FairshareKind, FairshareView
from node.model import times

INTERVAL: Final = times.DAY
DEPTH: Final = 7
_PERCENT: Final = 100


@dataclass(frozen=True, slots=True)
class DecayWindows:
    """How use is remembered: windows of ``interval`` µs, ``depth`` of them, decaying."""

    interval: int = INTERVAL
    depth: int = DEPTH
    decay: Fraction = Fraction(1)


def decayed_sum(amounts: Sequence[Fraction | int], decay: Fraction) -> Fraction:
    """``a0 + a1*d + a2*d**2 + …``, the window in progress first."""
    total = Fraction(0)
    for amount in reversed(amounts):
        total = total * decay + amount
    return total


def usage(
    own: Sequence[Fraction | int], delivered: Sequence[Fraction | int], decay: Fraction
) -> Fraction:
    """The part (0 to 1) of what was delivered; 0 while nothing was."""
    total = decayed_sum(delivered, decay)
    return decayed_sum(own, decay) / total if total else Fraction(0)


def in_windows(
    ledger: Iterable[Charge], now: int, windows: DecayWindows
) -> tuple[dict[str, list[int]], list[int]]:
    """What each campaign was charged in each window, and all together (seat-µs).

    Windows begin at whole multiples of their interval. A charge that lies in several is split by
    time; what is yet to come does not count.
    """
    own: dict[str, list[int]] = {}
    delivered = [0] * windows.depth
    current = now // windows.interval
    for charge in ledger:
        mine = own.setdefault(charge.campaign, [0] * windows.depth)
        for index, amount in _split(charge, now, windows.interval):
            if 0 <= current - index < windows.depth:
                mine[current - index] += amount
                delivered[current - index] += amount
    return own, delivered


def _split(charge: Charge, now: int, interval: int) -> Iterable[tuple[int, int]]:
    """The number of each window that the charge touches, and how much of it lies there."""
    length = charge.end - charge.start
    first, last = charge.start // interval, (charge.end - 1) // interval
    if first == last and charge.end <= now:
        yield first, charge.amount
        return
    for index in range(first, last + 1):
        start = max(charge.start, index * interval)
        end = min(charge.end, (index + 1) * interval, now)
        if end > start:
            yield index, charge.amount * (end - start) // length


def usages(ledger: Iterable[Charge], now: int, windows: DecayWindows) -> dict[str, Fraction]:
    """The usage of every campaign that the ledger names."""
    own, delivered = in_windows(ledger, now, windows)
    return {name: usage(amounts, delivered, windows.decay) for name, amounts in own.items()}


def delta(used: Fraction, fairshare: FairshareView | None) -> Fraction:
    """How far a usage is from what it should be, in percent: positive is too little.

    A floor only ever lifts, a ceiling only ever lowers; without a fairshare there is no delta.
    """
    if fairshare is None:
        return Fraction(0)
    found = (fairshare.part - used) * _PERCENT
    if fairshare.kind is FairshareKind.FLOOR:
        return max(found, Fraction(0))
    if fairshare.kind is FairshareKind.CEILING:
        return min(found, Fraction(0))
    return found


def deltas(
    fairshares: Mapping[str, FairshareView | None],
    used: Mapping[str, Fraction],
    *,
    relative: bool = False,
) -> dict[str, Fraction]:
    """The delta of each, or the relative one; who was never charged used nothing."""
    find = relative_delta if relative else delta
    return {name: find(used.get(name, Fraction(0)), it) for name, it in fairshares.items()}


def relative_delta(used: Fraction, fairshare: FairshareView | None) -> Fraction:
    """The delta as a part of what it should be, ``1 - used/part``: small shares count as much."""
    if fairshare is None or not fairshare.part:
        return Fraction(0)
    return delta(used, fairshare) / (fairshare.part * _PERCENT)
