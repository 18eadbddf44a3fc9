"""The ledger of a rehearsal: what campaigns are charged, by the hour like the lead's ledger.

The sums are in thousandths of a seat times microseconds, as in ``charge_hour``, and are read by
the same function; ``tests/integration/simulation/test_fleet.py`` compares them with the
table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from lead.planning.pool_view import charges_of
from lead.policy.view import BUCKET, Charge, PostedRun

WEIGHT = 1000
"""The charge for a node during an exclusive run, in thousandths."""


class Ledger:
    """The hourly sums of all campaigns."""

    def __init__(self) -> None:
        self._hours: defaultdict[int, defaultdict[str, int]] = defaultdict(_sums)

    def charge(self, run: PostedRun, weight: int = WEIGHT) -> None:
        """Charge a booked run; a negative weight reverses the charge."""
        for hour, spent in by_hour(run.start, run.end):
            self._hours[hour][run.campaign] += weight * spent * len(run.nodes)

    def read(self, since: int) -> list[Charge]:
        """Return the charges from the hour of ``since`` on, as an episode sees them."""
        first = since - since % BUCKET
        return charges_of(
            (campaign, hour, amount)
            for hour, sums in sorted(self._hours.items())
            if hour >= first
            for campaign, amount in sorted(sums.items())
        )


def by_hour(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the hours that a span overlaps and the length of each overlap."""
    hour = start - start % BUCKET
    while hour < end:
        yield hour, min(end, hour + BUCKET) - max(start, hour)
        hour += BUCKET


def _sums() -> defaultdict[str, int]:
    return defaultdict(int)
