"""Nodes in one process: real ones, each with its own database, that call each other directly.

Calls replace HTTP, in the name of the caller. A wire between two nodes can be cut, and every call
on it can be watched or made to fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast
from uuid import UUID, uuid4

import aiohttp
import pytest

from lead.assembly.with_node import lead_functions, lead_of
from lead.exchange.workers import Workers, WorkerSettings
from lead.model.participants import ParticipantClient
from node.cli.services import connector
from node.client.peers import Peer, Peers
from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import ParleyError, PeerUnreachable, UnknownPeer
from node.model.host_limits.document import EVERYTHING
from node.model.ids import TaskId, exchange_id, run_id
from node.model.nodekinds import NodeKind
from node.model.wire.comparisons import NodeComparison
from node.model.wire.participants import (
    BookedRun,
    CommitAnswer,
    CommitRequest,
    ConfirmationAnswer,
    ConfirmationRequest,
    DecisionAnswer,
    Differences,
    DigestRequest,
    FreedTime,
    HoldAnswer,
    HoldRequest,
    IntervalsMessage,
    Introduction,
    IntroductionAnswer,
    PartMessage,
    Proposal,
    ProposalRequest,
    Release,
    RunEnd,
    RunRequest,
    TaskEnd,
)
from node.model.wire.problems import peer_error_of, problem_of
from node.model.wire.shared_campaigns import CampaignUse, CampaignUseRequest
from node.model.wire.tasks import Participant as Listed
from node.model.wire.tasks import Schedule
from node.peers.foreign import AnyPeer
from node.peers.rivals import OwnProcess
from node.pscheduler.leading.hosts import pscheduler_hosts
from node.runtime.settings import Settings
from node.service import NodeDependencies, NodeService
from node.sharing.shared_campaigns import tell_use
from node.store import nodes, outbox, tasks
from node.store.core import Core
from node.store.database import Database
from node.store.outbox import MessageKind
from node.tasks.acceptance import stored_task
from node.timetable.booking import TimeLine
from node.timetable.local_participant import LocalParticipant
from node.trust.keys import NodeKey
from node.trust.signer import Signer
from tests.support.clocks import START, ManualClock
from tests.support.patience import PATIENCE_S

ON_ONE_LOOP = pytest.mark.asyncio(loop_scope="session")
"""For modules with tests that use a world, because its connections outlive a test."""

T = TypeVar("T")
Call = tuple[str, str, str]
"""Caller, receiver, and name of a call: ``("a", "b", "hold")``."""

EVERY_INSTANT = Schedule(start=START - times.DAY, repeat=1, slip=0)
"""The schedule of a task whose runs a test books itself, at any time, each in its own slot.

Its lead finds no slots of its own to plan, only those that come to wait.
"""
GENERATION = UUID("f0000000-0000-4000-8000-000000000000")
"""The generation of a lead's database, where a test holds in its place."""

HOLD_LIFE = 30 * times.SECOND
DURATION = 5 * times.MINUTE


