"""The tables of one node, with their constraints and the indexes that make queries fast."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import count
from uuid import UUID

from lead.simulation.memory.exchangetable import ExchangeTable, NegotiationTable
from lead.simulation.memory.indexes import GroupedRows, OrderedRows
from lead.simulation.memory.journal import Journal, Table
from lead.simulation.memory.ledgertable import CampaignTable, ChargeHourTable, ChargeTable
from lead.simulation.memory.rows import (
    CampaignRow,
    ChargeRow,
    DecisionRow,
    GapRow,
    IdempotencyRow,
    LeadQuestionRow,
    LeadShareRow,
    NodeRow,
    OutboxRow,
    PartRow,
    ReservationRow,
    ReservedSpanRow,
    RunRow,
    TermRow,
    unpack,
)
from lead.simulation.memory.runtable import RunTable
from lead.simulation.memory.seattable import (
    PolicyStateTable,
    PoolTable,
    PoolTaskTable,
    SeatTable,
    TermTable,
)
from lead.simulation.memory.tasktable import PlanningTable, TaskTable
from node.model import times
from node.model.classes import SchedulingClass
from node.model.reservations import Applicant, access_of, admits
from node.store.database import BrokenCheck, BrokenKey, BrokenReference

_MEASURED = frozenset({"finished", "failed", "cancelled"})
_FREED_MIN = 10 * times.SECOND
"""States of runs that took time until they ended; the others took none."""


class NodeTable(Table[str, NodeRow]):
    """The known nodes; ``itself`` is this one."""

    def __init__(self, journal: Journal) -> None:
        """Create an empty table."""
        super().__init__(journal)
        self.itself: NodeRow | None = None
        self._named: dict[str, NodeRow] = {}

    def key(self, row: NodeRow) -> str:
        """Return the identity."""
        return row.identity

    def _check(self, row: NodeRow) -> None:
        if row.name in self._named or (row.is_self and self.itself is not None):
            msg = f"a node {row.name}, or this node, exists already"
            raise BrokenKey(msg)

    def _enter(self, row: NodeRow) -> None:
        self._named[row.name] = row
        if row.is_self:
            self.itself = row

    def _leave(self, row: NodeRow) -> None:
        del self._named[row.name]
        if row.is_self:
            self.itself = None


class LeadShareTable(Table[str, LeadShareRow]):
    """The shares of leads."""

    def key(self, row: LeadShareRow) -> str:
        """Return the lead."""
        return row.lead

    def _check(self, row: LeadShareRow) -> None:
        if row.share < 0:
            msg = "a share must not be negative"
            raise BrokenCheck(msg)


class LeadQuestionTable(Table[tuple[str, int], LeadQuestionRow]):
    """The last questions of each lead, by hour."""

    def key(self, row: LeadQuestionRow) -> tuple[str, int]:
        """Return the lead and the hour."""
        return row.lead, row.hour


class IdempotencyTable(Table[str, IdempotencyRow]):
    """The POSTs that were served."""

    def key(self, row: IdempotencyRow) -> str:
        """Return the idempotency key."""
        return row.key


class PartTable(Table[tuple[UUID, int], PartRow]):
    """The results of the participants."""

    def __init__(self, journal: Journal, runs: RunTable) -> None:
        """Create an empty table; parts belong to runs."""
        super().__init__(journal)
        self._runs = runs
        self.by_run: GroupedRows[UUID, PartRow] = GroupedRows()

    def key(self, row: PartRow) -> tuple[UUID, int]:
        """Return the run and the participant."""
        return row.run_id, row.participant

    def check_values(self, row: PartRow) -> None:
        """Check that a part has a result or a reason; like Postgres even if the part exists."""
        if (row.result is None) == (row.reason is None):
            msg = "a part has either a result or a reason"
            raise BrokenCheck(msg)

    def _check(self, row: PartRow) -> None:
        if row.run_id not in self._runs.rows:
            msg = f"there is no run {row.run_id}"
            raise BrokenReference(msg)

    def _enter(self, row: PartRow) -> None:
        self.by_run.add(row.run_id, row)

    def _leave(self, row: PartRow) -> None:
        self.by_run.remove(row.run_id, row)


class GapTable(Table[UUID, GapRow]):
    """The gaps of tasks, which do not overlap."""

    def __init__(self, journal: Journal, tasks: TaskTable) -> None:
        """Create an empty table; gaps belong to tasks."""
        super().__init__(journal)
        self._tasks = tasks
        self.by_task: GroupedRows[UUID, GapRow] = GroupedRows()

    def key(self, row: GapRow) -> UUID:
        """Return the id."""
        return row.id

    def offer(self, row: GapRow) -> bool:
        """Insert a gap unless its id or one of its slots is taken: ``ON CONFLICT DO NOTHING``."""
        if row.slots <= 0 or row.first_slot > row.last_slot:
            msg = "a gap has slots, from the first to the last one"
            raise BrokenCheck(msg)
        if row.id in self.rows or any(
            gap.first_slot <= row.last_slot and gap.last_slot >= row.first_slot
            for gap in self.by_task.of(row.task_id)
        ):
            return False
        self.insert(row)
        return True

    def _check(self, row: GapRow) -> None:
        if row.task_id not in self._tasks.rows:
            msg = f"there is no task {row.task_id}"
            raise BrokenReference(msg)

    def _enter(self, row: GapRow) -> None:
        self.by_task.add(row.task_id, row)

    def _leave(self, row: GapRow) -> None:
        self.by_task.remove(row.task_id, row)


class DecisionTable(Table[int, DecisionRow]):
    """The planning attempts."""

    def __init__(self, journal: Journal, tasks: TaskTable) -> None:
        """Create an empty table."""
        super().__init__(journal)
        self._tasks = tasks
        self.ids = count(1)
        self.by_task: GroupedRows[UUID, DecisionRow] = GroupedRows()
        self._over: list[tuple[int, int, DecisionRow]] = []

    def key(self, row: DecisionRow) -> int:
        """Return the number."""
        return row.id

    def over_before(self, instant: int) -> Iterator[DecisionRow]:
        """Yield decisions about nothing later, each once: the caller must delete or keep them."""
        while self._over and self._over[0][0] < instant:
            at, _, row = heappop(self._over)
            if self.rows.get(row.id) is row and at == _over(row):
                yield row

    def keep(self, row: DecisionRow) -> None:
        """Let :meth:`over_before` yield the decision again."""
        heappush(self._over, (_over(row), row.number, row))

    def _check(self, row: DecisionRow) -> None:
        if row.task_id not in self._tasks.rows:
            msg = f"there is no task {row.task_id}"
            raise BrokenReference(msg)

    def _enter(self, row: DecisionRow) -> None:
        self.by_task.add(row.task_id, row)
        self.keep(row)

    def _leave(self, row: DecisionRow) -> None:
        self.by_task.remove(row.task_id, row)


def _over(row: DecisionRow) -> int:
    return row.decided_at if row.last_slot is None else max(row.decided_at, row.last_slot)


class OutboxTable(Table[int, OutboxRow]):
    """The outbox."""

    def __init__(self, journal: Journal) -> None:
        """Create an empty table."""
        super().__init__(journal)
        self.ids = count(1)
        self.due: OrderedRows[OutboxRow] = OrderedRows()
        self.commits: GroupedRows[str, OutboxRow] = GroupedRows()
        """The commit messages by exchange."""

    def key(self, row: OutboxRow) -> int:
        """Return the number."""
        return row.id

    def _enter(self, row: OutboxRow) -> None:
        self.due.add(row.next_at, row)
        if row.kind == "commit":
            self.commits.add(str(unpack(row.message)["exchange"]), row)

    def _leave(self, row: OutboxRow) -> None:
        self.due.remove(row.next_at, row)
        if row.kind == "commit":
            self.commits.remove(str(unpack(row.message)["exchange"]), row)


class ReservationTable(Table[UUID, ReservationRow]):
    """The reservations of time."""

    def __init__(self, journal: Journal, pools: PoolTable) -> None:
        """Create an empty table; a reservation is for the node or for one of the pools."""
        super().__init__(journal)
        self._pools = pools

    def key(self, row: ReservationRow) -> UUID:
        """Return the id."""
        return row.id

    def _check(self, row: ReservationRow) -> None:
        if row.duration <= 0:
            msg = "the duration of a reservation must be positive"
            raise BrokenCheck(msg)
        if row.pool is not None and row.pool not in self._pools.named:
            msg = f"there is no pool {row.pool}"
            raise BrokenReference(msg)


class ReservedSpanTable(Table[tuple[UUID, int], ReservedSpanRow]):
    """The spans of the reservations; there are only few at any time."""

    def __init__(self, journal: Journal, reservations: ReservationTable) -> None:
        """Create an empty table; spans belong to reservations."""
        super().__init__(journal)
        self._reservations = reservations

    def key(self, row: ReservedSpanRow) -> tuple[UUID, int]:
        """Return the reservation and the start."""
        return row.reservation_id, row.starts_at

    def of(self, reservation: UUID) -> list[ReservedSpanRow]:
        """Return the spans of one reservation."""
        return [row for row in self.rows.values() if row.reservation_id == reservation]

    def touching(self, start: int, end: int) -> list[ReservedSpanRow]:
        """Return the spans that overlap [start, end); none if that is empty."""
        rows = self.rows.values() if start < end else ()
        return [row for row in rows if row.starts_at < end and start < row.ends_at]

    def offer(self, row: ReservedSpanRow) -> None:
        """Insert a span unless it exists: ``ON CONFLICT DO NOTHING``."""
        if self.key(row) not in self.rows:
            self.insert(row)
            self._journal.tell("reserved")

    def delete(self, row: ReservedSpanRow) -> None:
        """Delete a span and notify that its time is free."""
        self._journal.tell(f"freed {row.starts_at} {row.ends_at}")
        self._journal.tell("reserved")
        super().delete(row)

    def _check(self, row: ReservedSpanRow) -> None:
        if row.starts_at >= row.ends_at:
            msg = "a span must end after its start"
            raise BrokenCheck(msg)
        if row.reservation_id not in self._reservations.rows:
            msg = f"there is no reservation {row.reservation_id}"
            raise BrokenReference(msg)


class Tables:
    """All tables of one node, and the journal of the transaction that changes them."""

    def __init__(self) -> None:
        """Create the tables as after setting up a node."""
        self.journal = journal = Journal()
        self.nodes = NodeTable(journal)
        self.lead_shares = LeadShareTable(journal)
        self.lead_questions = LeadQuestionTable(journal)
        self.idempotencies = IdempotencyTable(journal)
        self.campaigns = CampaignTable(journal)
        self.charge_hours = ChargeHourTable(journal)
        self.charges = ChargeTable(journal, self.charge_hours)
        self.plannings = PlanningTable(journal)
        self.tasks = TaskTable(journal, self.plannings)
        self.plannings.belong_to(self.tasks.rows)
        self.negotiations = NegotiationTable(journal, self.tasks)
        self.exchanges = ExchangeTable(journal, self.tasks)
        self.runs = RunTable(journal, self.tasks, self.exchanges, self._give_back, self._tell_room)
        self.parts = PartTable(journal, self.runs)
        self.gaps = GapTable(journal, self.tasks)
        self.decisions = DecisionTable(journal, self.tasks)
        self.pools = PoolTable(journal)
        self.pool_tasks = PoolTaskTable(journal, self.tasks)
        self.terms = TermTable(journal, self.pool_tasks)
        self.seats = SeatTable(journal, self.tasks, self.terms)
        self.policy_states = PolicyStateTable(journal)
        self.outbox = OutboxTable(journal)
        self.reservations = ReservationTable(journal, self.pools)
        self.reserved = ReservedSpanTable(journal, self.reservations)
        journal.commit()

    def delete_reservation(self, row: ReservationRow) -> None:
        """Delete a reservation and its spans."""
        for span in self.reserved.of(row.id):
            self.reserved.delete(span)
        self.reservations.delete(row)

    def closed_to(self, run: RunRow) -> bool:
        """Return whether a reservation covers time of a run and does not admit the run."""
        reservations = self.reservations.rows
        touching = self.reserved.touching(run.starts_at, run.ends_at)
        relevant = [span for span in touching if reservations[span.reservation_id].pool is None]
        task = self.tasks.rows.get(run.task_id)
        if not relevant or task is None:
            return False
        applicant = self._applicant(run, task.id)
        lists = (access_of(unpack(reservations[span.reservation_id].access)) for span in relevant)
        return not all(admits(access, applicant) for access in lists)

    def turned_away(self, reservation: ReservationRow, run: RunRow) -> bool:
        """Return whether a reservation is about this run, of the node or its pool, and refuses it.

        The runs of a pool's seats are judged as those of the pool task.
        """
        task = self.tasks.rows[run.task_id]
        if reservation.pool is None:
            concerned, judged = run.participant is not None, task.id
        else:
            whole = self.pool_tasks.rows.get(task.parent) if task.parent else None
            concerned = whole is not None and (
                self.pools.rows[whole.pool_id].name == reservation.pool
            )
            judged = task.parent or task.id
        access = access_of(unpack(reservation.access))
        return concerned and not admits(access, self._applicant(run, judged))

    def _applicant(self, run: RunRow, task_id: UUID) -> Applicant:
        """Return a run as reservations judge it, in the name of a task."""
        task = self.tasks.rows[run.task_id]
        return Applicant(
            task_id,
            task.lead,
            self.led_here(run.task_id),
            task.campaign,
            task.test,
            SchedulingClass(run.scheduling_class),
            run.priority,
            task.parent or task.pool_task,
        )

    def _give_back(self, run: RunRow, was: str, starts_at: int, ends_at: int) -> None:
        """Correct the charges of a run that has ended or was dropped: its time, and its bytes."""
        for campaign, participant, node, weight, octets in self.charges.standing(
            run.id, starts_at, ends_at, ("booked", "moved")
        ):
            used_to, part = starts_at, None
            if run.state in _MEASURED:
                part = self.parts.rows.get((run.id, participant))
                ended = run.changed_at if run.finished_at is None else run.finished_at
                if part is not None and part.finished_at is not None:
                    ended = part.finished_at
                used_to = max(starts_at, ended)
            measured = None if part is None else part.moved_bytes
            if measured is not None:
                moved = measured
            elif run.state == "finished":
                moved = octets
            else:
                moved = octets * (min(used_to, ends_at) - starts_at) // (ends_at - starts_at)
            cause = "unused" if measured is None else "measured"
            for since, seats, more, why in (
                (used_to, 0 if was == "failed" else -weight, 0, "unused"),
                (starts_at, 0, moved - octets, cause),
            ):
                if since < ends_at and (seats or more):
                    values = (campaign, run.id, participant, node, since, ends_at, seats, more)
                    number = next(self.charges.ids)
                    self.charges.insert(ChargeRow(number, *values, why, run.changed_at))

    def _tell_room(self, run: RunRow) -> None:
        """Notify of the highest limited campaign that has room again."""
        planning = self.plannings.rows.get(run.task_id)
        above = None if planning is None else planning.campaign_id
        holder: CampaignRow | None = None
        while above is not None:
            row = self.campaigns.rows[above]
            holder, above = row if row.is_limited else holder, row.parent_id
        if holder is not None:
            self.journal.tell(f"room {holder.name}")
        if planning is not None:
            self._tell_unbooked(run)

    def _tell_unbooked(self, run: RunRow) -> None:
        """Notify of the span that a run led here has freed, if seats are empty then."""
        start = max(run.starts_at, run.changed_at)
        if run.ends_at - start >= _FREED_MIN and any(
            (term.try_at or 0) > run.changed_at
            and term.tries > 0
            and term.starts_at < run.ends_at
            and term.over_at > start
            for term in self.terms.tried.values()
        ):
            self.journal.tell(f"unbooked {start} {run.ends_at}")

    def delete_run(self, run: RunRow) -> None:
        """Delete a run and its parts."""
        for part in self.parts.by_run.of(run.id):
            self.parts.delete(part)
        self.runs.delete(run)

    def delete_tasks(self, tasks: Iterable[UUID]) -> None:
        """Delete tasks, the tasks of their seats, and everything that belongs to them."""
        doomed: dict[UUID, None] = {}
        pending = list(tasks)
        while pending:
            if (task := pending.pop()) not in doomed:
                doomed[task] = None
                pending += [part.id for part in self.tasks.parts.of(task)]
        if not doomed:
            return
        for exchange in [row for row in self.exchanges.rows.values() if row.task_id in doomed]:
            for run in self.runs.by_exchange.of(exchange.id):
                self.delete_run(run)
            self.exchanges.delete(exchange)
        for task in doomed:
            self._delete_what_is_of(task)
        for task in doomed:
            self.tasks.delete(self.tasks.rows[task])

    def _delete_what_is_of(self, task: UUID) -> None:
        for run in self.runs.by_task.of(task):
            self.delete_run(run)
        for term in self.terms.of_task.of(task):
            self.delete_term(term)
        for seat in self.seats.of_part.of(task):
            self.seats.delete(seat)
        self._delete_planning(task)
        if (pool_task := self.pool_tasks.rows.get(task)) is not None:
            self.pool_tasks.delete(pool_task)

    def _delete_planning(self, task: UUID) -> None:
        for gap in self.gaps.by_task.of(task):
            self.gaps.delete(gap)
        for decision in self.decisions.by_task.of(task):
            self.decisions.delete(decision)
        for negotiation in self.negotiations.by_task.of(task):
            self.negotiations.delete(negotiation)
        if (agenda := self.plannings.rows.get(task)) is not None:
            self.plannings.delete(agenda)

    def delete_term(self, term: TermRow) -> None:
        """Delete a term and its seats."""
        for seat in self.seats.of_task.of(term.pool_task):
            if seat.term == term.starts_at:
                self.seats.delete(seat)
        self.terms.delete(term)

    def led_here(self, task: UUID) -> bool:
        """Return whether this node leads a task."""
        row = self.tasks.rows.get(task)
        leader = None if row is None else self.nodes.rows.get(row.lead)
        return leader is not None and leader.is_self

    def committed(self, exchange: UUID | None) -> bool:
        """Return whether the exchange exists and is committed."""
        row = None if exchange is None else self.exchanges.rows.get(exchange)
        return row is not None and row.state == "committed"

    def held(self, exchange: UUID | None) -> bool:
        """Return whether the exchange exists and is held."""
        return exchange in self.exchanges.held
