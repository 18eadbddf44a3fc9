"""Limits on what may be under way at once, for everybody a run counts for. Pure.

A run counts for several *holders*: its campaign, the parents of that, its class, … Each may limit
the number of runs, the nodes and seats they take, what is still outstanding of their time, and so
on; a run must be within every limit of every holder. A limit is soft (when the pool is busy) and
hard (when room is left all the same).

One holder may override: its limits of nodes, seats and time take the place of those of all others
of that kind. An override of the number of runs is no more than a limit of its own: how many runs
others may have stays their affair.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from heapq import heappop, heappush
from typing import Final

from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule
from lead.policy.view import CampaignView, Candidate, LimitView, PostedRun
from node.model.spans import Span

RUNS: Final = "runs"
NODES: Final = "nodes"
SEATS: Final = "seats"
SEAT_TIME: Final = "seat_time"
"""Outstanding seat-µs: seats times the time that is left."""
TIME: Final = "time"
"""Outstanding µs of runs, however many seats each has."""

OVER = RefusalRule(
    Axis.THROTTLE,
    "active limit",
    "{holder} would have {wanted} {kind} at once, of at most {limit} ({level})",
)


class LimitLevel(StrEnum):
    """How tight limits are: soft first, then hard with what is left."""

    SOFT = "soft"
    HARD = "hard"


@dataclass(frozen=True, slots=True)
class Holder:
    """Somebody a run counts for: its limits, and what it has under way, both by kind."""

    name: str
    limits: Mapping[str, LimitView]
    in_use: Mapping[str, int] = field(default_factory=dict)


def limit_at(limit: LimitView, level: LimitLevel) -> int | None:
    """The limit at a level; a soft one that is missing, or looser than the hard, is the hard."""
    if level is LimitLevel.HARD or limit.soft is None:
        return limit.hard
    return limit.soft if limit.hard is None else min(limit.soft, limit.hard)


def within_limits(
    request: Mapping[str, int],
    holders: Iterable[Holder],
    level: LimitLevel,
    overrides: Mapping[str, LimitView] | None = None,
) -> PolicyRefusal | None:
    """No with the first limit that would be exceeded, in the order of holders and their limits."""
    instead = {k: limit for k, limit in (overrides or {}).items() if k != RUNS}
    for holder in holders:
        for kind, own in holder.limits.items():
            most = limit_at(instead.get(kind, own), level)
            wanted = holder.in_use.get(kind, 0) + request.get(kind, 0)
            if most is not None and wanted > most:
                return OVER.says_no(
                    holder=holder.name, wanted=wanted, kind=kind, limit=most, level=level.value
                )
    return None


def outstanding(runs: Sequence[tuple[int, int]], after: int = 0) -> int:
    """What is left of these runs (seats, µs left) after so long: seat-µs."""
    return sum(seats * max(0, left - after) for seats, left in runs)


def request_of(candidate: Candidate) -> dict[str, int]:
    """What will be booked for a candidate, by kind: runs, nodes and seats at once, all its time.

    Nodes that do not act together have runs of their own.
    """
    nodes, time = candidate.k, sum(end - start for start, end in candidate.spans)
    runs = nodes if candidate.apart else 1
    return {RUNS: runs, NODES: nodes, SEATS: nodes, SEAT_TIME: nodes * time, TIME: runs * time}


class ActiveBookings:
    """What is booked for each campaign and for its parents, as far as it is not over at ``now``.

    Runs, nodes and seats count at the instant beside a run at which there are most of them: short
    runs one after the other are not under way at once. Time counts as long as it is outstanding,
    whenever it is booked.
    """

    def __init__(
        self, runs: Iterable[PostedRun], campaigns: Mapping[str, CampaignView], now: int
    ) -> None:
        self._campaigns = campaigns
        self._now = now
        self._longest = 0
        self._runs: dict[str, list[tuple[int, int, int]]] = {}
        self._seat_time: dict[str, int] = {}
        self._time: dict[str, int] = {}
        for run in runs:
            if run.end > now:
                for name in self._count(run):
                    self._runs.setdefault(name, []).append((run.start, run.end, len(run.nodes)))
        for booked in self._runs.values():
            booked.sort()

    def add(self, run: PostedRun, *, apart: bool = False) -> None:
        """One more run is booked; ``apart``: one for each of its nodes."""
        for each in [replace(run, nodes=(it,)) for it in run.nodes] if apart else [run]:
            for name in self._count(each):
                insort(self._runs.setdefault(name, []), (run.start, run.end, len(each.nodes)))

    def _count(self, run: PostedRun) -> list[str]:
        """Add up its time; those with limits for whom it counts."""
        whole, over = run.end - run.start, max(0, self._now - run.start)
        self._longest = max(self._longest, whole)
        limited = [name for name in self._lineage(run.campaign) if self._campaigns[name].limits]
        for name in limited:
            self._time[name] = self._time.get(name, 0) + outstanding([(1, whole)], over)
            seat_time = outstanding([(len(run.nodes), whole)], over)
            self._seat_time[name] = self._seat_time.get(name, 0) + seat_time
        return limited

    def _lineage(self, campaign: str | None) -> Iterator[str]:
        while campaign is not None and campaign in self._campaigns:
            yield campaign
            campaign = self._campaigns[campaign].parent

    def holders(self, campaign: str, span: Span) -> list[Holder]:
        """Those of a campaign and its parents that have limits, and what they have then."""
        return [
            Holder(name, self._campaigns[name].limits, self._in_use(name, span))
            for name in self._lineage(campaign)
            if self._campaigns[name].limits
        ]

    def _in_use(self, name: str, span: Span) -> dict[str, int]:
        booked = self._runs.get(name, [])
        first = bisect_left(booked, (span[0] - self._longest,))
        after = bisect_left(booked, (span[1],))
        runs, nodes = _most_at_once([run for run in booked[first:after] if run[1] > span[0]])
        return {
            RUNS: runs,
            NODES: nodes,
            SEATS: nodes,
            SEAT_TIME: self._seat_time.get(name, 0),
            TIME: self._time.get(name, 0),
        }


def _most_at_once(runs: Iterable[tuple[int, int, int]]) -> tuple[int, int]:
    """Most runs, and most nodes, at one instant; of runs (start, end, nodes) sorted by start.

    More of them are only ever under way from a start on, so looking at starts is enough.
    """
    ends: list[tuple[int, int]] = []
    nodes = most_runs = most_nodes = 0
    for start, end, taken in runs:
        while ends and ends[0][0] <= start:
            nodes -= heappop(ends)[1]
        heappush(ends, (end, taken))
        nodes += taken
        most_runs, most_nodes = max(most_runs, len(ends)), max(most_nodes, nodes)
    return most_runs, most_nodes