class Wire:
    """A node as another one reaches it, without HTTP: the interface of :class:`Peer`."""

    def __init__(self, world: World, sender: Site, receiver: Site) -> None:
        """Make every call in the name of ``sender``."""
        self.identity = receiver.identity
        self.name = receiver.name
        self._world = world
        self._sender = sender
        self._lead = sender.identity
        self.binding = False
        self._receiver = receiver

    async def _call(self, what: str, action: Callable[[], Awaitable[T]]) -> T:
        call = (self._sender.name, self.name, what)
        try:
            await self._world.meet(call, "asked")
            if not self._receiver.node.directory.knows(self._sender.identity):
                raise UnknownPeer
            self._receiver.node.leases.note_contact(self._sender.identity)
            done = await action()
            await self._world.meet(call, "answered")
        except ParleyError as error:
            if self._receiver is self._sender:
                raise
            raise peer_error_of(problem_of(error), self.name) from error
        return done

    async def introduce(self, introduction: Introduction) -> IntroductionAnswer:
        """Call as over HTTP."""
        consent = self._receiver.node.acceptance
        return await self._call("introduce", lambda: consent.consider(self._lead, introduction))

    async def consider(self, introduction: Introduction) -> IntroductionAnswer:
        """Call as over HTTP."""
        judge = self._receiver.node.acceptance.judge
        return await self._call("consider", lambda: judge(self._lead, introduction))

    async def propose(self, request: ProposalRequest) -> Proposal:
        """Call as over HTTP."""
        interest, lead = self._receiver.node.freed_time, self._sender.identity
        return await self._call("propose", lambda: interest.propose(lead, request))

    async def hold(self, exchange: UUID, request: HoldRequest) -> HoldAnswer:
        """Call as over HTTP."""
        return await self._call("hold", lambda: self._time_line.hold(exchange, self._lead, request))

    async def commit(self, exchange: UUID, request: CommitRequest) -> CommitAnswer:
        """Call as over HTTP."""
        lead = self._sender.identity
        return await self._call("commit", lambda: self._time_line.commit(exchange, request, lead))

    async def release(self, exchange: UUID, release: Release) -> None:
        """Call as over HTTP."""
        await self._call("release", lambda: self._time_line.release(exchange, release, self._lead))

    async def decision(self, exchange: UUID) -> DecisionAnswer:
        """Call as over HTTP."""
        return await self._call("decision", lambda: self._time_line.decision(exchange, self._lead))

    async def booked_run(self, run: UUID) -> BookedRun:
        """Call as over HTTP."""
        agreement, sender = self._receiver.node.agreement, self._sender.identity
        return await self._call("booked_run", lambda: agreement.answer(sender, run))

    async def end_run(self, end: RunEnd) -> None:
        """Call as over HTTP."""
        ending = self._receiver.node.termination
        await self._call("end_run", lambda: ending.apply_run_end(self._sender.identity, end))

    async def end_task(self, end: TaskEnd) -> None:
        """Call as over HTTP."""
        ending = self._receiver.node.termination
        await self._call("end_task", lambda: ending.apply_task_end(self._sender.identity, end))

    async def confirm(self, request: ConfirmationRequest) -> ConfirmationAnswer:
        """Call as over HTTP."""
        answer, sender = self._receiver.node.confirmer.answer, self._sender.identity
        return await self._call("confirm", lambda: answer(sender, request))

    async def report_freed_time(self, message: FreedTime) -> None:
        """Call as over HTTP."""
        interest, sender = self._receiver.node.freed_time, self._sender.identity
        await self._call("freed", lambda: interest.plan_waiting_slots(sender, message))

    async def send_part(self, part: PartMessage) -> None:
        """Call as over HTTP."""
        collector = self._receiver.node.collector
        await self._call("send_part", lambda: collector.receive(self._sender.identity, part))

    async def send_intervals(self, told: IntervalsMessage) -> None:
        """Call as over HTTP."""
        collector = self._receiver.node.collector
        await self._call("tell", lambda: collector.receive_intervals(self._sender.identity, told))

    async def compare(self, request: DigestRequest) -> Differences:
        """Call as over HTTP."""
        node = self._receiver.node
        return await self._call("compare", lambda: node.compare_digests(self._lead, request))

    async def campaign_use(self, request: CampaignUseRequest) -> CampaignUse:
        """Call as over HTTP."""
        database, sender = self._receiver.node.database, self._sender.identity
        return await self._call("campaign_use", lambda: tell_use(database, sender, request))

    async def compare_with_sender(self) -> NodeComparison:
        """Call as over HTTP."""
        receiver, sender = self._receiver.node, self._sender.identity
        return await self._call("compare_with_sender", lambda: receiver.compare_for(sender))

    @property
    def _time_line(self) -> TimeLine:
        return self._receiver.node.time_line


class _InProcess(NodeService):
    """A node whose peers are reached by wires."""

    wires: dict[str, Wire]

    def peer(self, identity: str) -> AnyPeer:
        """Return a wire in place of a peer; a host that runs pScheduler is asked itself."""
        known = self.directory.by_identity(identity)
        if known.kind is not NodeKind.PARLEY:
            return super().peer(identity)
        return cast("Peer", self.wires[identity])


