"""What a fairshare in a weighted sum promises: not how much anybody gets, but who comes first.

A *fairshare* is so many points of priority for each percent that a campaign is below its target;
waiting, short runs and being passed over are points, too. No bound of the shares follows from that.
What does: of runs alike in all else, those of the campaign further below its target come first.
"""

from __future__ import annotations

from fractions import Fraction

from lead.policy.share.decayed_windows import DecayWindows, deltas, usages
from lead.simulation.fleet.world import FleetBooking, HeldEpisode


class PullCounter:
    """Counts runs that were booked before such ones."""

    def __init__(self) -> None:
        """None yet."""
        self.compared = 0
        self.too_soon = 0

    def __call__(self, held: HeldEpisode) -> None:
        """Look at what an episode booked, one after the other, by what its view has of usage."""
        view = held.view
        used = usages(view.ledger, view.now, DecayWindows())
        below = deltas({name: it.fairshare for name, it in view.campaigns.items()}, used)
        least: dict[tuple[int, int, int], Fraction] = {}
        for booked in held.booked:
            alike, found = _alike(held, booked), below[booked.candidate.campaign]
            if alike in least:
                self.compared += 1
                self.too_soon += found > least[alike]
            least[alike] = min(found, least.get(alike, found))


def _alike(held: HeldEpisode, booked: FleetBooking) -> tuple[int, int, int]:
    """What else counts: how long it has waited, how long it is, how often it was passed over."""
    candidate = booked.candidate
    passes = held.view.state.passes.get(candidate.task, 0)
    return candidate.waits_since, candidate.duration, passes
