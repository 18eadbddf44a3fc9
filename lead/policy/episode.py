"""One round over a pool's due tasks, which combines the seven axes. Pure.

An episode decides which candidate is next, and its driver finds out whether there is time: that
takes messages, and an episode sends none. The driver calls :meth:`Episode.next_ask` for a run to
place and answers with :meth:`Episode.record_placement` or :meth:`Episode.record_refusal`, until
nothing is left::

    episode = Episode(view, configured("campaign-default"), rng)
    while (ask := episode.next_ask()) or episode.unanswered:
        ...

Several runs may be open at once, as far as the policies allow: ``next_ask`` returns None while the
answer for an open one is needed first; None with none open is the end. Open runs count as placed
until they are refused.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, takewhile, zip_longest

from lead.policy.axes.feasible import LACKS_NODES, TOO_FEW
from lead.policy.axes.order import FixedOrder, forecast_in_turns
from lead.policy.axes.share import FULL
from lead.policy.contested import Contests
from lead.policy.episode_figures import Board
from lead.policy.order.expected_misses import expected_misses
from lead.policy.placement_requests import AllocationRound, Ask, Displacing, EpisodeOutcome
from lead.policy.promised_seats import BORROWED, NOT_LENT
from lead.policy.sets import PolicyComposition
from lead.policy.throttle.full_time import FullTime
from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule
from lead.policy.view import (
    Candidate,
    NodeView,
    PostedRun,
    RememberedState,
    ReservationView,
    View,
)
from node.model.spans import Span

NO_TIME = RefusalRule(
    Axis.FILL,
    "no-time",
    "{task} found time on too few of the {asked:node} asked; at least {wanted} are needed",
)
NO_COMMON_TIME = RefusalRule(
    Axis.FILL,
    "no-common-time",
    "{task} found no common time on {wanted} of the {asked:node} asked",
)
NOT_TRIED = RefusalRule(
    Axis.FILL, "blocked", "{task} found no time before and is not tried again yet"
)
SPREAD = RefusalRule(
    Axis.SELECT,
    "spread",
    "the spread (at most {spread}) leaves {possible} of {usable} nodes that may be asked, but "
    "{wanted} are needed",
    "all",
)
SPREAD_IN_ORDER = RefusalRule(
    Axis.SELECT,
    "spread",
    "only {possible} of {usable} nodes that may be asked, the best first, keep the spread (at most "
    "{spread}), but {wanted} are needed",
    "best",
)


class Episode:
    """One round; the module's docstring shows how to drive it."""

    def __init__(self, view: View, policy: PolicyComposition, rng: random.Random) -> None:
        """Begin the episode; ``rng`` draws the pauses of nodes that refuse."""
        self._view = view
        self._board = board = Board(view)
        self._refused: dict[str, tuple[PolicyRefusal, ...]] = {}
        self._awaiting: dict[str, PolicyRefusal] = {}
        # Feasibility comes first: shares and limits are computed from the feasible candidates. The
        # order comes last: it needs the sequence in which the shares serve campaigns.
        self._judge = policy.feasible.for_episode(board, rng)
        board.candidates = list(self._fitting_candidates(view.candidates, policy))
        self._sharing = policy.share.for_episode(board)
        self._throttle = policy.throttle.for_episode(board)
        self._selecting = policy.select.for_episode(board)
        self._preempting = policy.preempt.for_episode(board)
        self._filling = policy.fill.for_episode(board)
        self._ordering = ordering = policy.order.for_episode(board, self._sharing.serving)
        if policy.takes_turns and not ordering.awaits_outcomes:
            in_order = list(iter(ordering.take, None))
            self._ordering = FixedOrder(self._sharing.contests.in_turn(in_order))
        self._awaits_outcomes = self._ordering.awaits_outcomes or policy.fill.awaits_outcomes
        self._coming = self._rounds()
        self._later: dict[str, Candidate] = {}
        self._blocked: list[str] = []
        self._without: list[Candidate] = []
        self._passes = dict(view.state.passes)
        self._measured = dict(view.state.measured)
        self._policy = policy
        self._given: Counter[str] = Counter()
        self._workers = view.workers
        self._reached = 0
        self._open: dict[int, tuple[Ask, PolicyRefusal | None]] = {}

    def _fitting_candidates(
        self, candidates: Sequence[Candidate], policy: PolicyComposition
    ) -> Iterator[Candidate]:
        """Yield what may run, and what others wait for although some of its nodes are away."""
        check = self._judge.find_refusal
        for candidate in candidates:
            refusal = check(candidate)
            if refusal is None:
                yield candidate
                continue
            self._refused[candidate.task] = (refusal,)
            if policy.minds_blocked and refusal.rule is TOO_FEW and self._awaits_nodes(candidate):
                self._awaiting[candidate.task] = refusal
                yield candidate

    def _awaits_nodes(self, candidate: Candidate) -> bool:
        """Return whether it has enough nodes once those that may answer soon do."""
        nodes = self._view.nodes
        known = [nodes[name] for name in candidate.nodes if name in nodes]
        return sum(node.up or node.awaited for node in known) >= candidate.least

    @property
    def contests(self) -> Contests:
        """Return who contends for which time."""
        return self._sharing.contests

    @property
    def unanswered_runs(self) -> Collection[int]:
        """Return the numbers of the runs that await an answer."""
        return self._open.keys()

    @property
    def slots(self) -> Collection[str]:
        """Return the names of the slots that are reserved for blocked candidates so far."""
        return [slot.name for slot in self._filling.slots()]

    def next_ask(self) -> Ask | None:
        """Return the next run to place; None at the end, or while an open one must be answered."""
        if self._open and self._awaits_outcomes:
            return None
        while self._workers > 0:
            coming = next(self._coming, None)
            if coming is None:
                return None
            ask = self._prepare(*coming)
            if ask is not None:
                self._workers -= 1
                self._board.add_demand(ask.candidate)
                return ask
        return None

    def _rounds(self) -> Iterator[tuple[AllocationRound, Candidate]]:
        """Yield all in order; then, in turn by campaign, those above a share or a soft limit.

        Those above a soft limit come last: others want the nodes as long as they may have one. If
        one that was stuck starts in a later round, the order goes on with those it held back.
        """
        refusals, coming = self._candidates_in_order()
        first = next(coming, None)
        while first is not None:
            for candidate in chain([first], coming):
                self._reached += 1
                refusal = refusals.get(candidate.task)
                if refusal is None:
                    yield AllocationRound.FIRST, candidate
                else:
                    self._record_reasons(candidate, refusal)
            for turn in (AllocationRound.SECOND, AllocationRound.THIRD):
                for candidate in self._in_turn_by_campaign(list(self._later.values())):
                    del self._later[candidate.task]
                    yield turn, candidate
            first = self._ordering.take()
            coming = iter(self._ordering.take, None)

    def _in_turn_by_campaign(self, candidates: Sequence[Candidate]) -> Iterator[Candidate]:
        """Yield one candidate of each campaign after the other, as campaigns are served."""
        by_campaign: dict[str, list[Candidate]] = {}
        for candidate in candidates:
            by_campaign.setdefault(candidate.campaign, []).append(candidate)
        queues = [by_campaign.pop(name) for name in self._sharing.serving if name in by_campaign]
        queues += by_campaign.values()
        for row in zip_longest(*queues):
            yield from filter(None, row)

    def _candidates_in_order(self) -> tuple[Mapping[str, PolicyRefusal], Iterator[Candidate]]:
        """Return whom a limit on candidates excludes, and why; and all candidates in order."""
        if self._ordering.awaits_outcomes:
            refusals = self._throttle.find_excluded(self._board.candidates)
            return refusals, iter(self._ordering.take, None)
        ordered = list(iter(self._ordering.take, None))
        return self._throttle.find_excluded(ordered), iter(ordered)

    def _record_reasons(self, candidate: Candidate, *refusals: PolicyRefusal) -> None:
        self._refused[candidate.task] = refusals
        self._ordering.record_stuck(candidate)

    def _prepare(self, turn: AllocationRound, whole: Candidate) -> Ask | None:
        if whole.task in self._awaiting:
            self._record_reasons(whole, self._awaiting[whole.task])
            self._block(whole)
            return None
        candidate, refusal, fewer = self._within_limits(whole, turn)
        if refusal is None and not candidate.named:
            candidate, refusal, bound = self._within_bounds(candidate, turn)
            fewer = bound or fewer
        if refusal is not None:
            if turn is AllocationRound.FIRST or (
                turn is AllocationRound.SECOND and refusal.axis is Axis.THROTTLE
            ):
                self._later[candidate.task] = whole
            elif refusal.rule is FULL:
                self._without.append(candidate)
            self._record_reasons(candidate, refusal)
            return None
        earliest = {} if candidate.named else self._board.earliest_starts(candidate)
        chosen, refusals = self._nodes_to_ask(candidate, earliest)
        if len(chosen) < candidate.least:
            self._record_reasons(candidate, *refusals)
            return None
        if candidate.blocked and candidate.task not in self._view.state.held:
            self._record_reasons(candidate, NOT_TRIED.refuse(task=candidate.task))
            self._block(candidate)
            return None
        names = tuple(node.name for node in chosen)
        displacing = self._preempting.find_displaceable(candidate, names)
        no_displacement = displacing if isinstance(displacing, PolicyRefusal) else None
        ask = Ask(
            number=self._view.workers - self._workers,
            round=turn,
            candidate=candidate,
            nodes=names,
            wanted=len(names) if candidate.named else min(candidate.k, len(names)),
            least=candidate.least,
            avoid=self._slots_to_avoid(candidate, names),
            full=self._full_times(candidate, turn),
            usual=self._selecting.nodes_worth_waiting_for(candidate, chosen),
            earliest=earliest,
            displacing=displacing if isinstance(displacing, Displacing) else None,
            left_out=self._nodes_left_out(candidate),
            fewer=fewer,
        )
        self._open[ask.number] = ask, no_displacement
        return ask

    def _within_limits(
        self, candidate: Candidate, turn: AllocationRound
    ) -> tuple[Candidate, PolicyRefusal | None, PolicyRefusal | None]:
        """Return the candidate with as many nodes as the hard limits permit, its refusal if any.

        Also why it may have no more than that, if they permit fewer than it wants. Where only a
        soft limit permits fewer, it has all of them in a later round, or none.
        """
        refusal = self._throttle.find_refusal(candidate, turn)
        if refusal is None or candidate.least == candidate.k:
            return candidate, refusal, None

        def hard_refusal(it: Candidate) -> PolicyRefusal | None:
            return self._throttle.find_refusal(it, AllocationRound.THIRD)

        limit, some = hard_refusal(candidate), _with_fewer(candidate, hard_refusal)
        if limit is None or some is None or self._throttle.find_refusal(some, turn) is not None:
            return candidate, refusal, None
        return some, None, limit

    def _full_times(self, candidate: Candidate, turn: AllocationRound) -> Sequence[FullTime]:
        """Return the time in which limits, or bounds of promises, permit no run of a candidate."""
        bounds = () if candidate.named else self._sharing.full_times(candidate)
        return [*self._throttle.full_times(candidate, turn), *bounds]

    def _within_bounds(
        self, candidate: Candidate, turn: AllocationRound
    ) -> tuple[Candidate, PolicyRefusal | None, PolicyRefusal | None]:
        """Return the candidate with as many nodes as it may have by the shares, and its refusal.

        Also why it may have no more than that, if bounds of promises permit fewer than it wants.
        """
        refusal = self._sharing.find_refusal(candidate, turn)
        if refusal is None or refusal.rule not in {BORROWED, NOT_LENT}:
            return candidate, refusal, None
        some = _with_fewer(candidate, lambda it: self._sharing.find_refusal(it, turn))
        return (candidate, refusal, None) if some is None else (some, None, refusal)

    def _nodes_to_ask(
        self, candidate: Candidate, earliest: Mapping[str, int]
    ) -> tuple[Sequence[NodeView], Sequence[PolicyRefusal]]:
        """Return the nodes to ask, the best first; or none, and why there are too few."""
        present = self._board.usable_nodes(candidate.nodes)
        usable = self._judge.nodes_to_ask(candidate, present)
        reserved = self._filling.slot_refusals(candidate, [node.name for node in usable])
        if reserved:
            usable = [node for node in usable if node.name not in reserved]
        if len(usable) < candidate.least:
            unsuitable = (self._judge.find_node_refusal(candidate, node) for node in present)
            return [], [
                *(refusal for refusal in unsuitable if refusal is not None),
                *reserved.values(),
            ]
        if candidate.named:
            return usable, []
        fair = self._board.least_used_first(candidate, usable)
        ranked = self._selecting.ranking(candidate, fair)
        in_order = self._by_start(candidate, ranked, earliest)
        most = candidate.k + candidate.spare
        if candidate.spread:
            chosen, refusals = _nodes_within_spread(candidate, in_order, most)
            left_out = self._nodes_left_out(candidate).values() if refusals else ()
            return chosen, [*refusals, *left_out]
        return in_order[:most], []

    def _nodes_left_out(self, candidate: Candidate) -> dict[str, PolicyRefusal]:
        """Return the nodes that must not be asked, and why."""
        present = self._board.usable_nodes(candidate.nodes)
        usable = {node.name for node in self._judge.nodes_to_ask(candidate, present)}
        left_out = dict(self._filling.slot_refusals(candidate, list(usable)))
        for node in present:
            if node.name not in usable:
                refusal = self._judge.find_node_refusal(candidate, node)
                if refusal is not None:
                    left_out[node.name] = refusal
        return left_out

    def _by_start(
        self,
        candidate: Candidate,
        ranked: Sequence[NodeView],
        earliest: Mapping[str, int],
    ) -> list[NodeView]:
        """Return the nodes that could begin first, as far as the lead knows what is booked there.

        Those that are worth waiting for count as free at once. Nodes that have time only if others
        give way come last.
        """
        waited_for = self._selecting.nodes_worth_waiting_for(candidate, ranked)

        def start(node: NodeView) -> tuple[bool, int]:
            waits = node.name in waited_for
            return node.name not in earliest, 0 if waits else earliest.get(node.name, 0)

        return sorted(ranked, key=start)

    def _slots_to_avoid(
        self, candidate: Candidate, names: Sequence[str]
    ) -> dict[str, list[ReservationView]]:
        kept: dict[str, list[ReservationView]] = {}
        until = candidate.over_at
        for slot in self._filling.slots():
            if slot.start < until and candidate.next_run_at < slot.end:
                if slot.admits(candidate):
                    continue
                for name in (name for name in names if name in slot.nodes):
                    kept.setdefault(name, []).append(slot)
        return kept

    def record_placement(
        self,
        ask: Ask,
        run: PostedRun,
        refused: Collection[str] = (),
        spans: Sequence[Span] = (),
    ) -> None:
        """Record that the run was posted on all its nodes; some others ``refused`` the question.

        Of a term with several runs, ``spans`` are those that found time, as far as is known. The
        others count at their ideal times.
        """
        del self._open[ask.number]
        candidate = ask.candidate
        self._board.settle_demand(candidate, len(run.nodes))
        self._given[candidate.task] += len(run.nodes)
        known = spans or ((run.start, run.end),)
        for start, end in (*known, *(it for it in candidate.runs[1:] if it[0] > known[-1][0])):
            each = replace(run, start=start, end=end)
            self._board.record_run(each)
            self._throttle.record_run(candidate, each)
        self._ordering.record_start(candidate)
        self._filling.record_start(candidate)
        self._judge.record_answers(ask, run.nodes, refused, placed=True)
        self._refused.pop(candidate.task, None)
        if ask.fewer is not None:
            self._refused[candidate.task] = (ask.fewer,)
        for name in run.nodes:
            for what in filter(None, (candidate.series, candidate.target)):
                self._measured[candidate.campaign, name, what] = run.start
        self._passes.pop(candidate.task, None)
        for task in self._blocked:
            self._passes[task] = self._passes.get(task, 0) + 1

    def record_refusal(
        self,
        ask: Ask,
        refused: Collection[str] = (),
        because: PolicyRefusal | None = None,
    ) -> None:
        """Record that nothing was placed; some nodes ``refused`` the question."""
        _, no_displacement = self._open.pop(ask.number)
        candidate = ask.candidate
        self._board.settle_demand(candidate, 0)
        self._judge.record_answers(ask, (), refused, placed=False)
        together = candidate.named or candidate.together
        rule = NO_COMMON_TIME if together and ask.least > 1 else NO_TIME
        decisive = because or rule.refuse(
            task=candidate.task, wanted=ask.least, asked=len(ask.nodes)
        )
        deferral = self._judge.find_refusal(candidate)
        if deferral is not None:  # until then, no other reason can be decisive
            decisive = replace(decisive, until=deferral.until)
        self._record_reasons(candidate, *filter(None, (decisive, no_displacement, deferral)))
        self._block(candidate)
        self._without.append(candidate)

    def _block(self, candidate: Candidate) -> None:
        self._filling.reserve_slot(candidate, self._passes.get(candidate.task, 0))
        self._blocked.append(candidate.task)

    def outcome(self) -> EpisodeOutcome:
        """Return the result; call it when nothing is open any more."""
        blocked = self._ordering.reasons_to_wait()
        returned, gaining = self._sharing.contests.seats_to_return(self._without)
        self._refused.update((task, (refusal,)) for task, refusal in blocked.items())
        considered = len(self._board.candidates) - len(blocked)
        # Without a worker for its last try, a candidate was not tried to the end: its refusal of
        # an earlier round holds only while others come first.
        untried = self._later.keys() if not self._workers else set()
        return EpisodeOutcome(
            placed=self._board.placed,
            refused={
                task: refusals for task, refusals in self._refused.items() if task not in untried
            },
            unreached=considered - self._reached + len(untried),
            reservations=list(self._filling.slots()),
            state=self._remembered_state(gaining),
            returned=returned,
        )

    def expected_misses(
        self,
        without_time: Mapping[str, Collection[str]],
        busy: Mapping[str, Sequence[Span]] | None = None,
    ) -> Mapping[str, Sequence[int]]:
        """Return by task the latest starts that its runs are expected to miss, in order.

        Empty if the policies mind no deadlines. ``without_time`` has by task the nodes that had no
        time when they were asked, or did not answer, ``busy`` by node when it has no time for
        exclusive runs.
        """
        half_life, board = self._policy.forecast_half_life, self._board
        if half_life is None:
            return {}
        left = [
            replace(it, k=wanted, nodes=[node.name for node in board.usable_nodes(it.nodes)])
            for it in self._view.candidates
            if (wanted := it.k - self._given[it.task]) > 0 and self._may_run(it)
        ]
        return expected_misses(
            left, without_time, lambda some: forecast_in_turns(board, some, half_life, busy)
        )

    def misses_without_nodes(self, candidate: Candidate) -> Sequence[int]:
        """Return the latest starts that a candidate misses to which no node is open."""
        if self._policy.forecast_half_life is None:
            return ()
        none = replace(candidate, nodes=())
        return expected_misses([none], {}, lambda _: ()).get(candidate.task, ())

    def _may_run(self, candidate: Candidate) -> bool:
        """Return whether nothing but lack of nodes or of time keeps a candidate from running."""
        refusal = self._judge.find_refusal(candidate)
        return refusal is None or refusal.rule in LACKS_NODES

    def _remembered_state(self, gaining: Collection[str]) -> RememberedState:
        state = replace(
            self._view.state,
            passes=self._passes,
            measured=self._measured,
            favoured=tuple({*self._view.state.favoured, *gaining}),
        )
        for axis in (self._ordering, self._sharing, self._throttle, self._filling, self._judge):
            state = axis.updated_state(state)
        return state


