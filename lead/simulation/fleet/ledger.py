"""What campaigns are charged, summed by the hour as the lead's ledger is.

The sums are in thousandths of a seat times microseconds, as in ``charge_hour``, and are read
through the same function; ``tests/unit/simulation/test_fleet.py`` holds them to the twin of the
table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from lead.planning.pool_view import charges_of
from lead.policy.view import BUCKET, Charge, PostedRun

WEIGHT = 1000
"""What a node is worth to an exclusive run."""


class Ledger:
    """The hourly sums of all campaigns."""

    def __init__(self) -> None:
        """Nothing was charged yet."""
        self._hours: defaultdict[int, defaultdict[str, int]] = defaultdict(_sums)

    def charge(self, run: PostedRun, weight: int = WEIGHT) -> None:
        """A run was booked; a negative weight takes it back."""
        for hour, spent in by_hour(run.start, run.end):
            self._hours[hour][run.campaign] += weight * spent * len(run.nodes)

    def read(self, since: int) -> list[Charge]:
        """As an episode sees it: from the hour of an instant on."""
        first = since - since % BUCKET
        return charges_of(
            (campaign, hour, amount)
            for hour, sums in sorted(self._hours.items())
            if hour >= first
            for campaign, amount in sorted(sums.items())
        )


def by_hour(start: int, end: int) -> Iterator[tuple[int, int]]:
    """The hours that a span lies in, and how much of it lies there."""
    hour = start - start % BUCKET
    while hour < end:
        yield hour, min(end, hour + BUCKET) - max(start, hour)
        hour += BUCKET


def _sums() -> defaultdict[str, int]:
    return defaultdict(int)
