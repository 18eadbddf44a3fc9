"""The promise of a fairshare in a weighted sum: no amount, but which campaign comes first.

A *fairshare* gives points of priority for each percent that a campaign is below its target;
waiting, short runs and being passed over give points, too. This bounds no shares. It does imply
that of runs equal in all else, those of the campaign further below its target come first.
"""

from __future__ import annotations

from fractions import Fraction

from lead.policy.share.decayed_windows import DecayWindows, deltas, usages
from lead.pool.rehearsal.world import FleetBooking, HeldEpisode


class PullCounter:
    """A counter of runs booked before equal runs of a campaign further below its target."""

    def __init__(self) -> None:
        self.compared = 0
        self.too_soon = 0

    def __call__(self, held: HeldEpisode) -> None:
        """Compare the bookings of an episode in their order, by the usage in its view."""
        view = held.view
        used = usages(view.ledger, view.now, DecayWindows())
        below = deltas({name: it.fairshare for name, it in view.campaigns.items()}, used)
        least: dict[tuple[int, int, int], Fraction] = {}
        for booked in held.booked:
            key, delta = _comparison_key(held, booked), below[booked.candidate.campaign]
            if key in least:
                self.compared += 1
                self.too_soon += delta > least[key]
            least[key] = min(delta, least.get(key, delta))


def _comparison_key(held: HeldEpisode, booked: FleetBooking) -> tuple[int, int, int]:
    """Return everything else that gives points: waiting time, duration, number of passes."""
    candidate = booked.candidate
    passes = held.view.state.passes.get(candidate.task, 0)
    return candidate.waits_since, candidate.duration, passes
