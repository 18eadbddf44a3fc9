"""Puts a lead together with the node that it plans for. Node and lead code meet only here.

The services, the simulation and the tests all build their leads from these functions.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from uuid import UUID

from lead.assembly.lead import Lead, LeadDependencies, LeadSettings
from lead.exchange.campaign_limits import CampaignLimits, campaign_name, campaign_views
from lead.exchange.displacement import CampaignDisplacement
from lead.exchange.edits import EditedTask, edited_task
from lead.exchange.negotiation import NegotiationSettings
from lead.exchange.preview import PreviewDependencies, TaskPreviewer
from lead.exchange.reconciliation import Reconciler, ReconciliationDependencies
from lead.exchange.shared_campaigns import SharedCampaigns
from lead.exchange.user_limits import LeadLimits
from lead.exchange.workers import POLL_S
from lead.model.participants import ImpactSource, ParticipantClient, ProposalSource
from lead.planning.agenda import Limits, Slot
from lead.planning.campaign_room import CampaignRoom, Imagined
from lead.planning.displacement import DisplacementTerms
from lead.planning.limited_time import UserRoom
from lead.planning.needs import NeedsByTest
from lead.policy.preempt.score import Urgency
from lead.policy.sets import PolicyComposition
from lead.policy.settings import configured_set
from lead.policy.verdict import PolicyRefusal
from lead.pool.contested_time import ContestedTimeReader
from lead.pool.episodes import EpisodeLimits, SeatDependencies
from lead.pool.policy_preview import PolicyPreviewer
from lead.pool.preview import PoolTaskPreviewer, SeatPreviewDependencies
from node.model.errors import FieldFault, InvalidDocument
from node.model.host_limits.standing import LimitStanding
from node.model.reason import Reason
from node.model.suspension import suspended_in
from node.model.task_terms import TaskTerms
from node.model.wire.campaigns import Budget
from node.model.wire.comparisons import TaskComparison
from node.model.wire.pools import PolicyChoice
from node.model.wire.seats import SeatRequest
from node.model.wire.tasks import TaskDocument
from node.runtime.housekeeping import COMPARE_S
from node.runtime.settings import Settings
from node.service import (
    LeadFunctions,
    NodeService,
    Preview,
    PreviewPolicies,
    ReadBudgets,
    ReadContested,
)
from node.store import dependencies
from node.store.database import Database
from node.store.tasks import StoredTask
from node.tasks.comparison import CompareLed


def lead_functions() -> LeadFunctions:
    """Return what a node's API needs of the lead: previews, comparisons, the check of policies."""
    return LeadFunctions(
        preview_of=preview_of,
        budgets_of=budgets_of,
        contested_of=contested_of,
        compare_of=compare_of,
        judge_policy=judge_policy,
        policy_preview_of=policy_preview_of,
    )


def lead_of(
    node: NodeService,
    *,
    owner: str,
    rng: random.Random,
    participant_of: Callable[[str], ParticipantClient] | None = None,
    poll_s: float = POLL_S,
    compare_every_s: float = COMPARE_S,
) -> Lead:
    """Build the lead of a node, not started.

    ``owner`` names this process in leases; no other process may use the same name.
    ``participant_of`` replaces the way in which the lead reaches participants.
    """
    settings = node.settings
    lead = Lead(
        node.database,
        node.clock,
        LeadSettings(
            limits=limits_of(settings),
            terms=NegotiationSettings(settings.hold_life, settings.clock_limit),
            weights=settings.seat_weights,
            workers=settings.workers,
            lease=settings.lease,
            owner=owner,
            poll_s=poll_s,
            compare_every_s=compare_every_s,
        ),
        dependencies_of(node, participant_of or node.participant),
        rng,
    )
    node.clock_steps.on_set_back(lead.reachability.ask_all)
    return lead


def limits_of(settings: Settings) -> Limits:
    """Return the limits within which the lead plans."""
    return Limits(settings.horizon, settings.start_margin, settings.batch)


def urgency_of(settings: Settings) -> Urgency:
    """Return how far urgent tasks that name their participants may displace others."""
    return Urgency(Fraction(settings.urgent_percent), settings.urgent_delay)


def campaign_limits_of(node: NodeService) -> CampaignLimits:
    """Return what keeps tasks within the limits of their campaigns."""
    return CampaignLimits(
        lambda: node.directory.all, needs_by_test(node), node.settings.seat_weights
    )


