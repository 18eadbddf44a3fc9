"""The outcome of a rehearsal: by campaign what it had, how long it waited, and what it lost."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median_low
from uuid import UUID

from lead.pool.rehearsal.world import Demand, Fleet, HeldEpisode, Placement
from node.model.wire.policy_plans import (
    SHOWN_MAX,
    CampaignForecast,
    ForecastRun,
    PolicyForecast,
)
from node.model.wire.pools import PolicyChoice


@dataclass(frozen=True, slots=True)
class _Lost:
    """A run that gave way, or did not start in time."""

    campaign: str
    slot: int
    task: UUID | None


class ForecastCounter:
    """Counts what episodes displace, and what is left in the end."""

    def __init__(self, since: int) -> None:
        """Count runs that start at this instant or later."""
        self._since = since
        self._displaced: list[_Lost] = []

    def __call__(self, held: HeldEpisode) -> None:
        """Count the runs that an episode displaced."""
        for booked in held.booked:
            for gone in booked.displaced:
                slot = booked.slots_of_displaced.get(gone.run, gone.start)
                self._displaced.append(_Lost(gone.campaign, slot, None))

    def forecast(self, fleet: Fleet, policy: PolicyChoice, looked_until: int) -> PolicyForecast:
        """Return what came of it."""
        placements = [
            it for it in fleet.placements.values() if self._since <= it.run.start < looked_until
        ]
        waits: defaultdict[str, list[int]] = defaultdict(list)
        spent: Counter[str] = Counter()
        for it in placements:
            waits[it.run.campaign].append(max(0, it.run.start - it.slot))
            spent[it.run.campaign] += (it.run.end - it.run.start) * len(it.run.nodes)
        missed = sorted(
            (lost for demand in fleet.missed for lost in _losses(demand)),
            key=lambda it: (it.slot, it.campaign),
        )
        missed = [it for it in missed if it.slot < looked_until]
        displaced = [it for it in self._displaced if it.slot < looked_until]
        names = sorted({*waits, *(it.campaign for it in (*missed, *displaced))})
        total = max(1, spent.total())
        return PolicyForecast(
            policy=policy,
            campaigns=tuple(
                CampaignForecast(
                    campaign=name,
                    runs=len(waits[name]),
                    seat_time=spent[name],
                    share=round(spent[name] / total, 4),
                    wait_median=median_low(waits[name]) if waits[name] else 0,
                    wait_longest=max(waits[name], default=0),
                    displaced=_count(displaced, name),
                    missed=_count(missed, name),
                )
                for name in names
            ),
            displaced=tuple(map(_shown, displaced[:SHOWN_MAX])),
            missed=tuple(map(_shown, missed[:SHOWN_MAX])),
            looked_until=looked_until,
        )


def _losses(demand: Demand) -> Iterator[_Lost]:
    """Yield the runs of a demand, one for each seat and slot."""
    seeking = demand.seeking
    task = None if seeking is None else seeking.case.pool_task.id
    seats = (
        demand.candidate.k
        if seeking is None or demand.candidate.together
        else len(seeking.case.empty)
    )
    for slot in demand.slots:
        for _ in range(1 if demand.candidate.together else seats):
            yield _Lost(demand.candidate.campaign, slot, task)


def _count(lost: Iterable[_Lost], campaign: str) -> int:
    return sum(it.campaign == campaign for it in lost)


def _shown(lost: _Lost) -> ForecastRun:
    return ForecastRun(task=lost.task, campaign=lost.campaign, slot=lost.slot)


class Rehearsal:
    """A fleet that is played under one choice of policies, and what came of it."""

    def __init__(self, fleet: Fleet, policy: PolicyChoice, until: int) -> None:
        """Play the fleet until an instant, or until it has taken as long as it may."""
        self._fleet = fleet
        self._policy = policy
        self._counter = ForecastCounter(fleet.begins)
        for _ in fleet.play(until - fleet.begins, self._counter):
            pass
        self.looked_until = fleet.looked_until(until)

    @property
    def placements(self) -> Iterable[Placement]:
        """Return the runs that were posted, and stayed."""
        return self._fleet.placements.values()

    def forecast(self, until: int) -> PolicyForecast:
        """Return what came of it up to an instant."""
        return self._counter.forecast(self._fleet, self._policy, until)


def compared(rehearsals: Sequence[Rehearsal]) -> list[PolicyForecast]:
    """Return what came of rehearsals of one situation, as far as all of them came."""
    until = min(it.looked_until for it in rehearsals)
    return [it.forecast(until) for it in rehearsals]
