"""The things that need the attention of a node's owner, with the next commands. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from node.model import times
from node.model.leads import LeadState
from node.model.readiness import Readiness
from node.model.wire.nodes import ClockState
from node.model.wire.outcomes import OutcomesStatus
from node.model.wire.problems import unknown_to
from node.model.wire.status import (
    Attention,
    BacklogStatus,
    DatabaseStatus,
    LeadStatus,
    PeerAway,
)

SEE_LEAD = "journalctl -u parley-lead -n 50"
SEE_CAUSES = "parley run causes --from -1h"
SEE_NODE = "journalctl -u parley-node -n 50"

_HOST_KINDS = frozenset({"host", "from-host", "to-host", "tool-at-host"})

OLD_ID = 1_500_000_000
"""Postgres vacuums at 0.2 billion, hurries at 1.6, and takes no change any more before 2.15."""


@dataclass(frozen=True)
class Condition:
    """The facts of which some may need attention.

    ``lease`` is how long a lease lasts, ``error_limit`` the difference between clocks with which
    nodes still plan together, both in microseconds. ``unread`` has why the database did not answer
    for a part of the status, by the name of the part.
    """

    readiness: Readiness
    clock: ClockState
    database: DatabaseStatus
    leads: Sequence[LeadStatus]
    peers_away: Sequence[PeerAway]
    backlog: BacklogStatus | None
    lease: int
    error_limit: int
    unread: Mapping[str, str] = field(default_factory=dict)
    outcomes: OutcomesStatus | None = None


def attention(condition: Condition) -> list[Attention]:
    """Return what needs attention, the most urgent first."""
    return [
        *_unread_attention(condition.unread, condition.readiness.damage),
        *_readiness_attention(condition.readiness),
        *_database_attention(condition.database),
        *_lead_attention(condition.leads, condition.lease, condition.readiness.leads),
        *_outcome_attention(condition.outcomes),
        *(_peer_attention(peer) for peer in condition.peers_away),
        *_clock_attention(condition.clock, condition.error_limit),
        *_backlog_attention(condition.backlog),
        *(
            Attention(subject="node", what=text, command=SEE_NODE)
            for text in condition.readiness.warnings
        ),
    ]


def _unread_attention(unread: Mapping[str, str], damage: str | None) -> Iterator[Attention]:
    """Yield each reason once, with the parts that cannot be read for it."""
    reasons = dict.fromkeys([*unread.values(), *([] if damage is None else [damage])])
    for reason in reasons:
        parts = ", ".join(part for part, why in unread.items() if why == reason)
        what = f"{reason} (not read: {parts})" if parts else reason
        yield Attention(subject="database", what=what, command=SEE_NODE)


def _readiness_attention(facts: Readiness) -> Iterator[Attention]:
    for subject, what, command in (
        ("clock", facts.clock_fault, "timedatectl"),
        ("lead", facts.lead_fault, "systemctl start parley-lead"),
        ("planning", facts.due_fault, SEE_LEAD),
        ("database", facts.write_fault, f"df -h {facts.directory}"),
        ("disk", facts.room_fault, f"df -h {facts.directory}"),
    ):
        if what is not None:
            yield Attention(subject=subject, what=what, command=command)


def _database_attention(database: DatabaseStatus) -> Iterator[Attention]:
    own, there = database.program_schema_version, database.schema_version
    if (database.oldest_id_age or 0) > OLD_ID:
        yield Attention(
            subject="database",
            what=f"the oldest transaction id of the database's server is {database.oldest_id_age} "
            "transactions old: its autovacuum does not keep up, and before 2147483648 it takes no "
            "change any more. See what keeps old ids (prepared transactions, replication slots, "
            "sessions that are open for days), then vacuum every database of the server",
            command="vacuumdb --all --freeze",
        )
    if database.sorts_otherwise:
        yield Attention(
            subject="database",
            what="the library by which the database's server sorts texts was upgraded since its "
            "indexes were made, and by another order they miss rows: stop the services, and make "
            "the indexes anew",
            command="parley admin repair",
        )
    if there is not None and there > own:
        yield Attention(
            subject="schema",
            what=f"the database has schema version {there}, and this program's is {own}: it is "
            "older than the one that migrated",
            command="systemctl restart parley-node parley-lead",
        )


def _lead_attention(leads: Sequence[LeadStatus], lease: int, planning: int) -> Iterator[Attention]:
    """Yield what is wrong with leads, unless none of them plans, which is told already."""
    for lead in leads if planning else ():
        if lead.oldest_lease_age is not None and lead.oldest_lease_age > 2 * lease:
            yield Attention(
                subject="lead",
                what=f"nobody takes over {_count_of_tasks(lead.leases)} of the lead {lead.owner}, "
                "whose leases have run out",
                command=SEE_LEAD,
            )
        if lead.state is LeadState.SILENT:
            age = times.duration_text(lead.heartbeat_age // times.SECOND * times.SECOND)
            yield Attention(
                subject="lead",
                what=f"the lead {lead.owner} was not told to stop, and has not been heard for "
                f"{age}",
                command="systemctl status parley-lead",
            )


def _count_of_tasks(count: int) -> str:
    return f"{count} task{'' if count == 1 else 's'}"


def _clock_attention(clock: ClockState, limit: int) -> Iterator[Attention]:
    if clock.synchronised is False:
        yield Attention(
            subject="clock",
            what="the clock of this host is not synchronised; one-way delays cannot be trusted, "
            "and nodes whose clocks differ too much do not plan together",
            command="timedatectl timesync-status || chronyc tracking",
        )
    elif (clock.error_bound_ms or 0) * times.MILLISECOND > limit:
        yield Attention(
            subject="clock",
            what=f"the clock of this host may be wrong by {clock.error_bound_ms:g} ms",
            command="chronyc tracking || timedatectl timesync-status",
        )


def _outcome_attention(outcomes: OutcomesStatus | None) -> Iterator[Attention]:
    """Yield what fails: each common cause once, and the rest together."""
    if outcomes is None:
        return
    for cause in outcomes.causes:
        host = cause.names[-1] if cause.kind in _HOST_KINDS else None
        yield Attention(
            subject="outcomes",
            what=cause.sentence,
            command=SEE_CAUSES if host is None else f"parley doctor {host}",
        )
    if outcomes.apart:
        first, more = outcomes.apart[0], outcomes.apart_count - 1
        told = f"{first.headline}: {first.outcome.judgement}: {first.outcome.reason}"
        others = f", and {_count_of_tasks(more)} more with nothing in common" if more else ""
        yield Attention(subject="outcomes", what=told + others, command=SEE_CAUSES)


def _peer_attention(peer: PeerAway) -> Attention:
    command = f"parley doctor {peer.name}"
    if (peer.reason or "").startswith(unknown_to(peer.name)):
        return Attention(subject="nodes", what=str(peer.reason), command=command)
    since = "" if peer.since is None else f" since {times.to_the_second(peer.since)}"
    why = f": {peer.reason}" if peer.reason else ""
    return Attention(
        subject="nodes", what=f"{peer.name} does not answer{since}{why}", command=command
    )


def _backlog_attention(backlog: BacklogStatus | None) -> Iterator[Attention]:
    if backlog is not None and backlog.results_parked:
        yield Attention(
            subject="archives",
            what=f"{backlog.results_parked} results could not be delivered: those that were "
            "refused wait for you, the others for their destination",
            command="parley archive backlog",
        )
