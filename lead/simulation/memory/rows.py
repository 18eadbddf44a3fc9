"""The rows of the tables, column by column as in ``schema.sql``.

Instants and durations are microseconds. A column of type ``jsonb`` holds the document as bytes, as
a database would: changing the original document does not change the stored one. ``number`` counts
the rows of a table in the order of insertion and breaks every tie, so that the order of an answer
never depends on chance.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID

import orjson

from node.model.ranks import OWN
from node.store.database import POSTGRES_EPOCH

Packed = bytes
"""A JSON document as bytes."""

EMPTY: Packed = b"{}"
NOTHING: Packed = b"[]"


def pack(document: Any) -> Packed:
    """Serialise a document into bytes of its exact size (``orjson`` reserves 4 kB)."""
    return _shared(bytes(memoryview(orjson.dumps(document))))


def pack_optional(document: Any) -> Packed | None:
    """Serialise a document for a column that may be null."""
    return None if document is None else pack(document)


@lru_cache(maxsize=4096)
def _shared(packed: Packed) -> Packed:
    """Return one object for equal documents: at least two nodes store each task."""
    return packed


def unpack(packed: Packed | None) -> Any:
    """Return a new document, which the caller may change."""
    if packed is None:
        return None
    return {} if packed == EMPTY else orjson.loads(packed)


def pack_spans(spans: Iterable[tuple[int, int]]) -> bytes:
    """Encode spans as Postgres sends instants: eight bytes each, microseconds since its epoch."""
    instants = [instant - POSTGRES_EPOCH for span in spans for instant in span]
    return struct.pack(f">{len(instants)}q", *instants)


@dataclass(slots=True, eq=False)
class TableRow:
    """The common base of all rows."""

    number: int = field(init=False)


@dataclass(slots=True, eq=False)
class NodeRow(TableRow):
    """A known node, or this one."""

    identity: str
    name: str
    url: str | None
    address: str
    added_at: int
    is_self: bool = False
    seen_at: int | None = None
    unreachable_since: int | None = None
    last_error: str | None = None
    busy_until: int | None = None
    shortfall: int | None = None
    attributes: Packed = EMPTY
    set_attributes: Packed = EMPTY
    lanes: int = 8
    marked_at: int | None = None
    uncompared: bool = False
    pardoned_at: int | None = None
    heard_at: int | None = None
    announcement: str | None = None


@dataclass(slots=True, eq=False)
class LeadShareRow(TableRow):
    """The share of a lead in the node's time."""

    lead: str
    share: int


@dataclass(slots=True, eq=False)
class LeadQuestionRow(TableRow):
    """A lead's last question for time in an hour."""

    lead: str
    hour: int
    asked_at: int


@dataclass(slots=True, eq=False)
class IdempotencyRow(TableRow):
    """The record of a POST that was served."""

    key: str
    request_digest: str
    made: UUID
    created_at: int


@dataclass(slots=True, eq=False)
class ReservationRow(TableRow):
    """A reservation of time, recurring or once."""

    id: UUID
    pool: str | None
    kind: str
    name: str
    owner: str
    description: str | None
    schedule: Packed
    duration: int
    access: Packed
    reserved_to: int
    created_at: int
    changed_at: int
    revision: int = 1


@dataclass(slots=True, eq=False)
class ReservedSpanRow(TableRow):
    """A span of a reservation."""

    reservation_id: UUID
    starts_at: int
    ends_at: int


@dataclass(slots=True, eq=False)
class CampaignRow(TableRow):
    """A campaign, to which tasks belong."""

    id: int
    name: str
    created_at: int
    changed_at: int
    parent_id: int | None = None
    parent_depth: int | None = None
    weight: Decimal = Decimal("1.000000")
    level: int = 5
    priority: int = 0
    preemptor: bool = False
    preemptee: bool = False
    seats_max: int | None = None
    target_seats: int | None = None
    target_share: Decimal | None = None
    fairshare: Packed | None = None
    limits: Packed = EMPTY
    quotas: Packed = EMPTY
    queue: Packed | None = None
    owner: str | None = None
    contact: str | None = None
    description: str | None = None
    state: str = "active"
    revision: int = 1

    @property
    def is_limited(self) -> bool:
        """Return whether it has limits of its own."""
        return self.limits != EMPTY or self.quotas != EMPTY or self.seats_max is not None

    @property
    def depth(self) -> int:
        """Return the depth: one more than the parent's."""
        return (self.parent_depth or 0) + 1


@dataclass(slots=True, eq=False)
class PoolRow(TableRow):
    """A named set of nodes."""

    id: int
    name: str
    match: Packed
    policy_set: str
    overrides: Packed
    choice: str
    term: int
    patience: int
    description: str | None
    created_at: int
    changed_at: int
    revision: int = 1


@dataclass(slots=True, eq=False)
class PoolTaskRow(TableRow):
    """The request of a task for nodes of a pool, instead of named nodes."""

    task_id: UUID
    pool_id: int
    request: Packed
    next_slot: int | None
    due_at: int | None
    rounds_left: int | None
    reason: str | None = None


@dataclass(slots=True, eq=False)
class TermRow(TableRow):
    """A term: consecutive slots of a pool task for which the same nodes hold its seats."""

    pool_task: UUID
    starts_at: int
    ends_at: int
    over_at: int
    seats: int
    tries: int = 0
    try_at: int | None = None
    reason: str | None = None
    wants_room: bool = False
    misses: tuple[int, ...] = ()