def shared_campaigns_of(node: NodeService) -> SharedCampaigns:
    """Return what learns from other leads what the campaigns that they share have used."""
    return SharedCampaigns(node.database, node.clock, node.peer)


def campaign_displacement_of(node: NodeService) -> CampaignDisplacement:
    """Return the rules of what the campaigns of tasks let them displace."""
    return CampaignDisplacement(
        lambda: [known.identity for known in node.directory.all], urgency_of(node.settings)
    )


def needs_by_test(node: NodeService) -> NeedsByTest:
    """Return what runs of the tests that are installed here need, and what they move."""
    return NeedsByTest(node.pool_tasks.needs, node.pool_tasks.expected_bytes)


def dependencies_of(
    node: NodeService, participant_of: Callable[[str], ParticipantClient]
) -> LeadDependencies:
    """Return the functions of the node that the lead uses."""
    shared = shared_campaigns_of(node)
    return LeadDependencies(
        participant_of=participant_of,
        relocate=node.foreign_targets.relocated,
        choose_tool=node.capabilities.agree,
        refuse_task=node.termination.refuse_task,
        lose_run=node.termination.lose_run,
        limits=LeadLimits(campaign_limits_of(node), node.time_line.limits, shared),
        displacement=campaign_displacement_of(node),
        reconciliation=reconciliation_dependencies(node),
        seats=replace(seat_dependencies(node, participant_of), learn_uses=shared.learn),
        instruments=node.core.instruments,
        steps=node.core.steps,
    )


def reconciliation_dependencies(node: NodeService) -> ReconciliationDependencies:
    """Return the functions of the node that comparing with participants uses."""
    return ReconciliationDependencies(
        others=lambda: [node.peer(k.identity) for k in node.directory.all if not k.is_self],
        lose_run=node.termination.lose_run,
        end_task=node.termination.cancel_led_task,
        tell_again=node.editing.tell_again,
    )


def compare_of(node: NodeService) -> CompareLed:
    """Return what compares the tasks that a node leads with one of the others.

    It needs no worker, so a node whose lead is another process compares by itself.
    """
    dependencies = reconciliation_dependencies(node)
    reconciler = Reconciler(node.database, node.clock, dependencies, node.settings.horizon)

    async def compare(identity: str) -> TaskComparison:
        return await reconciler.run_once(node.peer(identity))

    return compare


def seat_dependencies(
    node: NodeService, participant_of: Callable[[str], ProposalSource]
) -> SeatDependencies:
    """Return the functions of the node that giving seats uses."""
    return SeatDependencies(
        known=node.directory.known_of_parley,
        wanted_of=node.pool_tasks.requirements,
        needs=needs_by_test(node),
        resources=node.capabilities.resources,
        users=node.time_line.limits,
        learn_uses=shared_campaigns_of(node).learn,
        participant_of=participant_of,
        seat_task=node.drafter.seat_task,
        take_back=node.termination.cancel_led_task,
    )


def preview_of(node: NodeService) -> Preview:
    """Return the preview of tasks at this node.

    It needs no worker, so a node whose lead is another process answers by itself.
    """
    tasks = task_preview(node, node.participant, lambda it: node.drafter.draft(it).task)
    return pool_task_preview(node, node.participant, tasks)


def budgets_of(node: NodeService) -> ReadBudgets:
    """Return what reads the use of campaigns' limits at this node."""
    limits = campaign_limits_of(node)

    async def budgets() -> dict[str, tuple[Budget, ...]]:
        async with node.database.connection() as connection:
            return await limits.budgets(connection, node.clock.now())

    return budgets


def contested_of(node: NodeService) -> ReadContested:
    """Return what reads how campaigns stand in the contested time of this node's pools."""
    bounds = EpisodeLimits(limits_of(node.settings), node.settings.clock_limit)
    seats = seat_dependencies(node, node.participant)
    return ContestedTimeReader(node.database, node.clock, bounds, seats).of


