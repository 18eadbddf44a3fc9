"""What a lead knows of the time of nodes without asking them, within one episode. Pure.

Two things are known. The lead's own runs are booked there: a node has no more time than these
leave. And what a node answered a moment ago: bookings made since can only have made it fuller, so
what was not free then is not free now, and what was is as good as any answer, since nothing is
booked by it.

An answer holds for another question (:meth:`ProposalCache.answer`) if that asks

* for windows that lie in those that were asked for;
* for runs that last as long or longer: shorter gaps were not told;
* for the same class, which is what other runs have to keep clear of;
* that nothing gives way, or that the same runs do to the same priority;
* and, where time is reserved on the node for some, for the same task, test, campaign and priority.

So that it holds for many, whoever is asked is asked for the whole time in which the episode looks
for time for runs of that class, beside the windows that are wanted now.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from lead.planning.placement import Offer
from lead.planning.pool_view import SeatCase, windows_of
from lead.policy.view import PostedRun
from node.model.classes import SchedulingClass, blockers
from node.model.spans import Span
from node.model.timeline import (
    Booking,
    Occupation,
    TimelineQuestion,
    free_among,
    free_ranges,
    occupation_of,
)
from node.model.times import format_duration, to_the_second
from node.model.wire.participants import BATCH_MAX, Proposal, ProposalRequest


@dataclass(frozen=True)
class _Heard:
    request: ProposalRequest
    proposal: Proposal

    def holds_for(self, request: ProposalRequest) -> bool:
        """Whether it is the answer to this question too."""
        old = self.request
        return (
            old.scheduling_class is request.scheduling_class
            and old.duration <= request.duration
            and (request.yielding == () or _giving_way(old) == _giving_way(request))
            and (not self.proposal.particular or _whose(old) == _whose(request))
            and all(any(_inside(new, asked) for asked in old.windows) for new in request.windows)
        )


class ProposalCache:
    """Bookings and answers, node by node (by name)."""

    def __init__(
        self, runs: Mapping[str, PostedRun], cases: Iterable[SeatCase], near: Span
    ) -> None:
        """``runs`` are booked by this lead, by id; for ``cases`` time is looked for.

        ``near`` is the time that this lead plans by now; what is later is not known of anybody.
        """
        self.runs = runs
        self.near = near
        self._booked: defaultdict[str, list[PostedRun]] = defaultdict(list)
        for run in runs.values():
            for name in run.nodes:
                self._booked[name].append(run)
        self._occupations: dict[str, Occupation] = {}
        self._heard: defaultdict[str, list[_Heard]] = defaultdict(list)
        self._whole = _whole(cases)

    def widened(self, request: ProposalRequest) -> ProposalRequest:
        """The question as it is put: first for all the time in question, then for its windows."""
        whole = self._whole.get(request.scheduling_class)
        windows = request.windows
        if whole is None or len(windows) == BATCH_MAX or whole in windows:
            return request
        return request.model_copy(update={"windows": (whole, *windows)})

    def hear(self, name: str, request: ProposalRequest, proposal: Proposal) -> Proposal:
        """What a node answered to ``widened(request)``, as the answer to the question itself."""
        put = self.widened(request)
        self._heard[name].append(_Heard(put, proposal))
        more = len(put.windows) - len(request.windows)
        if not more:
            return proposal
        obstacles = tuple(
            each.model_copy(update={"window": each.window - more})
            for each in proposal.obstacles
            if each.window >= more
        )
        return proposal.model_copy(update={"obstacles": obstacles})

    def answer(self, name: str, request: ProposalRequest) -> Proposal | None:
        """What a node that was asked before would answer, if that is known."""
        for heard in reversed(self._heard[name]):
            if heard.holds_for(request):
                told = heard.proposal
                displacing = None if request.yielding == () else told.free_displacing
                why = self.why(name, request)
                update = {"free_displacing": displacing, "obstacles": (), "reason": why}
                return told.model_copy(update=update)
        return None

    def at_most(self, name: str, request: ProposalRequest) -> Offer:
        """What this lead's own runs leave of a node's time that is near: it cannot offer more."""
        named = None if request.yielding is None else frozenset(request.yielding)
        question = TimelineQuestion(
            windows=request.windows,
            scheduling_class=request.scheduling_class,
            duration=request.duration,
            priority=request.priority,
            earliest=self.near[0],
            latest=self.near[1],
            yielding=named,
        )
        if named:
            free = free_among(question, self._bookings(name))
        else:
            free = free_ranges(question, self._occupation(name))
        return Offer(name, free.free, free.free_displacing)

    def why(self, name: str, request: ProposalRequest) -> str:
        """What stands longest in the way of the first window, as far as it is known."""
        window = request.windows[0]
        against = blockers(request.scheduling_class)
        there = [
            (_overlap(run.start, run.end, window), _in_words(run))
            for run in self._booked[name]
            if run.scheduling_class in against and _overlap(run.start, run.end, window) > 0
        ]
        there += [
            (_overlap(each.starts_at, each.ends_at, window), each.why())
            for heard in self._heard[name]
            if heard.holds_for(request)
            for each in heard.proposal.obstacles
        ]
        needed = f"no {format_duration(request.duration)} free"
        longest, words = max(there, default=(0, ""))
        return f"{needed}: {words}" if longest > 0 else needed

    def _bookings(self, name: str) -> list[Booking]:
        return [_booking(run) for run in self._booked[name]]

    def _occupation(self, name: str) -> Occupation:
        found = self._occupations.get(name)
        if found is None:
            found = self._occupations[name] = occupation_of(self._bookings(name))
        return found


def _in_words(run: PostedRun) -> str:
    article = "an" if run.scheduling_class is SchedulingClass.EXCLUSIVE else "a"
    start, end = to_the_second(run.start), to_the_second(run.end)
    kind = f"{article} {run.scheduling_class} run of priority {run.priority}"
    return f"busy with {kind} of campaign {run.campaign}, {start} to {end}"


def _whole(cases: Iterable[SeatCase]) -> dict[SchedulingClass, Span]:
    """By class, the time in which the runs of these cases may take place."""
    found: dict[SchedulingClass, Span] = {}
    for case in cases:
        kind = case.whole.terms.scheduling_class
        slots = case.slots[:BATCH_MAX]
        ends = windows_of(slots[-1:], case.recurrence, case.whole.terms.duration)
        start, end = found.get(kind, (slots[0], ends[0].end))
        found[kind] = min(start, slots[0]), max(end, ends[0].end)
    return found


def _inside(window: Span, asked: Span) -> bool:
    return asked[0] <= window[0] and window[1] <= asked[1]


def _giving_way(request: ProposalRequest) -> tuple[int, frozenset[UUID] | None]:
    named = request.yielding
    return request.priority, None if named is None else frozenset(named)


def _whose(request: ProposalRequest) -> tuple[UUID, str | None, str | None, int]:
    return request.task, request.test, request.campaign, request.priority


def _booking(run: PostedRun) -> Booking:
    """Which task and test it is of makes no difference to what is free."""
    run_id = UUID(run.run)
    return Booking(
        run_id,
        run_id,
        "",
        run.scheduling_class,
        run.priority,
        run.start,
        run.end,
        run.running,
    )


def _overlap(start: int, end: int, window: Span) -> int:
    return min(end, window[1]) - max(start, window[0])
