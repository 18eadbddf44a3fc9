"""One node, put together: the services behind its API, and its background loops."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import structlog

from node.audit import AuditLog
from node.batching import Rereader
from node.bundles.making import BundleExporter
from node.capability.catalog import Capabilities
from node.certificates import ServerCertificates
from node.client.mailboxes import Mailboxes
from node.client.peers import Peer, Peers, via_own_node
from node.clock import Clock
from node.clock_steps import ClockStepHandler
from node.core import Core
from node.ended_runs import EndedRunRecorder
from node.events import EventHub
from node.execution.agreement import ParticipantAgreement
from node.execution.contexts import Contexts
from node.execution.launcher import Launcher
from node.execution.parts import PartCollector
from node.execution.port_probes import PortProbes
from node.execution.restores import PARTS_SENT_AGAIN_WITHIN, RestoreWatcher
from node.execution.targets import ForeignTargets
from node.execution.tool_runner import ToolRunner
from node.housekeeping import Housekeeper, PeriodicJob, api_jobs, node_jobs, participant_jobs
from node.local_participant import LocalParticipant
from node.model import times
from node.model.contexts import Context, offered
from node.model.errors import (
    HostError,
    NotFound,
    ParleyError,
    PeerError,
    UnknownToPeer,
)
from node.model.exchangestate import NegotiationState
from node.model.host_limits.rules import User
from node.model.naming import clash
from node.model.nodekinds import NodeKind
from node.model.outside_leads import is_outside
from node.model.shortfall import Shortfall
from node.model.wire.campaigns import Budget
from node.model.wire.comparisons import NodeComparison
from node.model.wire.nodes import NodeCard
from node.model.wire.participants import (
    CommitRequest,
    Differences,
    DigestRequest,
    IntervalsMessage,
    Introduction,
    IntroductionAnswer,
    PartMessage,
    RunEnd,
    TaskEnd,
)
from node.model.wire.plans import Plan, PlanRequest
from node.outbox import POLL_S, Outbox
from node.peers.announcer import Announcer
from node.peers.card import OwnCard
from node.peers.directory import Directory
from node.peers.directory_files import DirectoryFiles
from node.peers.foreign import AnyPeer, ForeignNodes
from node.peers.free_time import FreeTimeReader
from node.peers.host_states import HostStates
from node.peers.monitor import PeerMonitor
from node.peers.pull import WorkPuller
from node.peers.registration import PeerRegistrar
from node.plugins.contracts import ArchivingHost
from node.postgres.scheduled_backups import ScheduledBackups
from node.results.archives import Archives
from node.results.delivery import ResultDeliverer
from node.results.transforms import Transforms
from node.retention import Purger, rules_of, surplus_rules_of
from node.settings import Settings
from node.sharing.campaigns import Campaigns
from node.sharing.deliveries import Deliveries
from node.sharing.host_limits import LimitKeeper
from node.sharing.lead_shares import LeadSharing
from node.sharing.pools import JudgePolicy, Pools
from node.sharing.usage import UsageReader
from node.store import nodes
from node.store.bookings import HeldTask
from node.store.database import Notice, PostgresDatabase
from node.store.mark import MarkFile
from node.store.nodes import KnownNode
from node.store.outbox import Message, MessageKind
from node.tasks.acceptance import Acceptance
from node.tasks.admission import Admission
from node.tasks.comparison import CompareLed, NodeComparer
from node.tasks.confirmation import TaskConfirmer
from node.tasks.creation_gate import CreationGate
from node.tasks.drafting import TaskDrafter
from node.tasks.editing import TaskEditor
from node.tasks.leases import LeadLeases
from node.tasks.limit_trials import LimitTrials
from node.tasks.mesh_counts import MeshCounter
from node.tasks.node_removal import NodeRemover
from node.tasks.pool_editing import PoolTaskEditor
from node.tasks.pool_tasks import PoolTaskChecker
from node.tasks.termination import TaskTerminator
from node.tasks.user_limits import UserLimits
from node.timetable.booking import TimeLine
from node.timetable.expiry import HoldExpirer
from node.timetable.freed_time import FreedTimeNotifier
from node.timetable.reservations import Reservations
from node.timetable.what_if import ImpactEstimator
from node.trust.keys import NodeKey
from node.trust.private_files import prepare_directory
from node.trust.signatures import Verifier
from node.trust.signer import Signer
from node.users.request_rates import RequestRates
from node.users.tokens import AccessTokens
from node.webhooks import Webhooks

_MARK_STEP = 2 * times.MINUTE
"""More than the time between two marks, so that a mark that fell behind the clock catches up."""
_ANSWERED_AT_ONCE_S = 2.0
"""Time at the start in which the other nodes tell what they know better."""

_MESSAGES = (
    MessageKind.PART,
    MessageKind.INTERVALS,
    MessageKind.RUN_END,
    MessageKind.TASK_END,
    MessageKind.TASK_CHANGE,
)
"""The messages that the node delivers; its lead delivers the others."""

log = structlog.get_logger()

Preview = Callable[[PlanRequest, User | None], Awaitable[Plan]]
"""Previews a task document for a user; nothing is booked or stored by it."""


ReadBudgets = Callable[[], Awaitable[Mapping[str, tuple[Budget, ...]]]]
"""Returns by campaign what it uses of its limits and quotas; those without any are missing."""


@dataclass(frozen=True)
class LeadFunctions:
    """The functions of the lead that the API of a node needs.

    ``preview_of(node)`` returns the preview, ``budgets_of(node)`` what reads the use of campaigns'
    limits, and ``compare_of(node)`` what compares the tasks that it leads; the node is complete but
    for them.
    """

    preview_of: Callable[[NodeService], Preview]
    budgets_of: Callable[[NodeService], ReadBudgets]
    compare_of: Callable[[NodeService], CompareLed]
    judge_policy: JudgePolicy


@dataclass(frozen=True)
class NodeDependencies:
    """The parts of a node that are built elsewhere: its lead, and what simulations replace."""

    peers: Peers
    lead: LeadFunctions
    launcher: Callable[..., Launcher] = Launcher
    rng: random.Random = field(default_factory=random.Random)
    new_id: Callable[[], UUID] = uuid4
    poll_s: float = POLL_S
    mailboxes: Mailboxes | None = None
    certificates: ServerCertificates | None = None
    """The certificates shown to those who connect, if the process serves the API."""
    limits: str | None = None
    """The text of the owner's limits, if they are not in a file."""
    tools: socket.socket | None = None
    """The way to a runner of tools that runs already."""
    dsn: str | None = None
    """The address of the database, for backups of it."""
    foreign: Callable[[NodeService], ForeignNodes] | None = None
    """The way to nodes of another kind."""


