"""One node, put together: the services behind its API, and its background loops.

:func:`assemble` opens database and key and builds a :class:`NodeService`, which builds the services
in the order in which they need each other; nothing runs before :meth:`NodeService.start`. Of
several processes of a node only one is its service, which launches, delivers, keeps house, and
answers other nodes. Processes beside it answer people. All of them hear of each other's changes by
notifications of the database, which this module passes on to each service.

A start has an order. The data must be this node's and not a copy, and the clock must be believed,
before anything is begun or sent: by a wrong clock runs would be missed, and a copy would act for
its original. While the clock is in doubt the API answers, and says so. A restored database asks the
others first, and compares with them once it can be reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID, uuid4

import aiohttp
import structlog

from node.access.certificates import ServerCertificates
from node.access.request_rates import RequestRates
from node.access.tokens import AccessTokens
from node.client.mailboxes import Mailboxes
from node.client.peers import Peer, Peers, via_own_node
from node.execution.agreement import ParticipantAgreement
from node.execution.catalog import Capabilities
from node.execution.contexts import Contexts
from node.execution.launcher import Launcher
from node.execution.parts import PartCollector
from node.execution.port_probes import PortProbes
from node.execution.restores import PARTS_SENT_AGAIN_WITHIN, RestoreWatcher
from node.execution.targets import ForeignTargets
from node.execution.tool_runner import ToolRunner
from node.journal.audit import AuditLog
from node.journal.clock_steps import ClockStepHandler
from node.journal.ended_runs import EndedRunRecorder
from node.journal.events import EventHub
from node.journal.outbox import POLL_S, Outbox
from node.journal.retention import Purger, rules_of, surplus_rules_of
from node.journal.webhooks import Webhooks
from node.model import times
from node.model.contexts import Context, offered_contexts
from node.model.errors import (
    DatabaseUnavailable,
    HostError,
    MovedAway,
    NotFound,
    ParleyError,
    PeerError,
    UnknownToPeer,
    WrongKey,
)
from node.model.exchangestate import NegotiationState
from node.model.host_limits.rules import User
from node.model.naming import find_clash
from node.model.nodekinds import NodeKind
from node.model.outside_leads import is_outside
from node.model.reason import Reason
from node.model.shortfall import Shortfall
from node.model.wire.campaigns import Budget, ContestedTime
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
from node.model.wire.policy_plans import PolicyPlan, PolicyPlanRequest
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
from node.peers.rivals import OwnProcess
from node.peers.successions import Successions
from node.plugins.contracts import ArchivingHost
from node.postgres.scheduled_backups import ScheduledBackups
from node.results.archives import Archives
from node.results.bundles.making import BundleExporter
from node.results.delivery import ResultDeliverer
from node.results.transforms import Transforms
from node.results.unsealed import UnsealedSecrets
from node.runtime.batching import Rereader
from node.runtime.clock import Clock
from node.runtime.housekeeping import (
    Housekeeper,
    PeriodicJob,
    api_jobs,
    node_jobs,
    participant_jobs,
)
from node.runtime.opt_outs import OptOuts
from node.runtime.settings import Settings
from node.runtime.version import agent_of
from node.sharing.campaigns import Campaigns
from node.sharing.deliveries import Deliveries
from node.sharing.host_limits import LimitKeeper
from node.sharing.lead_shares import LeadSharing
from node.sharing.pools import JudgePolicy, Pools
from node.sharing.secrets import SecretStore
from node.sharing.usage import UsageReader
from node.store import meshes, nodes, resources
from node.store import sealing as sealing_store
from node.store.bookings import HeldTask
from node.store.core import Core
from node.store.database import Notice, PostgresDatabase
from node.store.mark import HostMarks, MarkFile
from node.store.nodes import KnownNode
from node.store.outbox import Message, MessageKind
from node.store.pools import StoredPool
from node.tasks.acceptance import Acceptance
from node.tasks.admission import Admission
from node.tasks.comparison import CompareLed, NodeComparer
from node.tasks.confirmation import TaskConfirmer
from node.tasks.creation_gate import CreationGate
from node.tasks.drafting import TaskDrafter
from node.tasks.editing import TaskEditor
from node.tasks.leases import LeadLeases
from node.tasks.limit_trials import LimitTrials
from node.tasks.node_removal import NodeRemover
from node.tasks.pool_editing import PoolTaskEditor
from node.tasks.pool_tasks import PoolTaskChecker
from node.tasks.revocations import Revocations
from node.tasks.termination import TaskTerminator
from node.tasks.user_limits import UserLimits
from node.timetable.booking import TimeLine
from node.timetable.expiry import HoldExpirer
from node.timetable.freed_time import FreedTimeNotifier
from node.timetable.local_participant import LocalParticipant
from node.timetable.reservations import Reservations
from node.timetable.what_if import ImpactEstimator
from node.trust.key_files import KeyFile
from node.trust.private_files import prepare_directory
from node.trust.sealing import FILE as SEALING_FILE
from node.trust.sealing import SealingKey
from node.trust.signatures import Verifier
from node.trust.signer import Signer

_MARK_STEP = 2 * times.MINUTE
"""More than the time between two marks, so that a mark that fell behind the clock catches up."""
ASKED_FOR_TIME = 20
"""Maximum number of nodes that are asked at once what time it is."""
_WORD_S = 0.2
_ANSWERED_AT_ONCE_S = 2.0
"""Time at the start in which the other nodes tell what they know better."""
_NAMED_S = 2.0
"""The pause between looks at which key of secrets the service has named."""

_MESSAGES = (
    MessageKind.PART,
    MessageKind.INTERVALS,
    MessageKind.RUN_END,
    MessageKind.TASK_END,
    MessageKind.TASK_CHANGE,
)
"""The messages that the node delivers; its lead delivers the others."""

log = structlog.get_logger()


class Preview(Protocol):
    """Previews task documents for users; nothing is booked or stored by it."""

    async def plan(self, request: PlanRequest, user: User | None = None) -> Plan:
        """Return the plan of this task: its runs, or why not, if this user created it now."""

    async def plan_together(
        self, requests: Sequence[tuple[PlanRequest, User | None]]
    ) -> list[Plan | BaseException]:
        """Return the plan of each task as all are created together, or the error that it meets."""


PreviewPolicies = Callable[[StoredPool, PolicyPlanRequest], Awaitable[PolicyPlan]]
"""Previews other policies for a pool; the request has been checked."""
ReadBudgets = Callable[[], Awaitable[Mapping[str, tuple[Budget, ...]]]]
"""Returns by campaign what it uses of its limits and quotas; those without any are missing."""


ReadContested = Callable[[str], Awaitable[Sequence[ContestedTime]]]
"""Returns how a campaign stands in contested time, the soonest first, level by level."""


@dataclass(frozen=True)
class LeadFunctions:
    """The functions of the lead that the API of a node needs.

    ``preview_of(node)`` returns the preview, ``budgets_of(node)`` what reads the use of campaigns'
    limits, ``contested_of(node)`` what reads how they stand, ``compare_of(node)`` what compares the
    tasks that it leads, and ``policy_preview_of(node)`` what previews other policies of its pools;
    the node is complete but for them.
    """

    preview_of: Callable[[NodeService], Preview]
    budgets_of: Callable[[NodeService], ReadBudgets]
    contested_of: Callable[[NodeService], ReadContested]
    compare_of: Callable[[NodeService], CompareLed]
    judge_policy: JudgePolicy
    policy_preview_of: Callable[[NodeService], PreviewPolicies]


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
    key: KeyFile | None = None
    """The file with this node's key, if it may be replaced."""
    opt_outs: OptOuts | None = None
    """The objections of targets to being measured, if they are asked for."""
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
        self.hub, self.ended_runs = EventHub(core.clock), EndedRunRecorder(core)
        self._housekeeper = Housekeeper(core.clock)
        self.clock_steps = ClockStepHandler(core, self._is_time_confirmed)
        self._answers = True
        self._loops: list[asyncio.Task[None]] = []
        self.rereader = Rereader()
        self._build_users(core, dependencies)
        self._build_host(core, dependencies)
        self._build_peers(core, dependencies)
        self.limits = LimitKeeper(
            core, self.directory, self.capabilities, dependencies.limits, self.foreign_targets
        )
        self.secrets = SecretStore(core, self.directory)
        self._build_timetable(core, dependencies)
        self._build_sharing(core, dependencies)
        self._build_execution(core, dependencies)
        self._build_drafting(core, dependencies)
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
        self.purger = Purger(core, rules_of(core.settings))
        self.surplus_purger = Purger(core, surplus_rules_of(core.settings))
        self._build_lead(core, dependencies)

    def _build_lead(self, core: Core, dependencies: NodeDependencies) -> None:
        self.preview = dependencies.lead.preview_of(self)
        self.preview_policies = dependencies.lead.policy_preview_of(self)
        self.budgets = dependencies.lead.budgets_of(self)
        self.contested = dependencies.lead.contested_of(self)
        self.comparer = NodeComparer(
            core,
            self.directory,
            self.confirmer,
            dependencies.lead.compare_of(self),
            self.peer,
        )

    def _build_users(self, core: Core, dependencies: NodeDependencies) -> None:
        self.creation_gate = CreationGate(core.clock)
        self.audit = AuditLog(core)
        self.tokens = AccessTokens(core, dependencies.new_id)

    def _build_webhooks(self, core: Core, dependencies: NodeDependencies) -> None:
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
        """Build the programs, contexts, and card of this host."""
        self.capabilities = Capabilities()
        self.tool_runner = ToolRunner(core.settings, dependencies.tools)
        self.contexts = Contexts(core.settings.allowed_contexts)
        self.own_card = OwnCard(core, self.capabilities, self.contexts.addresses)

    def _build_peers(self, core: Core, dependencies: NodeDependencies) -> None:
        """Build the directory of nodes, their clients, and what watches them."""
        self.directory = Directory(core.database)
        self.verifier = Verifier(core.identity, self._started_by_now, self.directory.signer)
        self.peers, self._rng = dependencies.peers, dependencies.rng
        self.successions = Successions(core, self.directory, self.peers, dependencies.key)
        self.peers.known_keys = self.successions
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
            dependencies.opt_outs,
        )
        self.announcer = Announcer(core, self.directory, self.peers, self.foreign_targets)
        self.registration = PeerRegistrar(core, self.directory, self.peers, self.foreign)
        self.host_states = HostStates(core.clock, self.peer)
        self.peer_monitor = PeerMonitor(
            core,
            self.directory,
            self.peers,
            self.mailboxes,
            self.work_puller.fault,
            self._ask_service,
            self.free_time.read,
            self.host_states,
            self.foreign,
        )
        self.directory_files = DirectoryFiles(
            core, self.directory, self.registration, self.peer_monitor, self.foreign_targets
        )

    def _build_timetable(self, core: Core, dependencies: NodeDependencies) -> None:
        """Build the time line of this node, and the node as a participant of its own tasks."""
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
        self.campaigns = Campaigns(
            core.database,
            core.clock,
            self.capabilities.resources,
            lambda connection: self.pools.sizes(connection),  # noqa: PLW0108 - made below
            self.directory.find_or_key,
        )
        self.lead_shares = LeadSharing(core, self.directory)
        self.usage = UsageReader(core.database, core.clock, self.directory.name_of)
        self.deliveries = Deliveries(core, self.usage)
        self.pools = Pools(
            core.database, core.clock, self.directory, dependencies.lead.judge_policy
        )

    def _build_execution(self, core: Core, dependencies: NodeDependencies) -> None:
        """Build termination, launching, archives, and delivery of results."""
        self.termination = TaskTerminator(core)
        self.leases = LeadLeases(core, self.clock_steps.watcher, self.termination)
        self.node_removal = NodeRemover(core, self.directory, self.termination, self.peer)
        self.revocations = Revocations(
            core, self.directory, self.peers, self.successions, self.node_removal
        )
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
            context_refusal=self.contexts.refusal,
            targets=self.foreign_targets,
            agreement=self.agreement,
            restores=self.restores,
            tool_runner=self.tool_runner,
            poll_s=dependencies.poll_s,
        )
        self.clock_steps.on_set_back(self.launcher.on_set_back)
        transforms = Transforms(self.tool_runner)
        host = ArchivingHost(
            core.settings.name,
            core.settings.archive_places,
            core.clock.now,
            agent_of(core.settings),
        )
        self.result_delivery = ResultDeliverer(core, host, self.capabilities.metrics, transforms)
        self.archives = Archives(
            core.database,
            core.clock,
            host,
            transforms.fault_of,
            dependencies.new_id,
            core.sealing,
        )

        self.unsealed = UnsealedSecrets(core, self.capabilities)

    def _build_drafting(self, core: Core, dependencies: NodeDependencies) -> None:
        self.pool_tasks = PoolTaskChecker(core.database, self.directory, self.capabilities)
        self.drafter = TaskDrafter(
            core,
            self.capabilities,
            self.campaigns,
            self.pool_tasks,
            self.directory,
            dependencies.new_id,
        )
        self.user_limits = UserLimits(core, self.limits, self.drafter, self.tokens)
        self.limit_trials = LimitTrials(
            self.limits,
            self.drafter,
            self.directory,
            self.capabilities,
            self.user_limits,
            self.foreign_targets,
        )

    def _build_tasks(self, core: Core, dependencies: NodeDependencies) -> None:
        self.request_rates = RequestRates(core, self.limits.is_named)
        self.admission = Admission(
            core,
            drafter=self.drafter,
            capabilities=self.capabilities,
            campaigns=self.campaigns,
            archives=self.archives,
            seating=self.pool_tasks,
            directory=self.directory,
            limits=self.limits,
            user_limits=self.user_limits,
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
        self.editing = TaskEditor(
            core,
            self.admission,
            self.archives,
            pool_editing,
            self.limits,
            self.foreign_targets.relocated,
        )
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

    def _context_refusal(self, context: Context) -> Reason | None:
        """Return why this host cannot measure from a context, or None if it can.

        The process that measures wrote the card; this process may have fewer rights, so the card
        is asked first.
        """
        if str(context) in offered_contexts(self.directory.self.attributes):
            return None
        return self.contexts.refusal(context)

    @property
    def card(self) -> NodeCard:
        """The description of this node that others read."""
        return self.own_card.current

    def _needs_port(self, task: HeldTask, tool: str) -> int:
        if task.participant is None:
            return 0
        return self.capabilities.needs_port(task.test, tool, task.spec, task.participant)

    def _duration_with(self, task: HeldTask, tool: str) -> int:
        return self.capabilities.duration_with(task.test, tool, task.spec)

    async def start(self) -> None:
        """Write this node's card and token, and start the loops, once the clock is believed.

        Signatures are dated in whole seconds, and those from before the start are refused. So this
        waits until the second of the start has passed: otherwise the first request of a peer,
        dated within that second, would be refused. It waits by the monotonic clock: the other one
        may be set back by a day meanwhile.

        :raises WrongKey: the database belongs to another key.
        :raises HostError: a certificate cannot be used, or the name is taken.
        """
        self.confirmer.process = OwnProcess.new(self._began)
        self._answers = False  # the API does not, until what this starts is done
        if self.certificates is not None:
            self.certificates.load()
        passed = self.started % times.SECOND + self.clock.monotonic() - self._began
        await self.clock.sleep((times.SECOND - passed) / times.SECOND)
        async with self.database.transaction() as connection:
            known = await nodes.own_identity(connection)
            if known not in (None, self.card.identity):
                msg = (
                    f"this database belongs to the node {known}, and the key in "
                    f"{self.settings.state_dir} is another; bring back the node.pem that it was "
                    "made with, or restore a backup with the key (parley admin restore "
                    "--replace FILE), or start with an empty database, as another node"
                )
                raise WrongKey(msg)
            if (reason := find_clash(self.card, await nodes.find_all(connection))) is not None:
                msg = f"this node cannot be called {self.card.name}: {reason}"
                raise HostError(msg)
            await self.own_card.write(connection)
            await self.successions.keep_own(connection)
            await self._ensure_owner(connection)
        await self.begin_clock()
        await self.directory.refresh()
        await self.campaigns.refresh()
        await self.launcher.recover()
        await self.limits.apply()
        await self.limits.record_loaded()
        for kind, name, reason in self.capabilities.unusable:
            log.warning("a plugin cannot be used", kind=kind, name=name, reason=reason)
        self._loops = [
            asyncio.create_task(self.database.listen(self._on_notice, self.clock), name="listen"),
            asyncio.create_task(self.audit.run(), name="audit"),
        ]
        await self.begin_work()

    async def begin_work(self) -> None:
        """Begin to work, now or once the clock is believed.

        :raises MovedAway: another host has this node, or another process is it.
        """
        if not self.clock_steps.watcher.newborn:
            await self._work()
            return
        # By a wrong clock other nodes cannot be asked yet, and once the API answers here, whoever
        # answers where the node was may be this process.
        await self.confirmer.require_original(starting=not self._answers, dated=False)
        self._loops.append(asyncio.create_task(self._work_later(), name="work"))

    async def _work_later(self) -> None:
        """Begin to work once the clock is believed."""
        self._answers = True
        while True:
            await self.clock_steps.wait_until_believed()
            try:
                await self._work()
            except MovedAway:
                return  # this process ends
            except ParleyError as error:
                log.warning("cannot begin to work", error=error.detail)
                await self.clock.sleep(1.0)
            except Exception:
                log.exception("cannot begin to work")
                await self.clock.sleep(1.0)
            else:
                return

    async def _work(self) -> None:
        """Start what begins, ends, and sends anything.

        :raises MovedAway: another host has this node.
        """
        await self.ask_others()
        await self.reservations.extend_spans()
        self._loops += [
            asyncio.create_task(self.launcher.run(), name="launcher"),
            asyncio.create_task(self.outbox.run(), name="outbox"),
            asyncio.create_task(self.freed_time.run(), name="interest"),
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
        await self.begin_clock()
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
        self.capabilities.know_versions(self.launcher.versions.known)
        weaker = rights.weaknesses(os.geteuid())
        if weaker:
            log.warning("tools are confined, but", account=rights.account, weaker="; ".join(weaker))
        else:
            log.info("tools are confined", account=rights.account)

    def _started_by_now(self) -> int:
        """Return when this service was started, by the clock as it is now (µs)."""
        return self.clock.now() - (self.clock.monotonic() - self._began)

    async def begin_clock(self) -> None:
        """Doubt a clock that is far ahead; repair what one chose that was set back meanwhile."""
        await self.clock_steps.begin()

    async def _is_time_confirmed(self) -> bool:
        """Return whether a node that answers with its key has the time of this host's clock."""
        known = [
            (each.url, each.identity)
            for each in await self.directory.known_of_parley()
            if each.url is not None and not each.is_self
        ]
        some = self._rng.sample(known, min(len(known), ASKED_FOR_TIME))
        asked = (self.peers.has_time(*each, self.clock.now) for each in some)
        return any(await asyncio.gather(*asked))

    async def ask_others(self) -> None:
        """Ask the other nodes before anything is begun here, in case the database went back.

        They know it in a later state, and which tasks are over. If nothing else speaks for a
        restore, those that do not answer at once are not awaited.

        :raises MovedAway: another host has this node.
        """
        await self.announcer.look()
        self.announcer.require_here()
        await self.confirmer.require_original(starting=not self._answers)
        asking = asyncio.create_task(self.confirmer.run_once(), name="confirmation")
        self.rereader.keep(asking)
        await asyncio.wait({asking}, timeout=None if self.database.fresh else _ANSWERED_AT_ONCE_S)
        self.announcer.require_here()

    async def wait_until_in_use(self, host: HostMarks) -> None:
        """Return once the data are known to be the node's, as a process beside its service.

        Those of a copied machine say that the service has just worked, and not yet that it asks
        whether it may. So they have to be of this ``host``, or be seen in use: the service raises
        their mark each minute. It writes both together with its doubt, which is read after them.
        """
        _, first = await self.database.stored_marks()
        while True:
            stored, mark = await self.database.stored_marks()
            await self.announcer.look()
            if self.database.copy_of or (
                self.database.copy_of is None and (host.are_those_of(stored) or mark != first)
            ):
                return
            await self.clock.sleep(_WORD_S)

    async def mark_database(self) -> None:
        """Raise the mark of the database; if its data went back, a notification says so.

        Also write what the clock says, for the next start.
        """
        await self.database.check_mark(step=_MARK_STEP)
        await self.clock_steps.note()

    def start_delivery(self) -> None:
        """Start recording and delivering what ended, and polling in pull mode.

        Call this once the API answers.

        A node whose database was restored compares with the others now that they reach it.
        """
        self.rereader.read(self.unsealed.seal)
        for name, run in (
            ("ended runs", self.ended_runs.run),
            ("archiving", self.result_delivery.run),
            ("webhooks", self.webhook_outbox.run),
            ("comparison", self._compare_at_start),
        ):
            self._loops.append(asyncio.create_task(self._run_once_believed(run), name=name))
        if self.settings.pull:
            fetching = self._run_once_believed(self.work_puller.run)
            self._loops.append(asyncio.create_task(fetching, name="fetching"))

    async def _run_once_believed(self, run: Callable[[], Awaitable[None]]) -> None:
        await self.clock_steps.wait_until_believed()
        await run()

    async def _compare_at_start(self) -> None:
        self.rereader.read(self.comparer.compare_until_answered)

    async def _ensure_owner(self, connection: Any) -> None:
        await self.tokens.ensure_owner(connection, self.settings.state_dir / "token")
        await self.tokens.ensure_follower(connection, self.settings.state_dir / "follows")

    def _periodic_jobs(self) -> tuple[PeriodicJob, ...]:
        others = participant_jobs(
            confirm_tasks=self.confirmer.run_once,
            keep_heard=self.leases.write_contacts,
            end_leases=self.leases.run_once,
            purge_surplus=lambda: self.surplus_purger.purge(self.clock.now()),
        )
        return others + node_jobs(
            settle_holds=self.holds.run_once,
            end_overdue=self._end_overdue,
            end_followers=self.termination.finish_followers,
            watch_peers=self.peer_monitor.run_once,
            tell_revocations=self.revocations.tell,
            refresh_card=self.own_card.look_again,
            renew_certificates=self.renew_certificates,
            extend_reservations=self.reservations.extend_spans,
            catch_up_audit=self.audit.catch_up,
            check_webhooks=self.webhooks.queue_messages,
            back_up=self.backups.run_once,
            sum_up_meshes=partial(meshes.sum_up_all, self.database),
            purge=self.purger.run_once,
        )

    async def renew_certificates(self) -> None:
        """Read or make certificates again that have changed or expire."""
        if self.certificates is not None:
            await self.certificates.renew()

    async def _end_overdue(self) -> None:
        if self.clock_steps.watcher.doubtful:
            return
        now, noticed_at = self.clock.now(), self.restores.noticed_at
        if self.limits.limits.resources:
            async with self.database.connection() as connection:
                await resources.end_kept(connection, now)
        # What a restored database forgot, others are asked for, and send again.
        asking = noticed_at is not None and now < noticed_at + PARTS_SENT_AGAIN_WITHIN
        await self.collector.give_up(now - self.settings.part_grace, noticed_at if asking else None)
        await self.termination.finish_tasks()

    def _on_notice(self, notice: Notice) -> None:
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
            self.rereader.read(self._check_for_restore)
            self.rereader.read(self.tokens.reread)
        if notice.kind in {"node", "successor", "wake"}:
            self.rereader.read(self.directory.refresh)
        if notice.kind in {"campaign", "wake"}:
            self.rereader.read(self.campaigns.refresh)
        if notice.kind in {"successor", "wake"}:
            self.rereader.read(self.announcer.look)

    async def _check_for_restore(self) -> None:
        """Check whether the data went back under this process, and whether it is a copy."""
        await self.database.check_mark()
        await self.confirmer.require_original()

    async def _ask_service(self, identity: str) -> tuple[str | None, Shortfall | None]:
        """Ask another node whether it serves this one, and how much time it has left.

        Return why it does not serve this one, or None, and its shortfall, if it tells one. While it
        does not know this node, the runs with it are taken back: none begins alone.
        """
        try:
            return None, await self.confirmer.ask_service(identity)
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
        await self.peer_monitor.record_contact(identity)
        return await self.comparer.compare_own_side(identity)

    async def _compare_with(self, name: str) -> None:
        """Compare with a node that was just added: either may have lost its database."""
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
        if await self.clock_steps.check_for_steps():
            self._on_notice(Notice("wake", "", ()))

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
        return self.peers.client_of(known.identity, known.name, known.url, known.attributes)

    def participant(self, identity: str) -> LocalParticipant | AnyPeer:
        """Return the client of a participant: this node itself, or another one over HTTP."""
        return self.local_participant if identity == self.card.identity else self.peer(identity)

    async def _introduce(self, known: KnownNode, introduction: Introduction) -> IntroductionAnswer:
        answer = await self.participant(known.identity).introduce(introduction)
        await self.peer_monitor.record_contact(known.identity)
        return answer

    async def _consider(self, known: KnownNode, introduction: Introduction) -> IntroductionAnswer:
        answer = await self.participant(known.identity).consider(introduction)
        await self.peer_monitor.record_contact(known.identity)
        return answer

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
                answer = await peer.introduce(introduction)
                await self.editing.note_acknowledged(message.id, message.node, introduction, answer)
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


async def _sealing_key(state_dir: Path, database: PostgresDatabase, *, serving: bool) -> SealingKey:
    """Return the key of this node's secrets, which its service makes and names in the database.

    A service whose key was lost goes on with a new one. Another process, such as a lead on another
    host, needs the same: what it sealed by one of its own nobody else could open.

    :raises WrongKey: this is another process, and it has not the key of the service.
    """
    try:
        async with database.transaction() as connection:
            named = await sealing_store.sealing_key_name(connection)
            if serving or named is None:
                key = SealingKey.load_or_create(state_dir)
            else:
                key = _key_named(named, state_dir)
            if serving:
                await sealing_store.note_sealed_by(connection, key.name)
    except BaseException:
        await database.close()
        raise
    if serving and named not in {None, key.name}:
        log.warning("secrets were sealed by another key", now=key.name, before=named)
    return key


async def require_key_of_service(core: Core) -> None:
    """Return once the node's service has named the key by which this process seals.

    A process beside it may begin before it, with a key of its own; so may one beside a service of
    an earlier release, which names none.

    :raises WrongKey: the service named another one.
    """
    while True:
        with contextlib.suppress(DatabaseUnavailable):
            async with core.database.connection() as connection:
                named = await sealing_store.sealing_key_name(connection)
            if named is not None:
                _key_named(named, core.settings.state_dir, core.sealing)
                return
        await core.clock.sleep(_NAMED_S)


def _key_named(name: str, state_dir: Path, used: SealingKey | None = None) -> SealingKey:
    """Return the key of a state directory, if it has this name, and is the one that is used.

    :raises WrongKey: there is none, or another one.
    """
    key = used or SealingKey.load(state_dir)
    if key is None or key.name != name:
        found = "there is none" if key is None else f"it has the key {key.name}"
        msg = (
            f"the secrets in the database are sealed by the key {name} of the node's service, and "
            f"{found} in {state_dir / SEALING_FILE}: copy the file {SEALING_FILE} from the state "
            "directory of the host on which the service runs, as node.pem"
        )
        raise WrongKey(msg)
    return key


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
    key = KeyFile(settings.state_dir / "node.pem")
    identity = key.current.identity
    mark = MarkFile(settings.state_dir / "database-mark")
    # A lead may run on another host than the node's service.
    host = HostMarks.of(settings.state_dir) if serving else None
    database = PostgresDatabase(dsn, mark=mark, host=host, migrate=settings.migrate)
    await database.open()
    timeout_s = settings.peer_timeout / times.SECOND
    added_as = identity if settings.pull else f"{settings.public_url} --identity {identity}"
    signer = Signer(key, clock.now)
    sealing = await _sealing_key(settings.state_dir, database, serving=serving)
    peers = Peers(session, signer, timeout_s, added_as, sealing)
    mailboxes = Mailboxes(clock, timeout_s)
    own = peers.client_of(identity, settings.name, settings.local_url)
    peers.carry = mailboxes.carry if serving else via_own_node(peers, own)
    core = Core(database, clock, identity, settings, signer, sealing=sealing)
    certificates = ServerCertificates(core, key) if serving or beside else None
    means = NodeDependencies(
        peers,
        lead,
        mailboxes=mailboxes,
        certificates=certificates,
        key=key,
        opt_outs=OptOuts(lambda: settings.allowed_targets),
        tools=tools,
        dsn=dsn if serving else None,
        foreign=foreign,
    )
    node = NodeService(core, means)
    if not serving:  # on another host its file may be one from before the key was replaced
        async with database.transaction() as connection:
            await node.successions.keep_own(connection)
    return node
