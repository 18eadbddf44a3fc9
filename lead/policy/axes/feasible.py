"""Axis 7 in an episode: what can run at all, and which nodes not to ask."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from lead.policy.episode_figures import Board, PeakUse
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
    "{there} of the {matching} matching nodes are up, at least {wanted} are needed",
)
NOBODY = RefusalRule(
    Axis.FEASIBLE, "nobody", "no other node of the pool can take part; {wanted} more are needed"
)
LACKS_NODES = (TOO_FEW, NOBODY)
"""The refusals that say that nodes are missing."""
MISSED = RefusalRule(
    Axis.FEASIBLE, "too-late", "its run had to start by {start_by}, {late} s before this episode"
)

BUSY = RefusalRule(
    Axis.FEASIBLE,
    "busy-hint",
    "{node} is busy until {begin}, but the run must start by {start_by}",
)
FULL = RefusalRule(
    Axis.FEASIBLE,
    "too little room",
    "{node} has {left} of {has} {resource} left then, but {wanted} are needed",
)

TIED_TO = "campaigns"
"""The node attribute that ties a node to campaigns."""
TIED = RefusalRule(Axis.FEASIBLE, "partition", "{node} serves only {campaigns}")


@dataclass(frozen=True, slots=True)
class FeasibilityRules:
    """The checks that apply, beyond matching attributes and being up.

    ``failures_max``: a node that failed a campaign that often gets no more of its runs. ``alone``:
    a node that refused is not asked for a growing pause. ``patience``: a task that finds no time is
    deferred. ``partition``: nodes with the attribute ``campaigns`` (names separated by commas)
    serve only those and their descendants. ``counted``: what counts as taken of a node's resources.
    """

    failures_max: int | None = None
    alone: bool = False
    patience: deferral.DeferralRule | None = None
    partition: bool = False
    counted: availability.CapacityBasis = availability.CapacityBasis.DEDICATED

    def for_episode(self, board: Board, rng: random.Random) -> FeasibilityJudge:
        """Return this rule with the figures of one episode."""
        return FeasibilityJudge(self, board, rng)


class FeasibilityJudge:
    """The checks of one episode, with what is remembered."""

    def __init__(self, rules: FeasibilityRules, board: Board, rng: random.Random) -> None:
        """Begin; ``rng`` draws the pauses."""
        self._rules = rules
        self._board = board
        self._rng = rng
        state, now = board.view.state, board.view.now
        patience = rules.patience or deferral.PATIENCE
        self._deferrals = {
            task: deferral.capped_deferral(it, now, patience)
            for task, it in state.deferrals.items()
        }
        self._backoffs = backoff.capped_backoffs(state.backoffs, now)
        self._taken: tuple[Candidate, list[dict[str, dict[str, int]]]] | None = None
        self._shunned: set[tuple[str, str]] = set()
        if rules.alone:
            alone = ((key, it) for key, it in self._backoffs.items() if now < it.until)
            self._shunned.update((key[0], key[1]) for key, _ in alone)
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

    def find_refusal(self, candidate: Candidate) -> PolicyRefusal | None:
        """Return a refusal if its campaign is inactive, it is too late, or too few nodes are up."""
        view = self._board.view
        campaign = view.campaigns.get(candidate.campaign)
        if campaign is None:
            return NO_CAMPAIGN.refuse(campaign=candidate.campaign)
        if campaign.level == SUSPENDED:
            line = self._board.lineage(candidate.campaign)
            suspended = [name for name in line if view.campaigns[name].level == SUSPENDED]
            return SUSPENDED_CAMPAIGN.refuse(campaign=suspended[-1])
        start_by = candidate.next_run_at + candidate.slip
        if start_by < view.now:
            late = (view.now - start_by) // times.SECOND
            return MISSED.refuse(start_by=times.to_the_second(start_by), late=late)
        up = len(self._board.usable_nodes(candidate.nodes))
        wanted = candidate.least
        if up < wanted:
            matching = len(candidate.nodes)
            refusal = TOO_FEW.refuse(there=up, matching=matching, wanted=wanted)
            return refusal if matching else NOBODY.refuse(wanted=wanted)
        if self._rules.patience is None or not self._deferrals:
            return None
        deferred = self._deferrals.get(candidate.task)
        return (
            None
            if deferred is None
            else deferral.find_deferral_refusal(candidate.task, deferred, view.now)
        )

    def nodes_to_ask(self, candidate: Candidate, nodes: Sequence[NodeView]) -> Sequence[NodeView]:
        """Return the nodes that may be asked."""
        if not (self._shunned or self._busy or self._tied or candidate.needs):
            return nodes
        return [node for node in nodes if self.find_node_refusal(candidate, node) is None]

    def find_node_refusal(self, candidate: Candidate, node: NodeView) -> PolicyRefusal | None:
        """Return a refusal if the node must not be asked, else None."""
        name, campaign = node.name, candidate.campaign
        if (campaign, name) in self._shunned and (
            refusal := self._find_shunning_refusal(candidate, name)
        ) is not None:
            return refusal
        if name in self._tied and not any(
            attributes.nodes_with({name: self._tied[name]}, [above])
            for above in self._board.lineage(campaign)
        ):
            return TIED.refuse(node=name, campaigns=", ".join(self._tied[name]))
        if self._busy and (refusal := self._find_busy_refusal(candidate, node)) is not None:
            return refusal
        return self._find_lack(candidate, node) if candidate.needs else None

    def _find_busy_refusal(self, candidate: Candidate, node: NodeView) -> PolicyRefusal | None:
        """Return a refusal if it is busy too long; runs that may displace others ask anyway."""
        last = candidate.spans[-1][0] + candidate.slip
        if node.busy_until <= last or candidate.scheduling_class is not SchedulingClass.EXCLUSIVE:
            return None
        urgent = self._board.view.campaigns[candidate.campaign].level >= URGENT
        if urgent or candidate.priority > 0:
            return None
        begin, start_by = times.to_the_second(node.busy_until), times.to_the_second(last)
        return BUSY.refuse(until=node.busy_until, node=node.name, begin=begin, start_by=start_by)

    def _find_shunning_refusal(self, candidate: Candidate, name: str) -> PolicyRefusal | None:
        view, campaign = self._board.view, candidate.campaign
        if self._rules.alone:
            key = self._backoff_key(candidate, name)
            refusal = backoff.find_backoff_refusal(self._backoffs, key, view.now)
            if refusal is not None:
                return refusal
        failures_max = self._rules.failures_max
        return (
            None
            if failures_max is None
            else blacklist.find_blacklist_refusal(view.state.failures, name, campaign, failures_max)
        )

    @staticmethod
    def _backoff_key(candidate: Candidate, name: str) -> backoff.Key:
        return candidate.campaign, name, candidate.scheduling_class.value

    def _find_lack(self, candidate: Candidate, node: NodeView) -> PolicyRefusal | None:
        """Return a refusal if the node has too little of a resource left.

        A resource whose amount the node does not state has no limit.
        """
        if self._taken is None or self._taken[0] is not candidate:
            self._taken = candidate, [self._taken_beside(candidate, it) for it in candidate.spans]
        for usage in self._taken[1]:
            used_on_node = usage.get(node.name, {})
            for name, amount in candidate.needs.items():
                has = node.resources.get(name)
                if has is None:
                    continue
                wanted, utilised = has if amount is None else amount, round(has * node.load)
                remaining = availability.available_amount(
                    has, used_on_node.get(name, 0), utilised, self._rules.counted
                )
                if not availability.seats_on({name: remaining}, {name: wanted}):
                    return FULL.refuse(
                        node=node.name, left=remaining, has=has, resource=name, wanted=wanted
                    )
        return None

    def _taken_beside(self, candidate: Candidate, span: Span) -> dict[str, dict[str, int]]:
        """Return, by node, the most that concurrent runs take of each resource at an instant.

        Runs that cannot overlap the candidate end before it begins, or begin when it is over.
        """
        nodes = self._board.view.nodes
        excluded = blockers(candidate.scheduling_class)
        usage: dict[str, PeakUse] = {}
        for run in self._board.overlapping_runs(span):
            if run.scheduling_class in excluded:
                continue
            for resource, amount in run.needs.items():
                for name in run.nodes:
                    if name in nodes:
                        used = nodes[name].resources.get(resource, 0) if amount is None else amount
                        usage.setdefault(name, PeakUse(span)).add(
                            resource, (run.start, run.end), used
                        )
        return {name: use.peaks() for name, use in usage.items()}

    def record_answers(
        self, ask: Ask, gave: Collection[str], refused: Collection[str], *, placed: bool
    ) -> None:
        """Record which nodes offered time or refused, and whether a run was placed.

        A node that has no time has not refused: it may have some a minute before or after.
        """
        candidate, now = ask.candidate, self._board.view.now
        if self._rules.alone:
            offered = [self._backoff_key(candidate, name) for name in gave]
            asked = [self._backoff_key(candidate, name) for name in refused]
            self._backoffs = backoff.after_answer(
                self._backoffs, [*asked, *offered], offered, now, self._rng
            )
        if placed:
            self._deferrals.pop(candidate.task, None)
        elif self._rules.patience is not None:
            before = self._deferrals.get(candidate.task, Deferral())
            self._deferrals[candidate.task] = deferral.after_failed_start(
                before, now, self._rules.patience
            )

    def updated_state(self, state: RememberedState) -> RememberedState:
        """Return the state with the current pauses and deferrals."""
        return replace(state, backoffs=self._backoffs, deferrals=self._deferrals)
