"""The reasons for which a node cannot work: its lead, its tasks, its disk."""

from __future__ import annotations

from dataclasses import dataclass

from node.model import times

LEAD_SILENT = 30 * times.SECOND
"""A lead gives a sign of life three times as often."""
DUE_MAX = 5 * times.MINUTE
"""A task is planned seconds after it is due; one that waits so long is not planned at all."""
FREE_BYTES_MIN = 32 << 20
"""Two segments of Postgres' log; with less it may stop at the next one."""
_MIB = 1 << 20


@dataclass(frozen=True)
class Readiness:
    """The facts, at the instant ``now``.

    ``lead_seen_at`` is when a lead was last heard, ``leads`` how many are, ``due_at`` since when
    the oldest due task has waited. ``free_bytes`` are left in ``directory``. ``refused_write`` is
    what the database said lately when it had no room, and ``damage`` when it was damaged or worn.
    """

    now: int
    lead_seen_at: int | None
    leads: int
    due_at: int | None
    directory: str
    free_bytes: int
    refused_write: str | None
    damage: str | None = None
    warnings: tuple[str, ...] = ()
    """Sentences on what the owner ought to look at although the node works."""
    clock_fault: str | None = None
    """The reason why nothing is begun yet: the host's clock is in doubt."""

    @property
    def due_for(self) -> int:
        """The time for which the oldest due task has waited."""
        return 0 if self.due_at is None else max(0, self.now - self.due_at)

    @property
    def faults(self) -> list[str]:
        """The sentences on what keeps the node from working; none if it is ready."""
        faults = [
            self.damage,
            self.clock_fault,
            self.lead_fault,
            self.due_fault,
            self.write_fault,
            self.room_fault,
        ]
        return [fault for fault in faults if fault is not None]

    @property
    def lead_fault(self) -> str | None:
        """The reason why nobody plans; None if somebody does, or nobody needs to."""
        if self.leads or self.clock_fault is not None:
            return None
        if self.lead_seen_at is not None:
            since = f"none has reported since {times.to_the_second(self.lead_seen_at)}"
        elif self.due_for > LEAD_SILENT:
            since = "none has ever reported here, and tasks wait"
        else:
            return None  # a node that only takes part needs none
        return f"no lead plans the tasks of this node: {since}; start parley-lead, or see its log"

    @property
    def due_fault(self) -> str | None:
        """The sentence on a task that nobody plans; None if there is none."""
        if self.due_for <= DUE_MAX or self.clock_fault is not None:
            return None
        waited = times.duration_text(self.due_for // times.SECOND * times.SECOND)
        return f"the oldest due task has waited {waited} to be planned; see the log of the lead"

    @property
    def write_fault(self) -> str | None:
        """The reason why the database took no write; None if it did."""
        if self.refused_write is None:
            return None
        return f"the database has no room: {self.refused_write}; make room on its disk"

    @property
    def room_fault(self) -> str | None:
        """The sentence on a disk that is too full; None if it is not."""
        if self.free_bytes >= FREE_BYTES_MIN:
            return None
        left = self.free_bytes / _MIB
        return f"only {left:.0f} MiB are free in {self.directory}; make room there"
