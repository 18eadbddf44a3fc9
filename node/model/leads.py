"""The processes that plan the tasks led on a node: which live, and which are missed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from node.model import times
from node.model.readiness import LEAD_SILENT

SHOWN_FOR = times.HOUR
"""Time for which a lead that is not heard any more is still told of."""


class LeadState(StrEnum):
    """The state of a lead."""

    PLANNING = "planning"
    STOPPED = "stopped"
    """It was told to stop."""
    REPLACED = "replaced"
    """It fell silent, and another one was started on its host since."""
    SILENT = "silent"


@dataclass(frozen=True)
class LeadProcess:
    """A lead, as it wrote last. Instants and durations are in microseconds."""

    owner: str
    seen_at: int
    started_at: int | None
    stopped_at: int | None
    version: str | None
    workers: int | None
    takeovers: int
    took_over_at: int | None
    leases: int
    first_lease_until: int | None

    @property
    def host(self) -> str:
        """The host on which it runs."""
        return self.owner.rpartition(":")[0]

    def age(self, now: int) -> int:
        """Return the time since its last sign of life."""
        return max(0, now - self.seen_at)

    def oldest_lease_age(self, now: int, lease: int) -> int | None:
        """Return how long ago it took the oldest of its leases; None if it has none.

        ``lease`` is how long a lease lasts.
        """
        if self.first_lease_until is None:
            return None
        return max(0, now - (self.first_lease_until - lease))


def state_of(process: LeadProcess, every: Iterable[LeadProcess], now: int) -> LeadState:
    """Return the state of one of the processes that are known."""
    if process.stopped_at is not None:
        return LeadState.STOPPED
    if process.age(now) < LEAD_SILENT:
        return LeadState.PLANNING
    replaced = any(
        other.host == process.host
        and other.started_at is not None
        and other.started_at > process.seen_at
        for other in every
    )
    return LeadState.REPLACED if replaced else LeadState.SILENT


def leads_shown(every: Sequence[LeadProcess], now: int) -> list[tuple[LeadProcess, LeadState]]:
    """Return those that plan, and those that were heard lately, with their states."""
    states = [(process, state_of(process, every, now)) for process in every]
    return [
        (process, state)
        for process, state in states
        if state is LeadState.PLANNING or process.age(now) < SHOWN_FOR or process.leases
    ]