@dataclass(slots=True, eq=False)
class SeatRow(TableRow):
    """A seat of a pool task in a term, and the node that has or had it."""

    task_id: UUID
    place: int
    pool_task: UUID
    term: int
    node: str
    taken_at: int
    lost_at: int | None = None
    reason: str | None = None


@dataclass(slots=True, eq=False)
class PolicyStateRow(TableRow):
    """The stored state of a pool's policies."""

    pool_id: int
    state: Packed
    revision: int
    changed_at: int
    missing: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class ChargeRow(TableRow):
    """A charge of a campaign for a run on one node, in thousandths of a seat, and in bytes."""

    id: int
    campaign_id: int
    run_id: UUID
    participant: int
    node: str
    starts_at: int
    ends_at: int
    weight: int
    bytes: int
    cause: str
    made_at: int


@dataclass(slots=True, eq=False)
class ChargeHourRow(TableRow):
    """The sum of a campaign's charges on one node within one hour."""

    hour: int
    campaign_id: int
    node: str
    amount: int
    bytes: int


@dataclass(slots=True, eq=False)
class TaskRow(TableRow):
    """A task led or known here; ``nodes`` are the identities of its participants.

    ``limited`` and ``follows`` are taken from the schedule.
    """

    id: UUID
    lead: str
    test: str
    spec: Packed
    tool: str | None
    tools: list[str]
    scheduling_class: str
    duration: int
    priority: int
    participants: Packed
    participant: int | None
    addresses: Packed
    schedule: Packed
    campaign: str | None
    reference: Packed | None
    created_at: int
    nodes: tuple[str, ...]
    limited: bool
    follows: UUID | None = None
    state: str = "active"
    reason: str | None = None
    lease_epoch: int = 0
    generation: UUID | None = None
    revision: int = 1
    freeing: Packed | None = None
    paused_at: int | None = None
    ended_at: int | None = None
    parent: UUID | None = None
    pool_task: UUID | None = None
    yielding: tuple[UUID, ...] | None = None
    starts: tuple[int, ...] | None = None
    limit_rule: str | None = None
    limit_refusal: str | None = None
    run_bytes: int | None = None
    limit_caps: Packed = NOTHING
    requester: str | None = None
    limit_user: str | None = None
    limit_address: str | None = None


@dataclass(slots=True, eq=False)
class PlanningRow(TableRow):
    """A task on the lead's agenda."""

    task_id: UUID
    campaign_id: int
    next_run_at: int | None
    plan_at: int | None
    added_at: int
    planned_to: int | None = None
    failures: int = 0
    waits_for: str | None = None
    waits_until: int | None = None
    lease_owner: str | None = None
    lease_until: int | None = None
    lease_epoch: int = 0
    follower: bool = False
    wants_room: bool = False


@dataclass(slots=True, eq=False)
class NegotiationRow(TableRow):
    """An exchange at its lead."""

    id: UUID
    task_id: UUID
    lease_epoch: int
    run_ids: list[UUID]
    opened_at: int
    expires_at: int
    state: str = "open"
    commit_message: Packed | None = None
    decided_at: int | None = None


@dataclass(slots=True, eq=False)
class ExchangeRow(TableRow):
    """An exchange at a participant; ``ports`` are those in its answer."""

    id: UUID
    task_id: UUID
    lease_epoch: int
    held_at: int
    expires_at: int
    state: str = "held"
    answer: Packed = EMPTY
    data: Packed = EMPTY
    asked_at: int | None = None
    decided_at: int | None = None
    ports: range | None = None


@dataclass(slots=True, eq=False)
class RunRow(TableRow):
    """A run; ``lane`` is exclusive, normal, or None if it takes no lane."""

    id: UUID
    task_id: UUID
    exchange_id: UUID | None
    slot: int
    attempt: int
    participant: int | None
    scheduling_class: str
    priority: int
    starts_at: int
    ends_at: int
    state: str
    created_at: int
    changed_at: int
    lane: str | None = None
    reason: str | None = None
    displaced_by: UUID | None = None
    freed: bool = False
    spec: Packed | None = None
    tool: str | None = None
    started_at: int | None = None
    finished_at: int | None = None
    process_id: int | None = None
    process_ticks: int | None = None
    result: Packed | None = None
    summary: str | None = None
    verdict: str | None = None
    verdict_reasons: list[str] = field(default_factory=list)
    rank: int = OWN


@dataclass(slots=True, eq=False)
class PartRow(TableRow):
    """The result of one participant of a run."""

    run_id: UUID
    participant: int
    name: str
    result: Packed | None
    reason: str | None
    started_at: int | None
    finished_at: int | None
    command: list[str] | None
    output: str | None
    circumstances: Packed | None
    moved_bytes: int | None = None
    signature: str | None = None


@dataclass(slots=True, eq=False)
class GapRow(TableRow):
    """Slots of a task that were never planned, as a range."""

    id: UUID
    task_id: UUID
    first_slot: int
    last_slot: int
    slots: int
    reason: str
    told_at: int


@dataclass(slots=True, eq=False)
class DecisionRow(TableRow):
    """A planning attempt."""

    id: int
    task_id: UUID
    exchange_id: UUID | None
    first_at: int
    decided_at: int
    outcome: str
    sentence: str
    asked: int
    placed: int
    first_slot: int | None
    last_slot: int | None
    trace: Packed
    times: int = 1


@dataclass(slots=True, eq=False)
class OutboxRow(TableRow):
    """A message in the outbox."""

    id: int
    node: str
    kind: str
    message: Packed
    created_at: int
    next_at: int
    attempts: int = 0
    last_error: str | None = None