def task_preview(
    node: NodeService,
    impact_source_of: Callable[[str], ImpactSource],
    draft: Callable[[TaskDocument], StoredTask],
) -> TaskPreviewer:
    """Build the preview of tasks with named participants."""
    limits = campaign_limits_of(node)
    return TaskPreviewer(
        node.clock,
        limits_of(node.settings),
        node.settings.clock_limit,
        PreviewDependencies(
            name=node.settings.name,
            workers=node.settings.workers,
            draft=draft,
            impact_source_of=impact_source_of,
            agreed=node.admission.agree_on_tool,
            choose_tool=node.capabilities.agree,
            room_of=partial(_room_of, node.database, limits),
            campaign_of=partial(_campaign_of, node.database),
            learn_uses=shared_campaigns_of(node).learn,
            expected_bytes=limits.expected_bytes,
            displaceable=partial(_displaceable, node, campaign_displacement_of(node)),
            ends_of=partial(_ends_of, node.database),
            limits_of_user=node.limits.standing,
            bind_user=node.time_line.limits.bind,
            left_to_user=partial(_left_to_user, node),
            no_room=partial(_no_room, node),
            edited=partial(_edited, node),
        ),
    )


async def _room_of(
    database: Database,
    limits: CampaignLimits,
    terms: TaskTerms,
    until: int,
    now: int,
    imagined: Imagined,
) -> CampaignRoom | None:
    async with database.connection() as connection:
        return await limits.room(connection, terms, until, now, imagined)


async def _campaign_of(database: Database, terms: TaskTerms) -> tuple[int, str | None]:
    async with database.connection() as connection:
        views = await campaign_views(connection)
    name = campaign_name(terms)
    return views[name].level, suspended_in(name, views)


async def _displaceable(
    node: NodeService, displacement: CampaignDisplacement, terms: TaskTerms, slots: Sequence[Slot]
) -> DisplacementTerms | PolicyRefusal | None:
    """Return what the task may displace, and for an urgent one from when on: once it has waited."""
    async with node.database.connection() as connection:
        return await displacement.once_waited(connection, terms, slots, node.clock.now())


async def _left_to_user(
    node: NodeService, standing: LimitStanding, duration: int, left_out: UUID | None
) -> UserRoom:
    async with node.database.connection() as connection:
        limits, now = node.time_line.limits, node.clock.now()
        left = await limits.left_to_user(connection, standing, duration, now, left_out)
        return UserRoom(*left)


async def _no_room(
    node: NodeService,
    task: StoredTask,
    standing: LimitStanding,
    left_out: UUID | None,
    beside: int,
) -> Reason | None:
    async with node.database.connection() as connection:
        return await node.limits.task_count_refusal(connection, task, standing, left_out, beside)


async def _edited(node: NodeService, task: UUID, terms: TaskTerms) -> EditedTask | None:
    async with node.database.connection() as connection:
        margin, now = node.settings.start_margin, node.clock.now()
        return await edited_task(connection, task, terms, margin, now)


async def _ends_of(database: Database, task: UUID) -> list[int]:
    async with database.connection() as connection:
        return await dependencies.booked_ends(connection, task)


def pool_task_preview(
    node: NodeService, participant_of: Callable[[str], ProposalSource], tasks: TaskPreviewer
) -> PoolTaskPreviewer:
    """Build the preview of all tasks; those that name no pool are passed on to ``tasks``."""

    async def draft(document: TaskDocument, request: SeatRequest) -> tuple[StoredTask, int]:
        draft = await node.drafter.draft_new_pool_task(document, request)
        return draft.task, draft.first_slot

    return PoolTaskPreviewer(
        node.database,
        node.clock,
        EpisodeLimits(limits_of(node.settings), node.settings.clock_limit),
        seat_dependencies(node, participant_of),
        SeatPreviewDependencies(draft),
        tasks,
    )


def policy_preview_of(node: NodeService) -> PreviewPolicies:
    """Return what previews other policies of pools at this node."""
    previewer = PolicyPreviewer(
        node.database,
        node.clock,
        EpisodeLimits(limits_of(node.settings), node.settings.clock_limit),
        seat_dependencies(node, node.participant),
    )
    return previewer.plan


def composition_of(chosen: PolicyChoice) -> PolicyComposition:
    """Return the policies that a document chooses.

    :raises InvalidDocument: a field is wrong.
    """
    overrides = {str(axis): rule for axis, rule in chosen.overrides.items()}
    return configured_set(chosen.set, overrides, chosen.options)


def judge_policy(policy: PolicyChoice) -> list[FieldFault]:
    """Return what is wrong with the policies of a pool, by the fields of its document."""
    try:
        composition_of(policy)
    except InvalidDocument as error:
        return [FieldFault(_pool_pointer(it.pointer), it.detail) for it in error.faults]
    return []


def _pool_pointer(pointer: str) -> str:
    """Return a field of the policies as a field of the pool document; ``/policy`` is the set."""
    return "/policy/set" if pointer == "/policy" else f"/policy{pointer}"
