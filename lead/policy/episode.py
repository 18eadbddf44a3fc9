"""One round over a pool's due tasks: the seven axes put together. Pure.

An episode decides who is next, and its driver finds out whether there is time: proposals are
messages, and an episode sends none. The driver calls :meth:`Episode.next` for a run to place and
answers with :meth:`Episode.placed` or :meth:`Episode.refused`, until there is nothing left::

    episode = Episode(view, sets.named("campaign-default"), rng)
    while (ask := episode.next()) or episode.open:
        ...

Several runs may be open at once as far as the policies allow: ``next`` gives None while it must
first know what became of an open one, and None with none open is the end. What is open counts as
placed until it is refused.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from lead.policy.episode_figures import Board
from lead.policy.placement_requests import AllocationRound, Ask, Displacing, EpisodeOutcome
from lead.policy.sets import PolicyComposition
from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule
from lead.policy.view import Candidate, NodeView, PostedRun, RememberedState, View
from node.model.spans import Span

NO_TIME = RefusalRule(
    Axis.FILL,
    "no-time",
    "{task} found time on too few of the {asked} nodes that were asked: at least {wanted} are "
    "wanted",
)
NO_COMMON_TIME = RefusalRule(
    Axis.FILL,
    "no-common-time",
    "{task} found no common time on {wanted} of the {asked} nodes that were asked",
)
SPREAD = RefusalRule(
    Axis.SELECT,
    "spread",
    "the spread (at most {most} for each {attribute}) leaves {possible} nodes, and {wanted} are "
    "wanted",
)


class Episode:
    """One round; see the head of the module for how it is driven."""

    def __init__(self, view: View, policy: PolicyComposition, rng: random.Random) -> None:
        """``rng`` draws the pauses of those who refuse."""
        self._view = view
        self._board = board = Board(view)
        self._refused: dict[str, tuple[PolicyRefusal, ...]] = {}
        self._judge = policy.feasible.begin(board, rng)
        board.candidates = list(self._fit(view.candidates))
        self._sharing = policy.share.begin(board)
        self._throttle = policy.throttle.begin(board)
        self._selecting = policy.select.begin(board)
        self._preempting = policy.preempt.begin(board)
        self._filling = policy.fill.begin(board)
        self._ordering = policy.order.begin(board, self._sharing.serving)
        self._follows = self._ordering.follows or policy.fill.follows
        self._coming = self._rounds()
        self._later: list[Candidate] = []
        self._again: set[str] = set()
        self._blocked: list[str] = []
        self._without: list[Candidate] = []
        self._passes = dict(view.state.passes)
        self._measured = dict(view.state.measured)
        self._workers = view.workers
        self._reached = 0
        self._open: dict[int, tuple[Ask, PolicyRefusal | None]] = {}

    def _fit(self, candidates: Sequence[Candidate]) -> Iterator[Candidate]:
        check = self._judge.check
        for candidate in candidates:
            no = check(candidate)
            if no is None:
                yield candidate
            else:
                self._refused[candidate.task] = (no,)

    @property
    def open(self) -> Collection[int]:
        """The numbers of the runs that are to be answered still."""
        return self._open.keys()

    @property
    def slots(self) -> Collection[str]:
        """The names of the slots that are kept for those that were blocked so far."""
        return [slot.name for slot in self._filling.slots()]

    def next(self) -> Ask | None:
        """The next run to be placed; None is the end, or as long as an open one must come first."""
        if self._open and self._follows:
            return None
        while self._workers > 0:
            coming = next(self._coming, None)
            if coming is None:
                return None
            ask = self._prepare(*coming)
            if ask is not None:
                self._workers -= 1
                self._board.ask(ask.candidate)
                return ask
        return None

    def _rounds(self) -> Iterator[tuple[AllocationRound, Candidate]]:
        """All in order; then what was over its share or a soft limit, if anything is left."""
        for candidate in self._considered():
            yield AllocationRound.FIRST, candidate
        by_campaign: dict[str, list[Candidate]] = {}
        for candidate in self._later:
            by_campaign.setdefault(candidate.campaign, []).append(candidate)
        queues = [by_campaign.pop(name) for name in self._sharing.serving if name in by_campaign]
        queues += by_campaign.values()
        for place in range(max(map(len, queues), default=0)):
            for queue in queues:
                if place < len(queue):
                    self._again.add(queue[place].task)
                    yield AllocationRound.SECOND, queue[place]

    def _considered(self) -> Iterator[Candidate]:
        """Those in order that no limit of what is considered keeps out."""
        if self._ordering.follows:
            barred = self._throttle.considered(self._board.candidates)
            coming = iter(self._ordering.take, None)
        else:
            listed = list(iter(self._ordering.take, None))
            barred, coming = self._throttle.considered(listed), iter(listed)
        for candidate in coming:
            self._reached += 1
            no = barred.get(candidate.task)
            if no is None:
                yield candidate
            else:
                self._turn_down(candidate, no)

    def _turn_down(self, candidate: Candidate, *noes: PolicyRefusal) -> None:
        self._refused[candidate.task] = noes
        self._ordering.stuck(candidate)

    def _prepare(self, turn: AllocationRound, candidate: Candidate) -> Ask | None:
        no = self._throttle.admit(candidate, turn)
        if no is None and not candidate.named:
            no = self._sharing.admit(candidate, turn)
        if no is not None:
            if turn is AllocationRound.FIRST:
                self._later.append(candidate)
            elif no.axis is Axis.SHARE:
                self._without.append(candidate)
            self._turn_down(candidate, no)
            return None
        chosen, noes = self._nodes(candidate)
        if len(chosen) < candidate.least:
            self._turn_down(candidate, *noes)
            return None
        names = tuple(node.name for node in chosen)
        giving_way = self._preempting.displacing(candidate, names)
        refused = giving_way if isinstance(giving_way, PolicyRefusal) else None
        ask = Ask(
            number=self._view.workers - self._workers,
            round=turn,
            candidate=candidate,
            nodes=names,
            wanted=len(names) if candidate.named else min(candidate.k, len(names)),
            least=candidate.least,
            avoid=self._avoid(candidate, names),
            usual=self._selecting.usual(candidate, chosen),
            patience=candidate.affinity_wait,
            displacing=giving_way if isinstance(giving_way, Displacing) else None,
        )
        self._open[ask.number] = ask, refused
        return ask

    def _nodes(self, candidate: Candidate) -> tuple[Sequence[NodeView], Sequence[PolicyRefusal]]:
        """The nodes to ask, best first; or why there are too few."""
        there = self._board.usable(candidate.nodes)
        usable = self._judge.usable(candidate, there)
        kept = self._filling.keeps_from(candidate, [node.name for node in usable])
        if kept:
            usable = [node for node in usable if node.name not in kept]
        if len(usable) < candidate.least:
            noes = (self._judge.why_not(candidate, node) for node in there)
            return [], [*(no for no in noes if no is not None), *kept.values()]
        if candidate.named:
            return usable, []
        ranked = self._selecting.rank(candidate, usable)
        most = candidate.k + candidate.spare
        if candidate.spread:
            return _spread(candidate, list(self._with_room_first(candidate, ranked)), most)
        return list(islice(self._with_room_first(candidate, ranked), most)), []

    def _with_room_first(
        self, candidate: Candidate, ranked: Sequence[NodeView]
    ) -> Iterator[NodeView]:
        """Those that have time as far as the lead knows; others have if something gives way."""
        full: list[NodeView] = []
        for node in ranked:
            if self._board.has_room(candidate, node.name):
                yield node
            else:
                full.append(node)
        yield from full

    def _avoid(self, candidate: Candidate, names: Sequence[str]) -> dict[str, list[Span]]:
        found: dict[str, list[Span]] = {}
        until = candidate.over_at
        for slot in self._filling.slots():
            if slot.start < until and candidate.next_run_at < slot.end:
                if slot.admits(candidate):
                    continue
                for name in (name for name in names if name in slot.nodes):
                    found.setdefault(name, []).append((slot.start, slot.end))
        return found

    def placed(self, ask: Ask, run: PostedRun, refused: Collection[str] = ()) -> None:
        """The run was posted on all its nodes; ``refused`` had no time or said no."""
        del self._open[ask.number]
        candidate = ask.candidate
        self._board.answer(candidate, len(run.nodes))
        for start, end in ((run.start, run.end), *candidate.runs[1:]):
            each = replace(run, start=start, end=end)
            self._board.place(each)
            self._throttle.placed(candidate, each)
        self._ordering.started(candidate)
        self._filling.started(candidate)
        self._judge.answered(ask, run.nodes, refused, placed=True)
        self._refused.pop(candidate.task, None)
        for name in run.nodes:
            self._measured[candidate.campaign, name, candidate.target] = run.start
        self._passes.pop(candidate.task, None)
        for task in self._blocked:
            self._passes[task] = self._passes.get(task, 0) + 1

    def refused(
        self, ask: Ask, refused: Collection[str] = (), because: PolicyRefusal | None = None
    ) -> None:
        """Nothing came of it; ``refused`` are the nodes that had no time at all or said no."""
        _, no_way = self._open.pop(ask.number)
        candidate = ask.candidate
        self._board.answer(candidate, 0)
        self._judge.answered(ask, (), refused, placed=False)
        together = candidate.named or candidate.together
        rule = NO_COMMON_TIME if together and ask.least > 1 else NO_TIME
        decisive = because or rule.says_no(
            task=candidate.task, wanted=ask.least, asked=len(ask.nodes)
        )
        put_off = self._judge.check(candidate)
        if put_off is not None:  # until then there is no other reason to be heard
            decisive = replace(decisive, until=put_off.until)
        self._turn_down(candidate, *filter(None, (decisive, no_way, put_off)))
        self._filling.protect(candidate, self._passes.get(candidate.task, 0))
        self._blocked.append(candidate.task)
        self._without.append(candidate)

    def outcome(self) -> EpisodeOutcome:
        """What it came to; to be asked when nothing is open any more."""
        held = self._ordering.held()
        self._refused.update((task, (no,)) for task, no in held.items())
        considered = len(self._board.candidates) - len(held)
        # What there was no worker left for in the second round was not looked at to the end: what
        # it was told in the first one holds only as long as others come first.
        cut = {it.task for it in self._later} - self._again if not self._workers else set()
        return EpisodeOutcome(
            placed=self._board.placed,
            refused={task: noes for task, noes in self._refused.items() if task not in cut},
            unreached=considered - self._reached + len(cut),
            reservations=list(self._filling.slots()),
            state=self._state(),
            returned=self._sharing.returned(self._without),
        )

    def _state(self) -> RememberedState:
        state = replace(self._view.state, passes=self._passes, measured=self._measured)
        for axis in (self._ordering, self._sharing, self._throttle, self._filling, self._judge):
            state = axis.remember(state)
        return state


def _spread(
    candidate: Candidate, ranked: Sequence[NodeView], most: int
) -> tuple[Sequence[NodeView], Sequence[PolicyRefusal]]:
    """The best nodes, each value of an attribute no more often than it may be."""
    counts: dict[tuple[str, str], int] = {}
    chosen: list[NodeView] = []
    limits = candidate.spread.items()
    full: Mapping[str, int] = candidate.spread
    for node in ranked:
        keys = [(key, node.attributes.get(key, node.name)) for key in full]
        if any(counts.get(key, 0) >= limit for key, (_, limit) in zip(keys, limits, strict=True)):
            continue
        chosen.append(node)
        if len(chosen) == most:
            break
        for key in keys:
            counts[key] = counts.get(key, 0) + 1
    if len(chosen) >= candidate.least:
        return chosen, []
    return chosen, [
        SPREAD.says_no(
            possible=len(chosen), most=limit, attribute=attribute, wanted=candidate.least
        )
        for attribute, limit in limits
    ]