def _nodes_within_spread(
    candidate: Candidate, ranked: Sequence[NodeView], most: int
) -> tuple[Sequence[NodeView], Sequence[PolicyRefusal]]:
    """Return the best nodes that keep each attribute value within its limit."""
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
    return chosen, [spread_refusal(candidate.spread, len(chosen), len(ranked), candidate.least)]


def spread_refusal(
    limits: Mapping[str, int], possible: int, usable: int, wanted: int
) -> PolicyRefusal:
    """Return the refusal for ``possible`` of ``usable`` nodes that keep the limits by attribute."""
    # With several attributes, another choice of nodes might keep them.
    rule = SPREAD if len(limits) == 1 else SPREAD_IN_ORDER
    spread = " and ".join(f"{limit} for each {attribute}" for attribute, limit in limits.items())
    return rule.refuse(possible=possible, usable=usable, spread=spread, wanted=wanted)


def _with_fewer(
    candidate: Candidate, find_refusal: Callable[[Candidate], PolicyRefusal | None]
) -> Candidate | None:
    """Return the candidate with as many nodes, fewer than it wants, as are not refused, or None."""
    fewer = (replace(candidate, k=k) for k in range(candidate.least, candidate.k))
    most = None
    for each in takewhile(lambda it: find_refusal(it) is None, fewer):
        most = each
    return most
