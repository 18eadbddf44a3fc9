"""Axis 4 in an episode: what may be displaced for a candidate if nothing is free.

No node displaces a run in progress, so only runs that are posted and not started are named here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from lead.policy.contracts import Preempt
from lead.policy.episode_figures import Board
from lead.policy.placement_requests import Displacing
from lead.policy.preempt import flagged, groups, score
from lead.policy.promised_seats import NOBODY, PromisedSeats
from lead.policy.verdict import PolicyRefusal
from lead.policy.view import BUCKET, URGENT, Candidate, PostedRun
from node.model.classes import blockers


class FunctionPreemption:
    """A preemption rule that is one function for all candidates."""

    def __init__(
        self,
        find_displaceable: Callable[[Candidate, Sequence[str]], Displacing | PolicyRefusal | None],
    ) -> None:
        self.find_displaceable = find_displaceable


@dataclass(frozen=True, slots=True)
class Never:
    """A rule that displaces nothing."""

    def for_episode(self, board: Board) -> FunctionPreemption:
        """Return this rule with the figures of one episode."""
        del board
        return FunctionPreemption(lambda candidate, nodes: None)  # noqa: ARG005


@dataclass(frozen=True, slots=True)
class LowerPriority:
    """Runs of strictly lower priority are displaced, on the second pass."""

    def for_episode(self, board: Board) -> FunctionPreemption:
        """Return this rule with the figures of one episode."""
        del board
        return FunctionPreemption(lambda candidate, nodes: Displacing(candidate.priority))  # noqa: ARG005


@dataclass(frozen=True, slots=True)
class Flagged:
    """Preemptors displace preemptees of lower priority; that of the campaign counts too."""

    def for_episode(self, board: Board) -> FunctionPreemption:
        """Return this rule with the figures of one episode."""
        campaigns = board.view.campaigns

        def find_displaceable(
            candidate: Candidate, nodes: Sequence[str]
        ) -> Displacing | PolicyRefusal | None:
            campaign = campaigns[candidate.campaign]
            new = candidate.campaign, candidate.priority + campaign.priority
            if not campaign.preemptor:
                return flagged.find_preemption_refusal(new, new, preemptor=False, preemptee=False)
            runs = [
                run
                for run in _runs_in_the_way(board, candidate, nodes)
                if flagged.find_preemption_refusal(
                    new,
                    (run.campaign, run.priority + campaigns[run.campaign].priority),
                    preemptor=True,
                    preemptee=campaigns[run.campaign].preemptee,
                )
                is None
            ]
            return _displaceable_only(runs, candidate.priority)

        return FunctionPreemption(find_displaceable)


@dataclass(frozen=True, slots=True)
class UrgentByScore:
    """Urgent runs displace by score, within a budget; another rule applies to all others."""

    urgency: score.Urgency = field(default_factory=lambda: score.Urgency(Fraction(10)))
    others: Preempt = field(default_factory=Never)

    def for_episode(self, board: Board) -> FunctionPreemption:
        """Return this rule with the figures of one episode."""
        campaigns = board.view.campaigns
        others = self.others.for_episode(board)
        seats = len(board.usable_nodes(board.view.pool.nodes))

        def find_displaceable(
            candidate: Candidate, nodes: Sequence[str]
        ) -> Displacing | PolicyRefusal | None:
            if campaigns[candidate.campaign].level < URGENT:
                return others.find_displaceable(candidate, nodes)
            urgent = board.count_urgent_nodes(
                (candidate.next_run_at, candidate.start_by + candidate.duration)
            )
            waited = board.view.now - candidate.waits_since
            refusal = self.urgency.find_refusal(candidate.campaign, waited, seats, urgent)
            if refusal is not None and waited < self.urgency.delay:
                return replace(refusal, until=candidate.waits_since + self.urgency.delay)
            if refusal is not None:
                return refusal
            by_name = {run.run: run for run in _runs_in_the_way(board, candidate, nodes)}
            occupants = [
                score.Occupant(run.run, campaigns[run.campaign].level, 0)
                for run in by_name.values()
            ]
            most = self.urgency.allowance(waited, seats, urgent)
            victims = score.victims(occupants, score.THRESHOLD, len(occupants))
            return _displaceable_only([by_name[it.run] for it in victims], candidate.priority, most)

        return FunctionPreemption(find_displaceable)


@dataclass(frozen=True, slots=True)
class GroupReclaim:
    """Groups below their target take back what others have borrowed.

    These are groups above their own target, and campaigns without one that hold seats of the pool
    by tasks that name their nodes, unless they are urgent.
    """

    def for_episode(self, board: Board) -> FunctionPreemption:
        """Return this rule with the figures of one episode."""
        promises = {
            name: it.target for name, it in board.view.campaigns.items() if it.target is not None
        }
        seats = PromisedSeats(board, promises)

        def find_displaceable(
            candidate: Candidate, nodes: Sequence[str]
        ) -> Displacing | PolicyRefusal | None:
            group = board.groups.get(candidate.campaign)
            if group not in promises:
                return None
            held, own = seats.peaks(candidate.spans[0]), board.lanes
            targets = {**seats.targets, NOBODY: 0}
            wanted = min(seats.lanes_of(candidate), targets[group] - held[group])
            if wanted <= 0:  # a background run takes no seat
                return None
            reclaimed = groups.seats_to_return(wanted, held, targets)
            if not reclaimed:
                return groups.NOTHING_LENT.refuse(
                    group=group, held=held[group] / own, target=targets[group] / own
                )
            runs = {
                run.run: run
                for run in _runs_in_the_way(board, candidate, nodes)
                if board.groups.get(run.campaign, NOBODY) in reclaimed
                and board.view.campaigns[run.campaign].level < URGENT
            }
            # The limit is in seats of the candidate: a node may have many runs to displace.
            of_one = max(1, seats.lanes_of(candidate) // candidate.k)
            most = min(candidate.k, -(-sum(reclaimed.values()) // of_one))
            return _displaceable_only(
                [runs[name] for name in sorted(runs)], candidate.priority, most
            )

        return FunctionPreemption(find_displaceable)


def _runs_in_the_way(board: Board, candidate: Candidate, nodes: Iterable[str]) -> list[PostedRun]:
    """Return the displaceable runs on these nodes where the candidate may run within the hour."""
    wanted_nodes, conflicting = set(nodes), blockers(candidate.scheduling_class)
    end = min(candidate.over_at, candidate.next_run_at + BUCKET)
    window = candidate.next_run_at, max(candidate.start_by + candidate.duration, end)
    return [
        run
        for run in board.overlapping_runs(window)
        if run.scheduling_class in conflicting
        and not run.running
        and not wanted_nodes.isdisjoint(run.nodes)
    ]


def _displaceable_only(
    runs: Sequence[PostedRun], priority: int, most: int | None = None
) -> Displacing | None:
    """Allow these runs to be displaced, whatever their priority."""
    if not runs:
        return None
    # Nodes displace only runs of lower priority, so offer one above the highest of these.
    above = max(run.priority for run in runs) + 1
    return Displacing(max(priority, above), tuple(run.run for run in runs), most)
