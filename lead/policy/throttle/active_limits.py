"""Limits on what may be active at once, for every holder that a run counts for. Pure.

A run counts for several *holders*: its campaign, that campaign's ancestors, its class, … Each may
limit the number of runs, the nodes and seats they take, their outstanding time, and so on; a run
must be within every limit of every holder. A limit is soft (while the pool is busy) or hard (if
room is left nevertheless).

One holder may override: its limits of nodes, seats, and time replace those of all others of that
kind. An override of the number of runs is only a limit of its own: it does not change how many runs
others may have.
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
"""Outstanding seat-µs: seats times the remaining time."""
TIME: Final = "time"
"""Outstanding µs of runs, however many seats each has."""
AT_ONCE: Final = (RUNS, NODES, SEATS)
"""The kinds that count at an instant."""

OVER = RefusalRule(
    Axis.THROTTLE,
    "active limit",
    "{holder} would have {wanted} {kind} at once, of at most {limit} ({level})",
    "number",
)


class LimitLevel(StrEnum):
    """The two levels of a limit: soft first, then hard with what is left."""

    SOFT = "soft"
    HARD = "hard"


OVER_TIME = RefusalRule(
    Axis.THROTTLE,
    "active limit",
    "{holder} would have {wanted:duration} of {kind:words} booked, of at most {limit:duration} "
    "({level})",
    "time",
)


def refusal_over(
    holder: str, kind: str, wanted: int, limit: int, level: LimitLevel
) -> PolicyRefusal:
    """Return the refusal of what would exceed a limit: a number, or booked time (µs)."""
    rule = OVER_TIME if kind in {TIME, SEAT_TIME} else OVER
    return rule.refuse(holder=holder, wanted=wanted, kind=kind, limit=limit, level=level.value)


@dataclass(frozen=True, slots=True)
class Holder:
    """A holder that a run counts for: its limits and its current usage, both by kind."""

    name: str
    limits: Mapping[str, LimitView]
    in_use: Mapping[str, int] = field(default_factory=dict)


def limit_at(limit: LimitView, level: LimitLevel) -> int | None:
    """Return the limit at a level; a soft limit that is missing or looser than the hard is hard."""
    if level is LimitLevel.HARD or limit.soft is None:
        return limit.hard
    return limit.soft if limit.hard is None else min(limit.soft, limit.hard)


def find_limit_refusal(
    request: Mapping[str, int],
    holders: Iterable[Holder],
    level: LimitLevel,
    overrides: Mapping[str, LimitView] | None = None,
) -> PolicyRefusal | None:
    """Return a refusal for the first limit exceeded, in the order of holders and their limits."""
    replacements = {k: limit for k, limit in (overrides or {}).items() if k != RUNS}
    for holder in holders:
        for kind, limit in holder.limits.items():
            most = limit_at(replacements.get(kind, limit), level)
            wanted = holder.in_use.get(kind, 0) + request.get(kind, 0)
            if most is not None and wanted > most:
                return refusal_over(holder.name, kind, wanted, most, level)
    return None


def outstanding_time(runs: Sequence[tuple[int, int]], after: int = 0) -> int:
    """Return what is left of these runs (seats, µs left) ``after`` µs from now, in seat-µs."""
    return sum(seats * max(0, remaining - after) for seats, remaining in runs)


def request_of(candidate: Candidate) -> dict[str, int]:
    """Return what a candidate will book, by kind: runs, nodes, and seats at once, all its time.

    Nodes that do not act together have runs of their own.
    """
    nodes, time = candidate.k, sum(end - start for start, end in candidate.spans)
    runs = nodes if candidate.apart else 1
    return {RUNS: runs, NODES: nodes, SEATS: nodes, SEAT_TIME: nodes * time, TIME: runs * time}


class ActiveBookings:
    """The unfinished bookings of each campaign and of its ancestors.

    Runs, nodes, and seats count at their peak during a run: short runs one after the other are not
    active at once. Time counts while it is outstanding, whenever it is booked.
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
        """Count one more booked run; ``apart``: one for each of its nodes."""
        for each in [replace(run, nodes=(it,)) for it in run.nodes] if apart else [run]:
            for name in self._count(each):
                insort(self._runs.setdefault(name, []), (run.start, run.end, len(each.nodes)))

    def _count(self, run: PostedRun) -> list[str]:
        """Add up the run's time and return the campaigns with limits that it counts for."""
        duration, elapsed = run.end - run.start, max(0, self._now - run.start)
        self._longest = max(self._longest, duration)
        limited = [name for name in self._lineage(run.campaign) if self._campaigns[name].limits]
        for name in limited:
            self._time[name] = self._time.get(name, 0) + outstanding_time([(1, duration)], elapsed)
            seat_time = outstanding_time([(len(run.nodes), duration)], elapsed)
            self._seat_time[name] = self._seat_time.get(name, 0) + seat_time
        return limited

    def _lineage(self, campaign: str | None) -> Iterator[str]:
        while campaign is not None and campaign in self._campaigns:
            yield campaign
            campaign = self._campaigns[campaign].parent

    def holders(self, campaign: str, span: Span) -> list[Holder]:
        """Return a campaign and its ancestors that have limits, with their usage in a span."""
        return [
            Holder(name, self._campaigns[name].limits, self._peak_usage(name, span))
            for name in self._lineage(campaign)
            if self._campaigns[name].limits
        ]

    def booked_runs(self, name: str) -> Sequence[tuple[int, int, int]]:
        """Return the start, end, and number of nodes of each run that counts for a campaign."""
        return self._runs.get(name, ())

    def _peak_usage(self, name: str, span: Span) -> dict[str, int]:
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
    """Return the peak of runs, and of nodes; ``runs`` (start, end, nodes) are sorted by start.

    The peak is always at a start, so only starts are examined.
    """
    ends: list[tuple[int, int]] = []
    nodes = most_runs = most_nodes = 0
    for start, end, node_count in runs:
        while ends and ends[0][0] <= start:
            nodes -= heappop(ends)[1]
        heappush(ends, (end, node_count))
        nodes += node_count
        most_runs, most_nodes = max(most_runs, len(ends)), max(most_nodes, nodes)
    return most_runs, most_nodes
