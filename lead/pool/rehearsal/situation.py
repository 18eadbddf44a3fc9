"""The situation of a pool, from what its lead has read: what is booked, what is to come. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from lead.planning.pool_view import SeatCase, candidate_of
from lead.policy.sets import PolicyComposition
from lead.policy.view import Candidate, PostedRun
from lead.pool.rehearsal.node_time import Closed
from lead.pool.rehearsal.seats import Seeking
from lead.pool.rehearsal.world import Demand, Placement, Situation
from lead.pool.snapshot import PoolAhead
from node.model.predicates import Attributes
from node.model.terms import due_at


def situation_of(
    ahead: PoolAhead,
    policy: PolicyComposition,
    closed: Closed,
    facts: Mapping[str, Attributes],
    fixed: Mapping[UUID, Sequence[str]],
) -> Situation:
    """Return the situation in which a rehearsal with these policies begins.

    ``closed`` is when nodes have no time because of others, ``fixed`` are by pool task the nodes
    that take part anyway.
    """
    view = ahead.view
    alike: dict[tuple[str, ...], tuple[str, ...]] = {}

    def demand_of(candidate: Candidate, case: SeatCase) -> Demand:
        if not policy.keeps_nodes and case.sticky:
            case = replace(case, sticky=False)
            candidate = candidate_of(case, view.horizon, candidate.needs, candidate.moves)
        nodes = tuple(candidate.nodes)
        candidate = replace(candidate, nodes=alike.setdefault(nodes, nodes))
        return Demand(
            candidate, Seeking(case, fixed.get(case.pool_task.id, ()), facts), view.horizon
        )

    demands = {
        case.open.key: demand_of(candidate, case)
        for candidate, case in zip(view.candidates, ahead.cases, strict=True)
    }
    placed: list[Placement] = []
    posted: list[PostedRun] = []
    for run in view.runs:
        key, number = ahead.seats.get(run.task, (None, 0))
        if key is not None and key in demands:
            slots = demands[key].slots
            slot = max((it for it in slots if it <= run.start), default=run.start)
            placed.append(Placement(run, demands[key], slot, (number,)))
        else:
            posted.append(run)
    return Situation(
        begins=view.now,
        demands=[
            (max(view.now, due_at(it.seeking.case.open.term, view.horizon)), it)
            for it in demands.values()
            if it.seeking is not None and it.seeking.case.empty
        ],
        placed=placed,
        posted=posted,
        closed=closed,
        charges=view.ledger,
        reservations=view.reservations,
        moved=view.moved,
        spent=view.spent,
        state=view.state,
    )
