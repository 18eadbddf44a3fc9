"""The seats that groups with promises hold at each instant, as opposed to seat-hours.

A promise is a number of seats. Whatever the length of its runs, a group that is promised two may
have two at each instant at which it has runs; others borrow what then remains. A group may bound
both: how many seats it borrows, and what part of its promise it lends while it does not want it.
Seats are counted in lanes, of which ``board.lanes`` are a seat.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from lead.policy.episode_figures import Board
from lead.policy.share import promised
from lead.policy.throttle.full_time import FullTime
from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule
from lead.policy.view import BUCKET, Candidate
from node.model.spans import Span
from node.model.times import to_the_second

KEPT = RefusalRule(
    Axis.SHARE,
    "kept",
    "{group} is promised {target:seat} and holds {held} of them at {at}, when its own runs want "
    "more; {other} holds {others} of its {theirs}",
    "promised",
)

NOT_LENT = RefusalRule(
    Axis.SHARE,
    "not-lent",
    "{group} is promised {target:seat} and lends {lent} of them; at {at} it holds {held}, and "
    "{other} would take what {group} keeps free",
    "promised",
)
BORROWED = RefusalRule(
    Axis.SHARE,
    "borrowed",
    "{group} is promised {target:seat} and may borrow {borrow}; at {at} it holds {held}",
    "promised",
)

NOBODY = ""
"""The group of all campaigns without a promise; what they hold is borrowed."""

_Use = tuple[Span, str, int]
"""A span in which a group uses this many lanes."""


@dataclass(frozen=True, slots=True)
class SeatsAt:
    """The lanes that each group holds, and those that its waiting runs want, from an instant on."""

    instant: int
    held: Mapping[str, int]
    wanted: Mapping[str, int]


class PromisedSeats:
    """The promises of an episode, and who holds which seats at each instant."""

    def __init__(self, board: Board, promises: Mapping[str, promised.Promise]) -> None:
        """``promises`` has the promised seats of each group, or their part of all."""
        self._board = board
        self._seats = len(board.usable_nodes(board.view.pool.nodes))
        targets = promised.targets(self._seats, promises)
        self.targets = {name: int(it) * board.lanes for name, it in targets.items()}
        campaigns = board.view.campaigns
        self._kept = {
            name: lanes - int(lanes * campaigns[name].lend) for name, lanes in self.targets.items()
        }
        self._waiting: dict[int, list[tuple[_Use, str]]] | None = None
        self._placed: set[str] = set()
        self._placed_count = 0

    @property
    def is_enough(self) -> bool:
        """Return whether there are as many seats as are promised."""
        return sum(self.targets.values()) <= self._seats * self._board.lanes

    def lanes_of(self, candidate: Candidate) -> int:
        """Return the lanes that one run of a candidate takes on all its nodes."""
        return self._board.seat_time(candidate.scheduling_class, self._board.lanes * candidate.k)

    def is_within(self, candidate: Candidate) -> bool:
        """Return whether its group keeps within its promise at each instant of its runs."""
        group = self._board.groups[candidate.campaign]
        own = self.lanes_of(candidate)
        return all(
            at.held.get(group, 0) + own <= self.targets[group]
            for span in candidate.spans
            for at in self.use_over_time(span)
        )

    def full_times(self, candidate: Candidate) -> list[FullTime]:
        """Return when a run of the candidate would pass a bound: its group's, or of what is lent.

        These hold at each instant, so a run has to slip out of this time.
        """
        own, group = self.lanes_of(candidate), self._board.groups.get(candidate.campaign)
        if not own or group is None or not self._has_bounds:
            return []
        full = []
        for start, end in candidate.spans:
            until = end + candidate.slip
            moments = list(self.use_over_time((start, until)))
            ends = [*(it.instant for it in moments[1:]), until]
            for at, its_end in zip(moments, ends, strict=True):
                refusal = self._excess(at, group, own) or self._not_lent(at, group, own)
                if refusal is not None:
                    full.append(FullTime.always(at.instant, its_end, refusal))
        return full

    @cached_property
    def _has_bounds(self) -> bool:
        campaigns = self._board.view.campaigns
        return any(self._kept.values()) or any(
            campaigns[name].borrow is not None for name in self.targets
        )

    def _excess(self, at: SeatsAt, group: str, own: int) -> PolicyRefusal | None:
        """Return a refusal if a group would borrow more than it may."""
        lanes, held, target = self._board.lanes, at.held.get(group, 0), self.targets[group]
        borrow = self._board.view.campaigns[group].borrow
        if borrow is None or held + own <= target + borrow * lanes:
            return None
        return BORROWED.refuse(
            group=group,
            target=target / lanes,
            borrow=borrow,
            at=to_the_second(at.instant),
            held=held / lanes,
        )

    def _not_lent(self, at: SeatsAt, group: str, own: int) -> PolicyRefusal | None:
        """Return a refusal if a group would have what another one does not lend.

        Its own promise, too, is refused while others have borrowed of it, if nothing else is left.
        """
        if not self.is_enough:
            return None
        missing = {name: kept - at.held.get(name, 0) for name, kept in self._kept.items()}
        return self._refusal_at(NOT_LENT, at, group, own, missing)

    def find_refusal(self, candidate: Candidate) -> PolicyRefusal | None:
        """Return a refusal if it would take a seat that is promised to a group which wants it."""
        group, own = self._board.groups[candidate.campaign], self.lanes_of(candidate)
        for span in candidate.spans:
            for at in self.use_over_time(span, candidate):
                if at.held.get(group, 0) + own <= self.targets[group]:
                    continue
                missing = {
                    name: min(wanted, self.targets[name] - at.held.get(name, 0))
                    for name, wanted in at.wanted.items()
                }
                if (refusal := self._refusal_at(KEPT, at, group, own, missing)) is not None:
                    return refusal
        return None

    def _refusal_at(
        self, rule: RefusalRule, at: SeatsAt, group: str, own: int, missing: Mapping[str, int]
    ) -> PolicyRefusal | None:
        """Return a refusal if too few lanes would be left for what other groups are missing."""
        short = {name: lacks for name, lacks in missing.items() if name != group and lacks > 0}
        left = self._seats * self._board.lanes - sum(at.held.values()) - own
        if not short or left >= sum(short.values()):
            return None
        lanes, held = self._board.lanes, at.held.get
        other = max(short, key=lambda name: short[name])
        return rule.refuse(
            group=other,
            target=self.targets[other] / lanes,
            lent=(self.targets[other] - self._kept[other]) / lanes,
            held=held(other, 0) / lanes,
            at=to_the_second(at.instant),
            other=group,
            others=held(group, 0) / lanes,
            theirs=self.targets[group] / lanes,
        )

    def use_over_time(self, span: Span, but: Candidate | None = None) -> Iterator[SeatsAt]:
        """Yield who holds and wants what in a span, whenever that changes; ``but`` wants nothing.

        What only waits is left out without ``but``.
        """
        held, wanted = (
            list(self._held_lanes(span)),
            [] if but is None else list(self._wanted_lanes(span, but)),
        )
        edges = {span[0]}
        for (start, end), _, _ in (*held, *wanted):
            edges |= {it for it in (start, end) if span[0] < it < span[1]}
        for instant in sorted(edges):
            yield SeatsAt(instant, _sums(held, instant), _sums(wanted, instant))

    def peaks(self, span: Span) -> dict[str, int]:
        """Return the most lanes that each group holds at some instant of a span."""
        peaks = dict.fromkeys((*self.targets, NOBODY), 0)
        for at in self.use_over_time(span):
            for name in peaks:
                peaks[name] = max(peaks[name], at.held.get(name, 0))
        return peaks

    def _held_lanes(self, span: Span) -> Iterator[_Use]:
        board = self._board
        for run in board.overlapping_runs(span):
            lanes = board.seat_time(
                run.scheduling_class, board.lanes * len(board.pool_nodes_of(run))
            )
            yield (run.start, run.end), board.groups.get(run.campaign, NOBODY), lanes
        for candidate in board.asked.values():
            group, lanes = board.groups.get(candidate.campaign, NOBODY), self.lanes_of(candidate)
            for start, end in candidate.spans:
                if start < span[1] and span[0] < end:
                    yield (start, end), group, lanes

    def _wanted_lanes(self, span: Span, but: Candidate) -> Iterator[_Use]:
        board = self._board
        if self._waiting is None:
            self._waiting = self._by_hour()
        for run in board.placed[self._placed_count :]:
            self._placed.add(run.task)
        self._placed_count = len(board.placed)
        first = span[0] // BUCKET * BUCKET
        for hour in range(first, span[1], BUCKET):
            for use, task in self._waiting.get(hour, ()):
                start, end = use[0]
                if (
                    (hour == first or start >= hour)
                    and start < span[1]
                    and span[0] < end
                    and task != but.task
                    and task not in self._placed
                    and task not in board.asked
                ):
                    yield use

    def _by_hour(self) -> dict[int, list[tuple[_Use, str]]]:
        """Return what candidates of groups want and may use, in each hour that it touches."""
        waiting: dict[int, list[tuple[_Use, str]]] = {}
        for it in self._board.candidates:
            group = self._board.groups.get(it.campaign)
            if group is None:
                continue
            for start, end in it.spans:
                if self._count_open_nodes(it, (start, end)) < it.least:
                    continue
                use = (start, end), group, self.lanes_of(it)
                for hour in range(start // BUCKET * BUCKET, end, BUCKET):
                    waiting.setdefault(hour, []).append((use, it.task))
        return waiting

    def _count_open_nodes(self, candidate: Candidate, span: Span) -> int:
        """Return the number of its nodes that are not reserved for others in a span."""
        closed = {
            name
            for each in self._board.view.reservations
            if each.start < span[1] and span[0] < each.end and not each.admits(candidate)
            for name in each.nodes
        }
        return sum(name not in closed for name in candidate.nodes)


def _sums(uses: Iterable[_Use], instant: int) -> dict[str, int]:
    sums: dict[str, int] = {}
    for (start, end), group, lanes in uses:
        if start <= instant < end:
            sums[group] = sums.get(group, 0) + lanes
    return sums
