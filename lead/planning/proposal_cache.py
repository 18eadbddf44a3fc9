"""A lead's knowledge of nodes' free time without asking them, within one episode. Pure.

There are two sources. The lead's own runs are booked there: a node has no more time than these
leave. And a recent answer of a node: bookings made since can only have reduced its free time, so
what was not free then is not free now, and what was free is as good as any answer, since an answer
books nothing.

A cached answer is valid for another question (:meth:`ProposalCache.answer`) if that asks

* for windows that lie within the windows asked for before;
* for runs that last as long or longer: an answer omits shorter gaps;
* for the same class, which determines the runs it conflicts with;
* for no displacement, or for displacement of the same runs by the same priority;
* and, if time is reserved or limited on the node, for the same task, test, campaign, and priority.

To be valid for many questions, each question covers the whole time in which the episode searches
for runs of that class, beside the windows that are wanted now.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from lead.model.reasons import busy_with_own, not_offered
from lead.planning.placement import Offer
from lead.planning.pool_view import SeatCase, windows_of
from lead.policy.view import PostedRun
from node.model.classes import SchedulingClass, blockers
from node.model.reason import Reason
from node.model.reasons import no_time_free
from node.model.spans import Span, normalise, subtract
from node.model.timeline import (
    Booking,
    Occupation,
    TimelineQuestion,
    free_ranges,
    free_ranges_beside,
    occupation_of,
)
from node.model.wire.participants import BATCH_MAX, Proposal, ProposalRequest


@dataclass(frozen=True)
class _CachedAnswer:
    request: ProposalRequest
    proposal: Proposal

    def holds_for(self, request: ProposalRequest) -> bool:
        """Return whether the answer is valid for this question too."""
        old = self.request
        return (
            old.scheduling_class is request.scheduling_class
            and old.duration <= request.duration
            and (request.yielding == () or _giving_way(old) == _giving_way(request))
            and (not self.proposal.particular or _question_key(old) == _question_key(request))
            and all(any(_inside(new, asked) for asked in old.windows) for new in request.windows)
        )

    def taken_spans(self, *, displacing: bool = False) -> list[Span]:
        """Return when, of the time asked for, the node has none for runs of this duration."""
        proposal = self.proposal
        after_displacing = proposal.free_displacing if displacing else None
        free = proposal.free if after_displacing is None else after_displacing
        end = proposal.horizon
        windows = [(start, min(until, end)) for start, until in self.request.windows]
        asked = normalise([span for span in windows if span[0] < span[1]])
        return subtract(asked, normalise(free))


class ProposalCache:
    """The bookings and answers of nodes, by name."""

    def __init__(
        self, runs: Mapping[str, PostedRun], cases: Iterable[SeatCase], near: Span
    ) -> None:
        """Begin with this lead's ``runs``, by id, for ``cases`` that need time.

        ``near`` is the time that this lead plans by now; nothing is known of later time.
        """
        self.runs = runs
        self.near = near
        self._booked: defaultdict[str, list[PostedRun]] = defaultdict(list)
        for run in runs.values():
            for name in run.nodes:
                self._booked[name].append(run)
        self._occupations: dict[str, Occupation] = {}
        self._cached: defaultdict[str, list[_CachedAnswer]] = defaultdict(list)
        self._search_spans = _search_spans(cases)

    def widened_question(self, request: ProposalRequest) -> ProposalRequest:
        """Return the question to send: for the whole time first, then for its own windows."""
        span = self._search_spans.get(request.scheduling_class)
        windows = request.windows
        if span is None or len(windows) == BATCH_MAX or span in windows:
            return request
        return request.model_copy(update={"windows": (span, *windows)})

    def record(self, name: str, request: ProposalRequest, proposal: Proposal) -> Proposal:
        """Store an answer to ``widened(request)``; return it as the answer to ``request``."""
        sent = self.widened_question(request)
        self._cached[name].append(_CachedAnswer(sent, proposal))
        added = len(sent.windows) - len(request.windows)
        if not added:
            return proposal
        obstacles = tuple(
            each.model_copy(update={"window": each.window - added})
            for each in proposal.obstacles
            if each.window >= added
        )
        return proposal.model_copy(update={"obstacles": obstacles})

    def answer(self, name: str, request: ProposalRequest) -> Proposal | None:
        """Return what a node that was asked before would answer, or None if that is unknown."""
        for cached in reversed(self._cached[name]):
            if cached.holds_for(request):
                proposal = cached.proposal
                displacing = None if request.yielding == () else proposal.free_displacing
                why = self.why(name, request)
                update = {"free_displacing": displacing, "obstacles": (), "reason": why}
                return proposal.model_copy(update=update)
        return None

    def busy(self) -> dict[str, list[Span]]:
        """Return by node when it has no time for exclusive runs, as far as its answers tell.

        Of several answers the one about the shortest runs counts, which omits the fewest gaps.
        Where time is reserved, answers tell about one task only.
        """
        busy: dict[str, list[Span]] = {}
        for name, answers in self._cached.items():
            about_all = [
                each
                for each in answers
                if each.request.scheduling_class is SchedulingClass.EXCLUSIVE
                and not each.proposal.particular
            ]
            if about_all:
                answer = min(about_all, key=lambda each: each.request.duration)
                busy[name] = answer.taken_spans()
        return busy

    def at_most(self, name: str, request: ProposalRequest) -> Offer:
        """Return what this lead's own runs leave of a node's near time: an upper bound."""
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
            free = free_ranges_beside(question, self._bookings(name))
        else:
            free = free_ranges(question, self._occupation(name))
        return Offer(name, free.free, free.free_displacing)

    def why(self, name: str, request: ProposalRequest) -> Reason:
        """Return the longest known obstacle of the first window.

        If none is known by name, it is the time that an answer leaves out.
        """
        window = request.windows[0]
        against = blockers(request.scheduling_class)
        obstacles = [
            (_overlap(run.start, run.end, window), _busy_with(run))
            for run in self._booked[name]
            if run.scheduling_class in against and _overlap(run.start, run.end, window) > 0
        ]
        answers = [each for each in self._cached[name] if each.holds_for(request)]
        obstacles += [
            (_overlap(each.starts_at, each.ends_at, window), each.why())
            for cached in answers
            for each in cached.proposal.obstacles
        ]
        obstacles = [each for each in obstacles if each[0] > 0] or [
            (_overlap(*span, window), not_offered(cached.request.duration, *span))
            for cached in answers[-1:]
            for span in cached.taken_spans(displacing=request.yielding != ())
        ]
        overlap, why = max(obstacles, default=(0, None))
        return no_time_free(request.duration, why if overlap > 0 else None)

    def _bookings(self, name: str) -> list[Booking]:
        return [_booking(run) for run in self._booked[name]]

    def _occupation(self, name: str) -> Occupation:
        occupation = self._occupations.get(name)
        if occupation is None:
            occupation = self._occupations[name] = occupation_of(self._bookings(name))
        return occupation


def _busy_with(run: PostedRun) -> Reason:
    return busy_with_own(run.scheduling_class, run.priority, run.campaign, run.start, run.end)


def _search_spans(cases: Iterable[SeatCase]) -> dict[SchedulingClass, Span]:
    """Return, by class, the time in which the runs of these cases may take place."""
    spans: dict[SchedulingClass, Span] = {}
    for case in cases:
        kind = case.pool_task.terms.scheduling_class
        slots = case.slots[:BATCH_MAX]
        ends = windows_of(slots[-1:], case.recurrence, case.pool_task.terms.duration)
        start, end = spans.get(kind, (slots[0], ends[0].end))
        spans[kind] = min(start, slots[0]), max(end, ends[0].end)
    return spans


def _inside(window: Span, outer: Span) -> bool:
    return outer[0] <= window[0] and window[1] <= outer[1]


def _giving_way(request: ProposalRequest) -> tuple[int, frozenset[UUID] | None]:
    named = request.yielding
    return request.priority, None if named is None else frozenset(named)


def _question_key(request: ProposalRequest) -> tuple[UUID, str | None, str | None, int]:
    return request.task, request.test, request.campaign, request.priority


def _booking(run: PostedRun) -> Booking:
    """Return a run as a booking; its task and test make no difference to what is free."""
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
