"""Axis 7 in an episode: what can be done at all, and who is left alone."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from lead.policy.episode_figures import Board
from lead.policy.feasible import availability, backoff, blacklist, deferral
from lead.policy.placement_requests import Ask
from lead.policy.select import attributes
from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule
from lead.policy.view import SUSPENDED, URGENT, Candidate, Deferral, NodeView, RememberedState
from node.model import times
from node.model.classes import SchedulingClass, blockers
from node.model.spans import Span

SUSPENDED_CAMPAIGN = RefusalRule(Axis.FEASIBLE, "suspended", "the campaign {campaign} is suspended")
NO_CAMPAIGN = RefusalRule(Axis.FEASIBLE, "no-campaign", "there is no campaign {campaign}")
TOO_FEW = RefusalRule(
    Axis.FEASIBLE,
    "too-few-nodes",
    "{there} of the {matching} nodes that match are up, at least {wanted} are wanted",
)
NOBODY = RefusalRule(
    Axis.FEASIBLE, "nobody", "no other node of the pool could take part, {wanted} more are wanted"
)
MISSED = RefusalRule(
    Axis.FEASIBLE, "too-late", "its run had to start by {start_by}, {late} s before this episode"
)

BUSY = RefusalRule(
    Axis.FEASIBLE,
    "busy-hint",
    "{node} is busy until {begin}, and the last start that would do is {start_by}",
)
FULL = RefusalRule(
    Axis.FEASIBLE,
    "too little room",
    "{node} has {left} of {has} {resource} left then, {wanted} are wanted",
)

TIED_TO = "campaigns"
"""The node attribute that ties a node to campaigns."""
TIED = RefusalRule(Axis.FEASIBLE, "partition", "{node} serves only {campaigns}")


@dataclass(frozen=True, slots=True)
class FeasibilityRules:
    """Attributes and being up; and, if wanted, more.

    ``failures_max``: a node that failed a campaign so often gets no more of it. ``alone``: whoever
    refused is left alone for a growing while. ``patience``: a task that finds no time is put off.
    ``partition``: nodes with the attribute ``campaigns`` (names with commas between) serve only
    those, and what is below them. ``counted``: what counts as taken of a node's resources.
    """

    failures_max: int | None = None
    alone: bool = False
    patience: deferral.DeferralRule | None = None
    partition: bool = False
    counted: availability.CapacityBasis = availability.CapacityBasis.DEDICATED

    def begin(self, board: Board, rng: random.Random) -> FeasibilityJudge:
        """For one episode."""
        return FeasibilityJudge(self, board, rng)


class FeasibilityJudge:
    """Who is fit, by what is remembered."""

    def __init__(self, rules: FeasibilityRules, board: Board, rng: random.Random) -> None:
        """``rng`` draws the pauses."""
        self._rules = rules
        self._board = board
        self._rng = rng
        state, now = board.view.state, board.view.now
        self._deferrals = dict(state.deferrals)
        self._backoffs = dict(state.backoffs)
        self._taken: tuple[Candidate, list[dict[str, dict[str, int]]]] | None = None
        self._shunned: set[tuple[str, str]] = set()
        if rules.alone:
            alone = ((key, it) for key, it in state.backoffs.items() if now < it.until)
            self._shunned.update((campaign, node) for (campaign, node, _), _ in alone)
        if rules.failures_max is not None:
            self._shunned.update((campaign, node) for node, campaign in state.failures)
        nodes = board.view.nodes.values()
        self._busy = any(node.busy_until > now for node in nodes)
        self._tied = (
            {
                node.name: node.attributes[TIED_TO].split(",")
                for node in nodes
                if TIED_TO in node.attributes
            }
            if rules.partition
            else {}
        )

    def check(self, candidate: Candidate) -> PolicyRefusal | None:
        """Whether its campaign takes part, its time is not over, and enough nodes are up."""
        view = self._board.view
        campaign = view.campaigns.get(candidate.campaign)
        if campaign is None:
            return NO_CAMPAIGN.says_no(campaign=candidate.campaign)
        if campaign.level == SUSPENDED:
            return SUSPENDED_CAMPAIGN.says_no(campaign=candidate.campaign)
        start_by = candidate.next_run_at + candidate.slip
        if start_by < view.now:
            late = (view.now - start_by) // times.SECOND
            return MISSED.says_no(start_by=times.to_the_second(start_by), late=late)
        there = len(self._board.usable(candidate.nodes))
        wanted = candidate.least
        if there < wanted:
            matching = len(candidate.nodes)
            few = TOO_FEW.says_no(there=there, matching=matching, wanted=wanted)
            return few if matching else NOBODY.says_no(wanted=wanted)
        if self._rules.patience is None or not self._deferrals:
            return None
        put_off = self._deferrals.get(candidate.task)
        return None if put_off is None else deferral.put_off(candidate.task, put_off, view.now)

    def usable(self, candidate: Candidate, nodes: Sequence[NodeView]) -> Sequence[NodeView]:
        """Those of which nothing speaks against asking them."""
        if not (self._shunned or self._busy or self._tied or candidate.needs):
            return nodes
        return [node for node in nodes if self.why_not(candidate, node) is None]

    def why_not(self, candidate: Candidate, node: NodeView) -> PolicyRefusal | None:
        """What speaks against asking a node, if anything does."""
        name, campaign = node.name, candidate.campaign
        if (campaign, name) in self._shunned and (no := self._shuns(candidate, name)) is not None:
            return no
        if name in self._tied and not any(
            attributes.eligible({name: self._tied[name]}, [above])
            for above in self._board.line(campaign)
        ):
            return TIED.says_no(node=name, campaigns=", ".join(self._tied[name]))
        if self._busy and (no := self._is_busy(candidate, node)) is not None:
            return no
        return self._too_little(candidate, node) if candidate.needs else None

    def _is_busy(self, candidate: Candidate, node: NodeView) -> PolicyRefusal | None:
        """No before its busy time; but whoever may have others give way asks all the same."""
        last = candidate.spans[-1][0] + candidate.slip
        if node.busy_until <= last or candidate.scheduling_class is not SchedulingClass.EXCLUSIVE:
            return None
        urgent = self._board.view.campaigns[candidate.campaign].level >= URGENT
        if urgent or candidate.priority > 0:
            return None
        begin, start_by = times.to_the_second(node.busy_until), times.to_the_second(last)
        return BUSY.says_no(until=node.busy_until, node=node.name, begin=begin, start_by=start_by)

    def _shuns(self, candidate: Candidate, name: str) -> PolicyRefusal | None:
        view, campaign = self._board.view, candidate.campaign
        if self._rules.alone:
            known = self._backoffs.get((campaign, name, candidate.scheduling_class.value))
            if (no := backoff.refuse_during_backoff(known, name, campaign, view.now)) is not None:
                return no
        most = self._rules.failures_max
        return None if most is None else blacklist.admit(view.state.failures, name, campaign, most)

    def _too_little(self, candidate: Candidate, node: NodeView) -> PolicyRefusal | None:
        """No where a node has less of a resource left than it needs; of others nobody knows."""
        if self._taken is None or self._taken[0] is not candidate:
            self._taken = candidate, [self._taken_beside(candidate, it) for it in candidate.spans]
        for taken in self._taken[1]:
            of_node = taken.get(node.name, {})
            for name, amount in candidate.needs.items():
                has = node.resources.get(name)
                if has is None:
                    continue
                wanted, utilised = has if amount is None else amount, round(has * node.load)
                left = availability.available(
                    has, of_node.get(name, 0), utilised, self._rules.counted
                )
                if not availability.seats_on({name: left}, {name: wanted}):
                    return FULL.says_no(
                        node=node.name, left=left, has=has, resource=name, wanted=wanted
                    )
        return None

    def _taken_beside(self, candidate: Candidate, span: Span) -> dict[str, dict[str, int]]:
        """By node, what is taken of each resource in a span by runs that may go on beside it.

        Those that may not are over before it begins, or begin when it is over.
        """
        nodes = self._board.view.nodes
        apart = blockers(candidate.scheduling_class)
        found: dict[str, dict[str, int]] = {}
        for run in self._board.overlapping(span):
            if run.scheduling_class in apart:
                continue
            for resource, amount in run.needs.items():
                for name in run.nodes:
                    if name in nodes:
                        taken = nodes[name].resources.get(resource, 0) if amount is None else amount
                        of_node = found.setdefault(name, {})
                        of_node[resource] = of_node.get(resource, 0) + taken
        return found

    def answered(
        self, ask: Ask, gave: Collection[str], refused: Collection[str], *, placed: bool
    ) -> None:
        """Which nodes gave time, which had none or said no, and whether a run came of it."""
        candidate, now = ask.candidate, self._board.view.now
        if self._rules.alone:
            of_class = candidate.scheduling_class.value
            given = [(candidate.campaign, name, of_class) for name in gave]
            # What is full by the lead's own booking has not refused: its demand is shared, and who
            # got nothing this hour must be able to get something in the next.
            knew = self._board.has_room
            asked = [
                (candidate.campaign, name, of_class) for name in refused if knew(candidate, name)
            ]
            asked += given
            self._backoffs = backoff.after_answer(self._backoffs, asked, given, now, self._rng)
        if placed:
            self._deferrals.pop(candidate.task, None)
        elif self._rules.patience is not None:
            before = self._deferrals.get(candidate.task, Deferral())
            self._deferrals[candidate.task] = deferral.failed(before, now, self._rules.patience)

    def remember(self, state: RememberedState) -> RememberedState:
        """Who is left alone, and what is put off."""
        return replace(state, backoffs=self._backoffs, deferrals=self._deferrals)
