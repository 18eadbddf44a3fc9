"""The history of a simulated world: which node measured what, and how every slot ended.

The tables of the nodes drop old rows; the history keeps them. Runs are checked against each other
when they begin, by the times that were booked for them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from node.model import times
from node.model.classes import SchedulingClass, blockers
from node.model.ids import TaskId, run_id
from node.model.runstate import RunState
from node.store.runs import DueRun

_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)?")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NODE = re.compile(r"\bn\d+\b")
_NUMBER = re.compile(r"-?\b\d+(?:\.\d+)?\b")


@dataclass(frozen=True)
class ExecutedPart:
    """A part of a run that is being measured, with the time booked for it."""

    run: UUID
    scheduling_class: SchedulingClass
    starts_at: int
    ends_at: int


@dataclass(frozen=True)
class EndedRun:
    """A run that is over at its lead; it takes ``seats`` seats of its campaign."""

    id: UUID
    task_id: UUID
    slot: int
    attempt: int
    state: str
    starts_at: int
    ends_at: int
    reason: str | None
    campaign: str
    seats: int


Unhappy = tuple[int, str, str]
"""The outcome of a slot without a result: the attempt, its state, and the reason."""


@dataclass
class History:
    """The record of a simulation, filled while it runs. Times are in microseconds.

    ``begins_at`` is the beginning of the simulated days; figures over time are counted by
    ``period``.
    """

    begins_at: int = 0
    period: int = times.HOUR
    violations: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    slots: dict[UUID, dict[int, int | Unhappy]] = field(default_factory=lambda: defaultdict(dict))
    """By task and slot: the attempt that finished, or the outcome of the last one that did not."""
    parties: dict[UUID, Sequence[str]] = field(default_factory=dict)
    """The participants (identities) of tasks that their leads may have forgotten since."""
    finished: dict[UUID, str] = field(default_factory=dict)
    """Finished tasks, as JSON, that their leads may have deleted since."""
    restored: list[tuple[str, int, int]] = field(default_factory=list)
    """By node, the true times from which to which its database went back."""
    stepped: list[tuple[str, int, int, int]] = field(default_factory=list)
    """By node, the times that a far wrong clock told first and last, and the true time then."""
    troubles: list[tuple[str, str, int, int]] = field(default_factory=list)
    """By two nodes, or one twice, the true times between which they could not hear each other."""
    repaired: int = 0
    measured: Counter[str] = field(default_factory=Counter)
    """By campaign: the seat time of delivered runs that were due at or after ``counts_from``."""
    measured_by_lead: Counter[str] = field(default_factory=Counter)
    """The same by the name of the lead."""
    counts_from: int = 0
    displaced: dict[UUID, tuple[UUID, int]] = field(default_factory=dict)
    waits: Counter[int] = field(default_factory=Counter)
    """The number of finished runs by whole seconds from their nominal to their actual start."""
    occupied: dict[str, Counter[tuple[int, str]]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    """By node: the time each scheduling class was measured there in each period."""
    _now: dict[str, dict[UUID, ExecutedPart]] = field(default_factory=lambda: defaultdict(dict))

    def record_violation(self, what: str) -> None:
        """Record a violated invariant; the same text is recorded once."""
        if what not in self.violations:
            self.violations.append(what)

    def begins(self, node: str, run: DueRun, scheduling_class: SchedulingClass) -> None:
        """Record that a node begins to measure; a forbidden overlap is a violation."""
        begun = ExecutedPart(run.id, scheduling_class, run.starts_at, run.ends_at)
        for other in self._now[node].values():
            overlaps = other.starts_at < begun.ends_at and begun.starts_at < other.ends_at
            if overlaps and other.scheduling_class in blockers(scheduling_class):
                self.record_violation(f"{node} measures {run.id} and {other.run} at the same time")
        self._now[node][run.id] = begun

    def ends(self, node: str, run: DueRun, measured: int) -> None:
        """Record that a run ended or was interrupted after ``measured`` microseconds."""
        begun = self._now[node].pop(run.id, None)
        if begun is not None:
            self._occupy(self.occupied[node], begun, measured)

    def _occupy(
        self, occupied: Counter[tuple[int, str]], begun: ExecutedPart, measured: int
    ) -> None:
        start = begun.starts_at - self.begins_at
        end = start + measured
        while start < end:
            number = start // self.period
            until = min(end, (number + 1) * self.period)
            occupied[number, str(begun.scheduling_class)] += until - start
            start = until

    def forget_crashed_runs(self, node: str) -> None:
        """Forget the runs that a crashed node was measuring."""
        self._now[node].clear()

    def over(self, run: EndedRun, lead: str) -> None:
        """Record the outcome of a run that has ended on its lead."""
        slots = self.slots[run.task_id]
        known = slots.get(run.slot)
        if run.id != run_id(TaskId(run.task_id), run.slot, run.attempt):
            self.record_violation(
                f"run {run.id} has not the id that follows from its task and slot"
            )
        if run.state == RunState.DISPLACED:
            self.displaced[run.id] = (run.task_id, run.slot)
        if run.state == RunState.FINISHED:
            if isinstance(known, int) and known != run.attempt:
                self.record_violation(f"slot {run.slot} of task {run.task_id} was measured twice")
            if not isinstance(known, int):
                self.waits[(run.starts_at - run.slot) // times.SECOND] += 1
                if run.slot >= self.counts_from:
                    seat_time = (run.ends_at - run.starts_at) * run.seats
                    self.measured[run.campaign] += seat_time
                    self.measured_by_lead[lead] += seat_time
            slots[run.slot] = run.attempt
        elif known is None or (not isinstance(known, int) and known[0] <= run.attempt):
            slots[run.slot] = (run.attempt, run.state, run.reason or "")


def normalised_reason(reason: str) -> str:
    """Return a reason without what differs from run to run, so that equal ones can be counted."""
    for pattern, instead in ((_INSTANT, "…"), (_UUID, "…"), (_NODE, "N"), (_NUMBER, "…")):
        reason = pattern.sub(instead, reason)
    return reason