class NodeService:
    """This host's node, built by :func:`assemble`."""

    stopping = False
    beside = False
    """Another process is the node's service; this one answers people and programs, not nodes."""

    def __init__(self, core: Core, dependencies: NodeDependencies) -> None:
        """Put the parts together; nothing runs before :meth:`start`."""
        self.core = core
        self.settings, self.clock, self.database = core.settings, core.clock, core.database
        self.started = core.clock.now()
        self._began = core.clock.monotonic()
        self.openapi: dict[str, Any] = {}
        self.certificates = dependencies.certificates
        self.backups = ScheduledBackups(core, dependencies.dsn)
        self.hub = EventHub(core.clock)
        self.ended_runs = EndedRunRecorder(core)
        self._housekeeper = Housekeeper(core.clock)
        self.clock_steps = ClockStepHandler(core)
        self._loops: list[asyncio.Task[None]] = []
        self.rereader = Rereader()
        self._build_users(core, dependencies)
        self._build_host(core, dependencies)
        self._build_peers(core, dependencies)
        self.limits = LimitKeeper(core, self.directory, self.capabilities, dependencies.limits)
        self._build_timetable(core, dependencies)
        self._build_sharing(core, dependencies)
        self._build_execution(core, dependencies)
        self._build_tasks(core, dependencies)
        self.outbox = Outbox(
            core.database,
            core.clock,
            _MESSAGES,
            self._deliver,
            core.instruments,
            poll_s=dependencies.poll_s,
        )
        self._build_webhooks(core, dependencies)
        self._listeners: list[Callable[[Notice], None]] = [
            self.hub.on_notice,
            self.ended_runs.on_notice,
            self.tokens.on_notice,
            self.launcher.on_notice,
            self.outbox.on_notice,
            self.webhook_outbox.on_notice,
            self.limits.on_notice,
            self.time_line.on_notice,
            self.freed_time.on_notice,
            self.work_puller.on_notice,
            self.result_delivery.on_notice,
        ]
        self.purger = Purger(core.database, core.clock, rules_of(core.settings))
        self.mesh_counter = MeshCounter(core.database)
        surplus = surplus_rules_of(core.settings)
        self.surplus_purger = Purger(core.database, core.clock, surplus)
        self.preview = dependencies.lead.preview_of(self)
        self.budgets = dependencies.lead.budgets_of(self)
        self.comparer = NodeComparer(
            core,
            self.directory,
            self.confirmer,
            dependencies.lead.compare_of(self),
            self.peer,
        )

    def _build_users(self, core: Core, dependencies: NodeDependencies) -> None:
        """Build what knows the users, and bounds and records what they do."""
        self.creation_gate = CreationGate(core.clock)
        self.audit = AuditLog(core)
        self.tokens = AccessTokens(core, dependencies.new_id)
        self.request_rates = RequestRates(core)

    def _build_webhooks(self, core: Core, dependencies: NodeDependencies) -> None:
        """Build what tells the owner's webhooks what is wrong."""
        self.webhooks = Webhooks(core, dependencies.new_id)
        self.webhook_outbox = Outbox(
            core.database,
            core.clock,
            (MessageKind.WEBHOOK,),
            self.webhooks.deliver,
            core.instruments,
            poll_s=dependencies.poll_s,
        )

    def _build_host(self, core: Core, dependencies: NodeDependencies) -> None:
        """Build what describes this host: its programs, contexts, and card."""
        self.capabilities = Capabilities()
        self.tool_runner = ToolRunner(core.settings, dependencies.tools)
        self.contexts = Contexts(core.settings.allowed_contexts)
        self.own_card = OwnCard(core, self.capabilities, self.contexts.addresses)

    def _build_peers(self, core: Core, dependencies: NodeDependencies) -> None:
        """Build what knows and reaches the other nodes."""
        self.directory = Directory(core.database)
        self.verifier = Verifier(core.identity, self._started_by_now, self.directory.knows)
        self.peers = dependencies.peers
        self.foreign = None if dependencies.foreign is None else dependencies.foreign(self)
        self.mailboxes = dependencies.mailboxes or Mailboxes(
            core.clock, core.settings.peer_timeout / times.SECOND
        )
        self.free_time = FreeTimeReader(core)
        self.work_puller = WorkPuller(
            core,
            self.directory,
            self.peers,
            dependencies.rng,
            lambda: self.card,
            self.free_time.read,
        )
        self.foreign_targets = ForeignTargets(
            core.settings,
            lambda: self.directory.all,
            self.contexts.addresses,
            lambda: self.limits,
        )
        self.announcer = Announcer(core, self.directory, self.peers)
        self.registration = PeerRegistrar(core, self.directory, self.peers, self.foreign)
        self.host_states = HostStates(core.clock, self.peer)
        self.peer_monitor = PeerMonitor(
            core,
            self.directory,
            self.peers,
            self.mailboxes,
            self.work_puller.fault,
            self._greet,
            self.host_states,
            self.foreign,
        )
        self.directory_files = DirectoryFiles(
            core, self.directory, self.registration, self.peer_monitor
        )

    def _build_timetable(self, core: Core, dependencies: NodeDependencies) -> None:
        """Build what books this node's own time, and the node as a participant."""
        self.time_line = TimeLine(
            core, self._needs_port, self._duration_with, dependencies.rng, self.limits
        )
        self.holds = HoldExpirer(core, self.time_line, self._ask_decision)
        self.freed_time = FreedTimeNotifier(core, self.time_line, self.peer)
        self.impacts = ImpactEstimator(core, self.limits)
        self.acceptance = Acceptance(
            core,
            self.capabilities,
            self._context_refusal,
            self.foreign_targets,
            self.limits,
            self.time_line.limits.refusal_of_edit,
            self.peer_monitor.read_card,
        )
        self.local_participant = LocalParticipant(
            core, self.time_line, self.freed_time, self.acceptance, self.impacts
        )

    def _build_sharing(self, core: Core, dependencies: NodeDependencies) -> None:
        """Build the campaigns and the pools."""
        self.campaigns = Campaigns(
            core.database,
            core.clock,
            self.capabilities.resources,
            lambda connection: self.pools.sizes(connection),  # noqa: PLW0108 - made below
        )
        self.lead_shares = LeadSharing(core, self.directory)
        self.usage = UsageReader(core.database, core.clock)
        self.deliveries = Deliveries(core, self.usage)
        self.pools = Pools(
            core.database, core.clock, self.directory, dependencies.lead.judge_policy
        )

    def _build_execution(self, core: Core, dependencies: NodeDependencies) -> None:
        """Build what ends runs early, executes them, and delivers their results."""
        self.termination = TaskTerminator(core)
        self.leases = LeadLeases(core, self.clock_steps.watcher, self.termination)
        self.node_removal = NodeRemover(core, self.directory, self.termination, self.peer)
        self.collector = PartCollector(core, self.capabilities)
        self.bundles = BundleExporter(core, self.capabilities)
        self.agreement = ParticipantAgreement(
            core, self.capabilities, self.foreign_targets, self.peer
        )
        self.restores = RestoreWatcher(core.database, core.clock)
        self.port_probes = PortProbes(core, dependencies.rng)
        self.launcher = dependencies.launcher(
            core,
            self.capabilities,
            self.collector,
            self.termination.lose_run,
            context_refusal=self.contexts.why_not,
            targets=self.foreign_targets,
            agreement=self.agreement,
            restores=self.restores,
            tool_runner=self.tool_runner,
            poll_s=dependencies.poll_s,
        )
        transforms = Transforms(self.tool_runner)
        host = ArchivingHost(core.settings.name, core.settings.archive_places, core.clock.now)
        self.result_delivery = ResultDeliverer(core, host, self.capabilities.metrics, transforms)
        self.archives = Archives(
            core.database, core.clock, host, transforms.fault_of, dependencies.new_id
        )

    def _build_tasks(self, core: Core, dependencies: NodeDependencies) -> None:
        """Build what admits and edits tasks, and the reservations."""
        self.pool_tasks = PoolTaskChecker(core.database, self.directory, self.capabilities)
        self.drafter = TaskDrafter(
            core,
            self.capabilities,
            self.campaigns,
            self.pool_tasks,
            self.directory,
            dependencies.new_id,
        )
        self.user_limits = UserLimits(core, self.limits, self.drafter)
        self.limit_trials = LimitTrials(
            self.limits,
            self.drafter,
            self.directory,
            self.capabilities,
            self.user_limits,
            self.foreign_targets,
        )
        self.admission = Admission(
            core,
            drafter=self.drafter,
            capabilities=self.capabilities,
            campaigns=self.campaigns,
            archives=self.archives,
            seating=self.pool_tasks,
            directory=self.directory,
            limits=self.limits,
            introduce=self._introduce,
            consider=self._consider,
        )
        pool_editing = PoolTaskEditor(
            core.database,
            self.admission,
            self.drafter,
            self.pool_tasks,
            self.directory,
            self.termination,
        )
        self.editing = TaskEditor(core, self.admission, self.archives, pool_editing, self.limits)
        self.confirmer = TaskConfirmer(
            core,
            self.directory,
            self.termination,
            self.peer,
            self.leases.note_contact,
            self.free_time.read,
            self.announcer,
        )
        self.reservations = Reservations(
            core, self.directory, self.termination, self.capabilities, dependencies.new_id
        )

    def _context_refusal(self, context: Context) -> str | None:
        """Return why this host cannot measure from a context, or None if it can.

        The process that measures wrote the card; this process may have fewer rights, so the card
        is asked first.
        """
        if str(context) in offered(self.directory.self.attributes):
            return None
        return self.contexts.why_not(context)

    @property
    def card(self) -> NodeCard:
        """The description of this node that others read."""
        return self.own_card.current

    def _needs_port(self, task: HeldTask, tool: str) -> int:
        return self.capabilities.needs_port(task.test, tool, task.spec, task.participant)

    def _duration_with(self, task: HeldTask, tool: str) -> int:
        return self.capabilities.duration_with(task.test, tool, task.spec)

    async def start(self) -> None:
        """Write this node's card and token, mark missed runs, and start the loops.

        Signatures are dated in whole seconds, and those from before the start are refused. So this
        waits until the second of the start has passed: otherwise the first request of a peer,
        dated within that second, would be refused.

        :raises HostError: the database belongs to another key, or a certificate cannot be used.
        """
        if self.certificates is not None:
            self.certificates.load()
        await self.clock.sleep_until((self.started // times.SECOND + 1) * times.SECOND)
        async with self.database.transaction() as connection:
            known = await nodes.own_identity(connection)
            if known not in (None, self.card.identity):
                msg = (
                    f"this database belongs to the node {known}, and the key in "
                    f"{self.settings.state_dir} is another; bring back the node.pem that it was "
                    "made with, or restore a backup with the key (parley admin restore "
                    "--replace FILE), or start with an empty database, as another node"
                )
                raise HostError(msg)
            if (reason := clash(self.card, await nodes.listed(connection))) is not None:
                msg = f"this node cannot be called {self.card.name}: {reason}"
                raise HostError(msg)
            await self.own_card.write(connection)
            await self._ensure_owner(connection)
        await self.repair_instants()
        await self.directory.refresh()
        await self.campaigns.refresh()
        await self.ask_others()
        await self.launcher.recover()
        await self.reservations.extend_spans()
        await self.limits.apply()
        await self.limits.tell_loaded()
        for kind, name, reason in self.capabilities.unusable:
            log.warning("a plugin cannot be used", kind=kind, name=name, reason=reason)
        self._loops = [
            asyncio.create_task(self.database.listen(self._heard, self.clock), name="listen"),
            asyncio.create_task(self.launcher.run(), name="launcher"),
            asyncio.create_task(self.outbox.run(), name="outbox"),
            asyncio.create_task(self.freed_time.run(), name="interest"),
            asyncio.create_task(self.audit.run(), name="audit"),
        ]
        if self.foreign is not None:
            self._loops.append(asyncio.create_task(self.foreign.run(), name="foreign nodes"))
        self._housekeeper.start(self._periodic_jobs())

    async def start_beside(self) -> None:
        """Start what the API for people needs, beside the node's own service.

        That service launches, delivers, keeps house, and answers the other nodes. What is done
        here reaches it, and what it does reaches this process, by notifications of the database.

        :raises HostError: a certificate cannot be used.
        """
        self.beside = True
        if self.certificates is not None:
            self.certificates.load()
        await self.directory.refresh()
        await self.campaigns.refresh()

        def on_notice(notice: Notice) -> None:
            self.hub.on_notice(notice)
            self.tokens.on_notice(notice)

        self._loops = [
            asyncio.create_task(self.listen(on_notice), name="listen"),
            asyncio.create_task(self.audit.run(), name="audit"),
        ]
        self._housekeeper.start(
            api_jobs(renew_certificates=self.renew_certificates, catch_up_audit=self.audit.catch_up)
        )

    async def prepare_tools(self) -> None:
        """Start what runs the tools, learn what they may do, and say what is not kept from them."""
        try:
            rights = await self.tool_runner.rights()
        except HostError as error:
            log.warning("no tool can run", reason=error.detail)
            return
        self.capabilities.run_with(rights.standing)
        weaker = rights.weaknesses(os.geteuid())
        if weaker:
            log.warning("tools are confined, but", account=rights.account, weaker="; ".join(weaker))
        else:
            log.info("tools are confined", account=rights.account)

    def _started_by_now(self) -> int:
        """Return when this service was started, by the clock as it is now (µs)."""
        return self.clock.now() - (self.clock.monotonic() - self._began)

    async def repair_instants(self) -> None:
        """Repair what was chosen by a clock that was set back while no process was there."""
        await self.clock_steps.note()

    async def ask_others(self) -> None:
        """Ask the other nodes before anything is begun here, in case the database went back.

        They know it in a later state, and which tasks are over. If nothing else speaks for a
        restore, those that do not answer at once are not awaited.

        :raises MovedAway: another host has this node.
        """
        await self.announcer.look()
        self.announcer.require_here()
        asking = asyncio.create_task(self.confirmer.run_once(), name="confirmation")
        self.rereader.keep(asking)
        await asyncio.wait({asking}, timeout=None if self.database.fresh else _ANSWERED_AT_ONCE_S)
        self.announcer.require_here()

    async def mark_database(self) -> None:
        """Raise the mark of the database; if its data went back, a notification says so.

        Also write what the clock says, for the next start.
        """
        await self.database.look(step=_MARK_STEP)
        await self.clock_steps.note()

    def start_delivery(self) -> None:
        """Start recording and delivering what ended, and polling in pull mode.

        Call this once the API answers.

        A node whose database was restored compares with the others now that they reach it.
        """
        self._loops.append(asyncio.create_task(self.ended_runs.run(), name="ended runs"))
        self._loops.append(asyncio.create_task(self.result_delivery.run(), name="archiving"))
        self._loops.append(asyncio.create_task(self.webhook_outbox.run(), name="webhooks"))
        if self.settings.pull:
            self._loops.append(asyncio.create_task(self.work_puller.run(), name="fetching"))
        self.rereader.read(self.comparer.compare_until_answered)

    async def _ensure_owner(self, connection: Any) -> None:
        await self.tokens.ensure_owner(connection, self.settings.state_dir / "token")

    def _periodic_jobs(self) -> tuple[PeriodicJob, ...]:
        others = participant_jobs(
            confirm_tasks=self.confirmer.run_once,
            keep_heard=self.leases.keep,
            end_leases=self.leases.run_once,
            purge_surplus=self.surplus_purger.run_once,
        )
        return others + node_jobs(
            settle_holds=self.holds.run_once,
            end_overdue=self._overdue,
            end_followers=self.termination.finish_followers,
            watch_peers=self.peer_monitor.run_once,
            refresh_card=self.own_card.look_again,
            renew_certificates=self.renew_certificates,
            extend_reservations=self.reservations.extend_spans,
            catch_up_audit=self.audit.catch_up,
            check_webhooks=self.webhooks.check,
            back_up=self.backups.run_once,
            sum_up_meshes=self.mesh_counter.run_once,
            purge=self.purger.run_once,
        )

    async def renew_certificates(self) -> None:
        """Read or make certificates again that have changed or expire."""
        if self.certificates is not None:
            await self.certificates.renew()

    async def _overdue(self) -> None:
        if not self.clock_steps.watcher.doubtful:
            now, noticed_at = self.clock.now(), self.restores.noticed_at
            # What a restored database forgot, others are asked for, and send again.
            asking = noticed_at is not None and now < noticed_at + PARTS_SENT_AGAIN_WITHIN
            await self.collector.give_up(
                now - self.settings.part_grace, noticed_at if asking else None
            )
        await self.termination.finish_tasks()

    def _heard(self, notice: Notice) -> None:
        self._refresh_directory(notice)
        if notice.kind == "node" and "added" in notice.words:
            self.rereader.read(partial(self._compare_with, notice.id))
        if notice.kind == "generation":
            self.rereader.read(self.comparer.compare_until_answered)
        for listener in self._listeners:
            listener(notice)

    def _refresh_directory(self, notice: Notice) -> None:
        """Read nodes and campaigns again if they changed, or if notifications were lost.

        While the connection was lost, the server may have been restored.
        """
        if notice.kind in {"generation", "wake"}:
            self.rereader.read(self.database.look)
        if notice.kind in {"node", "wake"}:
            self.rereader.read(self.directory.refresh)
        if notice.kind in {"campaign", "wake"}:
            self.rereader.read(self.campaigns.refresh)
        if notice.kind in {"successor", "wake"}:
            self.rereader.read(self.announcer.look)

    async def _greet(self, identity: str) -> tuple[str | None, Shortfall | None]:
        """Return why a node that answers does not serve this one, and how much time it has left.

        While it does not know this node, the runs with it are taken back: none begins alone.
        """
        try:
            return None, await self.confirmer.greet(identity)
        except UnknownToPeer as error:
            await self.termination.lose_runs_with(identity, error.detail)
            return error.detail, None
        except ParleyError as error:
            log.debug("not greeted", node=identity, error=error.detail)
        return None, None

    async def compare_digests(self, lead: str, request: DigestRequest) -> Differences:
        """Return how the tasks of a lead differ here, and send it again the parts that it lacks."""
        await self.collector.send_again(lead, request.lacking)
        return await self.time_line.compare(lead, request)

    async def compare_for(self, identity: str) -> NodeComparison:
        """Compare with a node that asks for it, which shows that it is there and knows this one."""
        await self.peer_monitor.heard_from(identity)
        return await self.comparer.answer(identity)

    async def _compare_with(self, name: str) -> None:
        """Compare with a node that was added: either of the two may have lost its database."""
        await self.directory.refresh()
        await self.comparer.compare_with(name)

    async def listen(self, listener: Callable[[Notice], None]) -> None:
        """Pass notifications on until cancelled, where the loops run in another process."""

        def on_notice(notice: Notice) -> None:
            self._refresh_directory(notice)
            self.limits.on_notice(notice)
            self.time_line.on_notice(notice)
            self.freed_time.on_notice(notice)
            listener(notice)

        interested = asyncio.create_task(self.freed_time.run(), name="interest")
        try:
            await self.database.listen(on_notice, self.clock)
        finally:
            interested.cancel()

    def add_notification_listener(self, listener: Callable[[Notice], None]) -> None:
        """Pass all notifications to another part of this process, too."""
        self._listeners.append(listener)

    async def stop(self) -> None:
        """Stop the loops, and end and mark the running parts."""
        self.stopping = True
        self.hub.close()
        self.mailboxes.close()
        await self._housekeeper.stop()
        ending = [*self._loops, *self.rereader.tasks]
        for loop in ending:
            loop.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await self.comparer.stop()
        await self.announcer.stop()
        await self.audit.catch_up()
        moved = self.announcer.ended.is_set()  # then another host says how its runs ended
        if not moved and not self.beside:
            await self.outbox.deliver_before_shutdown()
        await self.port_probes.close()
        await self.tool_runner.close()

    async def watch_clock(self) -> None:
        """Let all loops look again if the clock was set: they wait for instants by the old one."""
        if await self.clock_steps.look():
            self._heard(Notice("wake", "", ()))

    def peer(self, identity: str) -> AnyPeer:
        """Return the client of another node, of whatever kind.

        :raises NotFound: it is not known here.
        """
        known = self.directory.by_identity(identity)
        if known.kind is NodeKind.PARLEY:
            return self.peer_of_parley(known)
        if self.foreign is None:
            raise NotFound(f"{known.name} runs {known.kind}, which this program does not speak")
        return self.foreign.peer(known)

    def peer_of_parley(self, known: KnownNode) -> Peer:
        """Return the client of another node of Parley."""
        return self.peers.to(known.identity, known.name, known.url, known.attributes)

    def participant(self, identity: str) -> LocalParticipant | AnyPeer:
        """Return the client of a participant: this node itself, or another one over HTTP."""
        return self.local_participant if identity == self.card.identity else self.peer(identity)

    async def _introduce(self, known: KnownNode, introduction: Introduction) -> IntroductionAnswer:
        return await self.participant(known.identity).introduce(introduction)

    async def _consider(self, known: KnownNode, introduction: Introduction) -> IntroductionAnswer:
        return await self.participant(known.identity).consider(introduction)

    async def _ask_decision(self, lead: str, exchange: UUID) -> CommitRequest | str | None:
        if is_outside(lead):
            return NegotiationState.ABORTED  # it says by itself what it keeps, or it keeps nothing
        try:
            if lead == self.card.identity:
                answered = await self.time_line.decision(exchange)
            else:
                answered = await self.peer(lead).decision(exchange)
        except (PeerError, NotFound):
            return None
        return answered.commit if answered.commit is not None else answered.state

    async def _deliver(self, message: Message) -> None:
        """Deliver one message of the outbox to its node, which may be this one."""
        if message.node == self.card.identity:
            await self._deliver_here(message)
            return
        peer = self.peer(message.node)
        match message.kind:
            case MessageKind.PART:
                await peer.send_part(PartMessage.model_validate(message.body))
            case MessageKind.INTERVALS:
                await peer.send_intervals(IntervalsMessage.model_validate(message.body))
            case MessageKind.RUN_END:
                await peer.end_run(RunEnd.model_validate(message.body))
            case MessageKind.TASK_END:
                await peer.end_task(TaskEnd.model_validate(message.body))
            case MessageKind.TASK_CHANGE:
                introduction = Introduction.model_validate(message.body)
                await peer.introduce(introduction)
                await self.editing.acknowledged(message.id, introduction.task)
            case MessageKind.COMMIT | MessageKind.RELEASE | MessageKind.WEBHOOK:
                pass  # other outboxes deliver these

    async def _deliver_here(self, message: Message) -> None:
        if message.kind is MessageKind.PART:
            await self.collector.receive(message.node, PartMessage.model_validate(message.body))
        elif message.kind is MessageKind.RUN_END:
            await self.termination.apply_run_end(message.node, RunEnd.model_validate(message.body))
        elif message.kind is MessageKind.TASK_END:
            await self.termination.apply_task_end(
                message.node, TaskEnd.model_validate(message.body)
            )


async def assemble(  # noqa: PLR0913 - what a process opens before, each given by its name
    settings: Settings,
    clock: Clock,
    dsn: str,
    session: aiohttp.ClientSession,
    lead: LeadFunctions,
    *,
    serving: bool,
    beside: bool = False,
    tools: socket.socket | None = None,
    foreign: Callable[[NodeService], ForeignNodes] | None = None,
) -> NodeService:
    """Open the database and the key, and put a node together.

    The process that is ``serving`` the API keeps the mailboxes of nodes in pull mode; a process
    beside it hands its questions to that one, also if it serves people (``beside``). ``tools``
    leads to a runner of tools, if one runs.
    """
    prepare_directory(settings.state_dir)
    key = NodeKey.load_or_create(settings.state_dir / "node.pem")
    mark = MarkFile(settings.state_dir / "database-mark")
    database = PostgresDatabase(dsn, mark=mark, migrate=settings.migrate)
    await database.open()
    timeout_s = settings.peer_timeout / times.SECOND
    added_as = key.identity if settings.pull else f"{settings.public_url} --identity {key.identity}"
    signer = Signer(key, clock.now)
    peers = Peers(session, signer, timeout_s, added_as)
    mailboxes = Mailboxes(clock, timeout_s)
    own = peers.to(key.identity, settings.name, settings.local_url)
    peers.carry = mailboxes.carry if serving else via_own_node(peers, own)
    core = Core(database, clock, key.identity, settings, signer)
    certificates = ServerCertificates(core, key) if serving or beside else None
    means = NodeDependencies(
        peers,
        lead,
        mailboxes=mailboxes,
        certificates=certificates,
        tools=tools,
        dsn=dsn if serving else None,
        foreign=foreign,
    )
    return NodeService(core, means)
