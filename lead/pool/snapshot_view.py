"""Builds the view of a pool on which its policies decide, from what was read for an episode."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from lead.model.records import PolicyMemory
from lead.planning.needs import NeedsByTest
from lead.planning.node_views import (
    NodeLoad,
    NodeViewContext,
    node_loads,
    node_view_of,
    slowest_mbps,
)
from lead.planning.policy_state import decode_state
from lead.planning.pool_view import (
    SeatCase,
    campaigns_of,
    candidate_of,
    charges_of,
    charges_to_come,
    remembered_state,
    reservations_of,
)
from lead.planning.reserved import applicant
from lead.policy.limit_counting import spent_with
from lead.policy.view import PoolView, RememberedState, ReservationView, View
from lead.pool.membership import MemberCandidate
from lead.pool.snapshot_queries import TRIED_MAX, PoolHistory, RelevantRuns, Scope
from node.model.byte_quotas import BYTES
from node.model.reservations import ReservationSpan


@dataclass(frozen=True)
class ViewSources:
    """Everything that was read for an episode; ``members`` are the nodes of the pool.

    Those of them that are silent are awaited for its ``patience`` (µs).
    """

    pool: str
    patience: int
    scope: Scope
    members: Sequence[MemberCandidate]
    remembered: PolicyMemory
    cases: Sequence[SeatCase]
    runs: RelevantRuns
    history: PoolHistory
    reserved: Sequence[ReservationSpan]
    returnable: Sequence[str]


def view_of(sources: ViewSources, needs: NeedsByTest, resources: Collection[str]) -> View:
    """Build the view; ``resources`` are those that tests may need, beside those with quotas."""
    scope, runs, cases = sources.scope, sources.runs, sources.cases
    state = remembered_state(decode_state(sources.remembered.state), cases)
    used_at = {name: at for case in cases for name, at in case.used_at.items()}
    lanes_of = {node.name: node.lanes for node in sources.members}
    loads = node_loads([*runs.booked, *runs.to_come], lanes_of, scope.now)
    counted = frozenset(resources).union(*(each.settings.quotas for each in runs.campaigns))
    counted -= {BYTES}
    context = NodeViewContext(scope.now, scope.horizon, counted, sources.patience)
    lanes = min((node.lanes for node in sources.members), default=1)
    campaigns = campaigns_of((vars(each.settings), each.created_at) for each in runs.campaigns)
    to_come = charges_to_come(runs.to_come, lanes)
    return View(
        now=scope.now,
        horizon=scope.horizon,
        pool=PoolView(sources.pool, [node.name for node in sources.members]),
        nodes={
            node.name: node_view_of(
                node, loads.get(node.name, NodeLoad()), used_at.get(node.name, 0), context
            )
            for node in sources.members
        },
        campaigns=campaigns,
        candidates=[
            candidate_of(
                case,
                scope.horizon,
                needs.of(case.pool_task.terms.test, case.pool_task.terms.spec),
                _bytes_per_run(case, needs, sources.members),
            )
            for case in cases
        ],
        runs=[*runs.booked, *runs.to_come],
        ledger=[*charges_of(sources.history.used), *to_come],
        moved=runs.moved,
        spent=spent_with(runs.spent, to_come, campaigns),
        state=_with_failures(state, sources.history.failed, scope.names),
        workers=TRIED_MAX,
        reservations=_reservations(sources),
        returnable=list(sources.returnable),
    )


def _bytes_per_run(
    case: SeatCase, needs: NeedsByTest, members: Sequence[MemberCandidate]
) -> int | None:
    """Return what a run of a case moves on a node; a path that is filled, on the fastest one."""

    def fastest_mbps() -> int | None:
        rates = (slowest_mbps([node]) for node in members if node.name in set(case.able))
        return max((rate for rate in rates if rate is not None), default=None)

    return needs.expected_bytes(case.pool_task.terms.test, case.pool_task.terms.spec, fastest_mbps)


def _reservations(sources: ViewSources) -> list[ReservationView]:
    applicants = {
        case.name: applicant(case.pool_task.terms, case.pool_task.id) for case in sources.cases
    }
    nodes = [node.name for node in sources.members]
    return reservations_of(sources.reserved, nodes, applicants)


def _with_failures(
    state: RememberedState, failed: Mapping[tuple[str, str], int], names: Mapping[str, str]
) -> RememberedState:
    failures = {(names[node], campaign): n for (node, campaign), n in failed.items()}
    return replace(state, failures=failures)