class Site:
    """A node and its lead, not started: a test calls what should happen."""

    def __init__(self, world: World, node: NodeService, clock: ManualClock) -> None:
        """Take the parts that :meth:`World.site` creates."""
        self.world = world
        self.clock = clock
        self.use(node)

    def use(self, node: NodeService) -> None:
        """Put a lead beside this node."""
        self.node = node
        self.name, self.identity = node.settings.name, node.card.identity
        self.database = node.database
        self.lead = lead_of(
            node, owner="worker", rng=random.Random(1), participant_of=self._participant
        )
        self.delivery, self.planner = self.lead.delivery, self.lead.planner
        self.reachability, self.workers = self.lead.reachability, self.lead.workers

    def _participant(self, identity: str) -> ParticipantClient:
        """Return any node over a wire, including this one, so that its calls can be watched."""
        if self.node.directory.by_identity(identity).kind is not NodeKind.PARLEY:
            return self.node.participant(identity)
        return cast("_InProcess", self.node).wires[identity]

    def new_workers(self, owner: str) -> Workers:
        """Return the worker pool of another process."""
        settings = self.node.settings
        return Workers(
            self.database,
            self.clock,
            self.planner,
            self.reachability,
            WorkerSettings(owner, settings.workers, settings.lease, settings.horizon),
            self.node.core.steps,
        )

    async def plan(self) -> None:
        """Claim what is due and plan it to the end."""
        await self.workers.run_once()
        await asyncio.gather(*self.workers._busy)

    async def deliver(self) -> None:
        """Deliver what is due in both outboxes, once."""
        await self.node.outbox.run_once()
        await self.lead.outbox.run_once()

    async def tend(self) -> None:
        """Do what housekeeping does every second or two."""
        await self.node.holds.run_once()
        await self.node._end_overdue()
        await self.node.termination.finish_followers()

    async def rows(self, query: str, *values: Any) -> list[Any]:
        """Return the rows of a query."""
        async with self.database.connection() as connection:
            return list(await connection.fetch(query, *values))

    async def execute(self, query: str, *values: Any) -> None:
        """Execute a statement of the test."""
        async with self.database.connection() as connection:
            await connection.execute(query, *values)

    async def states(self) -> dict[UUID, str]:
        """Return the state of every run here, as shown to people."""
        rows = await self.rows("SELECT run_id, state FROM run_known ORDER BY starts_at")
        return {row["run_id"]: row["state"] for row in rows}

    async def state(self, run: UUID) -> str | None:
        """Return the state of one run, as shown to people; None if it is unknown here."""
        return (await self.states()).get(run)

    async def reason(self, run: UUID) -> str | None:
        """Return the reason of one run."""
        rows = await self.rows("SELECT reason FROM run WHERE id = $1", run)
        return str(rows[0][0]) if rows and rows[0][0] is not None else None

    async def outbox_messages(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Return the messages in the outbox: node, kind, body."""
        rows = await self.rows("SELECT node, kind, message FROM outbox ORDER BY id")
        return [(row[0], row[1], row[2]) for row in rows]

    async def keep(self, introduction: Introduction, lead: Site) -> None:
        """Make a task known here, as its lead or as its participant."""
        places = [p.node for p in introduction.participants]
        place = places.index(self.identity) if self.identity in places else None
        made = stored_task(introduction.model_copy(update={"participant": place}), lead.identity)
        async with self.database.transaction() as connection:
            assert await tasks.keep(connection, made)
            if lead is self:
                nominal = introduction.schedule.start or introduction.created_at
                if introduction.schedule == EVERY_INSTANT:
                    nominal = times.LATEST - 1
                first = tasks.FirstPlanning(nominal, self.clock.now())
                await tasks.open_planning(connection, {made.id: first})


class World:
    """Some nodes that know each other."""

    def __init__(
        self, lend: Callable[[int], Awaitable[Database]], clock: ManualClock, directory: Path
    ) -> None:
        """Give all nodes one clock, unless a site has its own."""
        self.clock = clock
        self.sites: list[Site] = []
        self.calls: list[Call] = []
        self.cut: set[frozenset[str]] = set()
        self.watch: Callable[[Call, str], Awaitable[None]] | None = None
        self._lend = lend
        self._directory = directory
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Enter without nodes."""
        self._session = await self._stack.enter_async_context(
            aiohttp.ClientSession(connector=connector())
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close and return everything."""
        await self._stack.aclose()

    async def site(
        self, name: str, clock: ManualClock | None = None, *, connections: int = 10, **options: Any
    ) -> Site:
        """Add a node that knows the others and is known to them. ``options`` are settings."""
        clock = clock or self.clock
        settings = Settings(name=name, state_dir=self._directory / name, **options)
        database, key = await self._lend(connections), NodeKey.generate()
        signer = Signer(key, clock.now)
        peers = Peers(self._session, signer, PATIENCE_S)
        node = _InProcess(
            Core(database, clock, key.identity, settings, signer),
            NodeDependencies(
                peers,
                lead_functions(),
                limits=EVERYTHING,
                foreign=pscheduler_hosts(self._session),
            ),
        )
        self._stack.push_async_callback(node.tool_runner.close)
        node.capabilities.assume_all()
        node.wires = {}
        node.confirmer.process = OwnProcess.new(clock.monotonic())
        made = Site(self, node, clock)
        self.sites.append(made)
        await self._make_known()
        return made

    async def restart(self, site: Site) -> None:
        """Put a node together anew on its database, as a new process does; nothing is started."""
        before = cast("_InProcess", site.node)
        signer = before.core.signer
        core = Core(site.database, site.clock, site.identity, before.settings, signer)
        means = NodeDependencies(
            before.peers,
            lead_functions(),
            limits=EVERYTHING,
            foreign=pscheduler_hosts(self._session),
        )
        node = _InProcess(core, means)
        self._stack.push_async_callback(node.tool_runner.close)
        node.capabilities.assume_all()
        node.wires = before.wires
        node.confirmer.process = before.confirmer.process  # others forget it within a minute
        site.use(node)
        await node.directory.refresh()

    async def two(self) -> tuple[Site, Site]:
        """Return nodes a and b."""
        return await self.site("a"), await self.site("b")

    async def three(self) -> tuple[Site, Site, Site]:
        """Return nodes a, b, and c."""
        return await self.site("a"), await self.site("b"), await self.site("c")

    async def _make_known(self) -> None:
        for site in self.sites:
            async with site.database.transaction() as connection:
                await nodes.keep_self(connection, site.node.card, site.clock.now())
                for other in self.sites:
                    if other is not site:
                        await nodes.keep(connection, other.node.card, site.clock.now())
            await site.node.directory.refresh()
            wires = {other.identity: Wire(self, site, other) for other in self.sites}
            cast("_InProcess", site.node).wires = wires

    async def meet(self, call: Call, phase: str) -> None:
        """Let a call, or its answer, pass a wire."""
        if phase == "asked":
            self.calls.append(call)
        if self.watch is not None:
            await self.watch(call, phase)
        if frozenset(call[:2]) in self.cut:
            msg = f"{call[1]} cannot be reached: the wire is cut"
            raise PeerUnreachable(msg)

    def count(self, what: str) -> int:
        """Return the number of calls of this name over wires."""
        return sum(call[2] == what for call in self.calls)

    async def settle(self) -> None:
        """Deliver until nobody has anything due to deliver."""
        while await self._due():
            for site in self.sites:
                await site.deliver()

    async def _due(self) -> bool:
        for site in self.sites:
            async with site.database.connection() as connection:
                due_at = await outbox.next_due_at(connection, list(MessageKind), ())
            if due_at is not None and due_at <= site.clock.now():
                return True
        return False

    async def pass_time(self, duration: int, step: int = 2 * times.SECOND) -> None:
        """Let time pass in steps; all nodes plan, deliver, and do housekeeping meanwhile."""
        end = self.clock.now() + duration
        while self.clock.now() < end:
            self.clock.advance(min(step, end - self.clock.now()))
            for site in self.sites:
                await site.plan()
                await site.deliver()
                await site.tend()


def own(site: Site) -> LocalParticipant:
    """Return the node as a participant of the tasks it leads."""
    return site.node.local_participant


def introduction(
    participants: Sequence[Site], *, accepted: bool | None = True, **options: Any
) -> Introduction:
    """Return an idle task of these participants, which have accepted it by default."""
    listed = [
        Listed(
            node=p.identity,
            name=p.name,
            url=p.node.card.url,
            address=p.node.card.address,
            accepted=accepted,
            tools=("sleep",) if accepted else (),
        )
        for p in participants
    ]
    return introduce(listed, **options)


def introduce(
    participants: Sequence[Listed],
    *,
    scheduling_class: SchedulingClass = SchedulingClass.EXCLUSIVE,
    duration: int = DURATION,
    priority: int = 0,
    schedule: Schedule | None = None,
) -> Introduction:
    """Return an idle task of these participants, addressed to the first."""
    return Introduction(
        task=uuid4(),
        test="idle",
        spec={
            "duration": times.format_duration(duration),
            "class": scheduling_class.value,
            "participants": [p.name for p in participants],
        },
        tools=(),
        tool="sleep",
        scheduling_class=scheduling_class,
        duration=duration,
        priority=priority,
        participants=tuple(participants),
        participant=0,
        addresses={},
        schedule=schedule or EVERY_INSTANT,
        campaign=None,
        reference=None,
        created_at=START,
    )


def run_request(task: UUID, starts_at: int, ends_at: int, attempt: int = 1) -> RunRequest:
    """Return a run that starts at its nominal start."""
    return RunRequest(
        run=run_id(TaskId(task), starts_at, attempt),
        slot=starts_at,
        attempt=attempt,
        starts_at=starts_at,
        ends_at=ends_at,
    )


def hold_request(
    task: Introduction,
    starts: Sequence[int],
    *,
    epoch: int = 1,
    displacing: bool = False,
    life: int = HOLD_LIFE,
) -> HoldRequest:
    """Return a hold of runs of a task at these instants."""
    return HoldRequest(
        task=task.task,
        generation=GENERATION,
        lease_epoch=epoch,
        tool="sleep",
        priority=task.priority,
        life=life,
        runs=tuple(
            run_request(task.task, at, at + task.duration).model_copy(
                update={"displacing": displacing}
            )
            for at in starts
        ),
    )


def exchange_of(asked: Introduction | HoldRequest) -> UUID:
    """Return the exchange that a lead opens for this request, or first for this task."""
    epoch = asked.lease_epoch if isinstance(asked, HoldRequest) else 1
    return exchange_id(TaskId(asked.task), epoch)


def release_of(asked: Introduction | HoldRequest) -> Release:
    """Return the release of that exchange."""
    epoch = asked.lease_epoch if isinstance(asked, HoldRequest) else 1
    return Release(task=asked.task, lease_epoch=epoch)


async def hold_everywhere(lead: Site, participants: Sequence[Site], request: HoldRequest) -> UUID:
    """Hold these runs at all participants, as their lead does; return the exchange."""
    exchange = exchange_of(request)
    for site in participants:
        answered = await site.node.time_line.hold(exchange, lead.identity, request)
        assert len(answered.held) == len(request.runs)
    return exchange


async def book_everywhere(
    task: Introduction, lead: Site, participants: Sequence[Site], starts: Sequence[int]
) -> list[UUID]:
    """Commit runs of a task at its lead and all participants; return their ids in start order."""
    for site in {*participants, lead}:
        await site.keep(task, lead)
    request = hold_request(task, starts)
    exchange = await hold_everywhere(lead, participants, request)
    for site in participants:
        await site.node.time_line.commit(exchange, commit_request(request))
    return [run.run for run in request.runs]


def commit_request(request: HoldRequest, *, keep: int | None = None) -> CommitRequest:
    """Return a commit of the first runs of a hold, of all by default."""
    return CommitRequest(runs=tuple(run.run for run in request.runs[:keep]), data={})
