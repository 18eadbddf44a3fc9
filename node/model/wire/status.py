"""The status of a node: how it is on one page, and what needs attention."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from node.model.leads import LeadState
from node.model.wire.fields import Document, Duration, Instant
from node.model.wire.nodes import ClockState, Identity, NodeName
from node.model.wire.outcomes import OutcomesStatus


class Attention(Document):
    """Something that needs the attention of the node's owner."""

    subject: str = Field(description="One word for what it is about: lead, disk, clock, …")
    what: str = Field(description="What is wrong, in one sentence.")
    command: str = Field(description="The command to type next on the node's host.")


class DatabaseStatus(Document):
    """The database of the node; what cannot be read of it is null."""

    place: str = Field(description="Where its server listens; empty if that is not known.")
    server_version: str | None
    size_bytes: int | None
    answer_ms: float | None = Field(description="Time in which it answered.")
    schema_version: int | None
    program_schema_version: int = Field(description="The version of this program's own schema.")
    refused_write: str | None = Field(description="Why it lately had no room for a write.")
    oldest_id_age: int | None = Field(
        None,
        description="Transactions since the oldest transaction id that is still in use. Postgres "
        "takes no change any more shortly before 2147483648.",
    )
    sorts_otherwise: bool | None = Field(
        None,
        description="Whether the server's library has another version than when the indexes were "
        "made, and may sort texts otherwise.",
    )


class LeadStatus(Document):
    """A process that plans the tasks led here."""

    owner: str = Field(description="HOST:PID; its name in leases.")
    state: LeadState
    version: str | None
    started_at: Instant | None
    seen_at: Instant
    heartbeat_age: Duration = Field(description="Time since its last sign of life.")
    workers: int | None = Field(description="How many tasks it plans at once.")
    leases: int = Field(description="Tasks that it plans now.")
    oldest_lease_age: Duration | None = Field(
        description="How long ago it took the oldest of its leases. It is taken over once that is "
        "longer than a lease lasts (PARLEY_LEASE)."
    )
    takeovers: int = Field(description="Tasks that it took over from others that fell silent.")
    took_over_at: Instant | None


class PlanningStatus(Document):
    """The planning of the tasks led here."""

    due_tasks: int = Field(description="Tasks that are due to be planned, and are not yet.")
    oldest_due: Duration = Field(description="Time for which the first of them has waited.")
    waiting_for_nodes: int = Field(description="Tasks that wait for a node that does not answer.")
    planned_at: Instant | None = Field(description="When a task was planned last.")
    plan_age: Duration | None = Field(description="The time since then.")


class PeerAway(Document):
    """A known node that does not answer, or does not know this one."""

    name: NodeName
    since: Instant | None
    reason: str | None


class BacklogStatus(Document):
    """The messages and results that wait to be sent."""

    messages: int = Field(description="Messages to other nodes, not yet acknowledged.")
    results_waiting: int = Field(description="Results to be delivered to archives.")
    results_parked: int = Field(
        description="Results that were refused, which are delivered only when told to, and"
        " those given up after a day, which are delivered once their destination accepts anything."
    )


class RunsStatus(Document):
    """The runs of this node, now and next."""

    running: int
    next_start: Instant | None


class DiskStatus(Document):
    """The disk of the state directory."""

    directory: str
    free_bytes: int
    total_bytes: int


class BackupStatus(Document):
    """The backups that the node makes by itself."""

    wanted: bool = Field(description="Whether it makes any (PARLEY_BACKUP_DIRECTORY).")
    latest_at: Instant | None
    fault: str | None = Field(description="Why the last attempt failed.")


class LoadStatus(Document):
    """The load of the host."""

    processors: int
    one_minute: float = Field(description="Processes that ran or waited to, on average.")


_UNREAD = "Null if the database does not answer for it; `attention` says why."


class NodeStatus(Document):
    """The answer to how a node is."""

    name: NodeName
    identity: Identity
    url: str | None
    version: str
    started_at: Instant
    clock: ClockState
    database: DatabaseStatus
    leads: tuple[LeadStatus, ...] | None = Field(description=_UNREAD)
    planning: PlanningStatus | None = Field(description=_UNREAD)
    runs: RunsStatus | None = Field(description=_UNREAD)
    outcomes: OutcomesStatus | None = Field(
        None, description="The newest outcomes of the tasks led here; null if they cannot be read."
    )
    peers: int = Field(description="Known nodes besides this one.")
    peers_away: tuple[PeerAway, ...]
    backlog: BacklogStatus | None = Field(description=_UNREAD)
    disk: DiskStatus
    load: LoadStatus
    backup: BackupStatus
    attention: tuple[Attention, ...] = Field(
        description="What needs attention; nothing if the node is well."
    )


class Health(Document):
    """The answer of a process that runs."""

    status: Literal["ok"] = "ok"


class Ready(Document):
    """The answer of a node that can work."""

    status: Literal["ready"] = "ready"
    warnings: tuple[str, ...] = Field((), description="What will keep it from working later.")
