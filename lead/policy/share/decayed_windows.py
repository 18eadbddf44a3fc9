"""Shares over weeks: each campaign's part of what was delivered, with older windows decayed. Pure.

Usage is summed in windows (by default seven of a day each), the one in progress first. A window
counts ``decay`` times as much as the one after it. The usage of a campaign is its decayed sum over
the decayed sum of all: relative to what was delivered, not to what was available.
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
    """The memory of usage: ``depth`` windows of ``interval`` µs, with a decay factor."""

    interval: int = INTERVAL
    depth: int = DEPTH
    decay: Fraction = Fraction(1)


def decayed_sum(amounts: Sequence[Fraction | int], decay: Fraction) -> Fraction:
    """Return ``a0 + a1*d + a2*d**2 + …``, the window in progress first."""
    total = Fraction(0)
    for amount in reversed(amounts):
        total = total * decay + amount
    return total


def usage(
    own: Sequence[Fraction | int], delivered: Sequence[Fraction | int], decay: Fraction
) -> Fraction:
    """Return the part (0 to 1) of what was delivered; 0 if nothing was."""
    total = decayed_sum(delivered, decay)
    return decayed_sum(own, decay) / total if total else Fraction(0)


def amounts_by_window(
    ledger: Iterable[Charge], now: int, windows: DecayWindows
) -> tuple[dict[str, list[int]], list[int]]:
    """Return what each campaign was charged in each window, and the total of each (seat-µs).

    Windows begin at whole multiples of their interval. A charge that spans several windows is split
    by time; its future part does not count.
    """
    by_campaign: dict[str, list[int]] = {}
    delivered = [0] * windows.depth
    current = now // windows.interval
    for charge in ledger:
        amounts = by_campaign.setdefault(charge.campaign, [0] * windows.depth)
        for index, amount in _split(charge, now, windows.interval):
            if 0 <= current - index < windows.depth:
                amounts[current - index] += amount
                delivered[current - index] += amount
    return by_campaign, delivered


def _split(charge: Charge, now: int, interval: int) -> Iterable[tuple[int, int]]:
    """Yield the number of each window that the charge overlaps, and the amount in it."""
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
    """Return the usage of every campaign that occurs in the ledger."""
    by_campaign, delivered = amounts_by_window(ledger, now, windows)
    return {name: usage(amounts, delivered, windows.decay) for name, amounts in by_campaign.items()}


def delta(used: Fraction, fairshare: FairshareView | None) -> Fraction:
    """Return how far a usage is below its fairshare, in percent; negative if it is above.

    A floor only raises, a ceiling only lowers; without a fairshare the delta is 0.
    """
    if fairshare is None:
        return Fraction(0)
    difference = (fairshare.part - used) * _PERCENT
    if fairshare.kind is FairshareKind.FLOOR:
        return max(difference, Fraction(0))
    if fairshare.kind is FairshareKind.CEILING:
        return min(difference, Fraction(0))
    return difference


def deltas(
    fairshares: Mapping[str, FairshareView | None],
    used: Mapping[str, Fraction],
    *,
    relative: bool = False,
) -> dict[str, Fraction]:
    """Return the (relative) delta of each; a campaign that was never charged used nothing."""
    delta_of = relative_delta if relative else delta
    return {name: delta_of(used.get(name, Fraction(0)), it) for name, it in fairshares.items()}


def relative_delta(used: Fraction, fairshare: FairshareView | None) -> Fraction:
    """Return the delta relative to the fairshare, ``1 - used/part``: small shares count as much."""
    if fairshare is None or not fairshare.part:
        return Fraction(0)
    return delta(used, fairshare) / (fairshare.part * _PERCENT)
