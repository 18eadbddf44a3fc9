"""The synchronous client of a node, made from the other one by deploy/client.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from node.client.answers import Members
from node.client.events import ServerEvent
from node.client.responses import Page
from node.client.users import TimeSpan
from node.model.errors import ParleyError
from node.model.wire.archives import (
    Archive,
    ArchiverKind,
    ArchiveTested,
    Archiving,
    Backlog,
    Retried,
)
from node.model.wire.audit import AuditRecord
from node.model.wire.campaigns import Campaign, UsageHour
from node.model.wire.checks import DiagnosisAnswer, DiagnosisRequest
from node.model.wire.comparisons import NodeComparison
from node.model.wire.directories import IntroductionReport
from node.model.wire.host_limits import GrantedLimits, LimitTrial, ShownLimits
from node.model.wire.keys import Rekeying, RevocationReport
from node.model.wire.meshes import Mesh, MeshDelivery, MeshPair, MeshTask
from node.model.wire.nodes import (
    ClockState,
    Node,
    NodeAddition,
    NodeCard,
    NodeRemoval,
    TestDescription,
    ToolDescription,
)
from node.model.wire.plans import Plan
from node.model.wire.pools import PolicySet, Pool
from node.model.wire.reservations import Reservation
from node.model.wire.runs import Explanation, Run, RunInterval, ScheduleDifference
from node.model.wire.seats import Seat
from node.model.wire.secrets import Secret
from node.model.wire.shares import LeadShare
from node.model.wire.status import NodeStatus
from node.model.wire.task_lists import TaskChange
from node.model.wire.tasks import Task
from node.model.wire.tokens import NewToken, Token, TokenRequest
from node.model.wire.webhooks import NewWebhook, Webhook, WebhookTested
from parley_client.asynchronous import AsyncParley
from parley_client.blocking import Blocking


class Parley(Blocking):
    """A node's API; use it with ``with``.

    Methods return the documents that the API describes, or raise the error of a problem document.
    """

    def __init__(
        self,
        server: str = "http://127.0.0.1:8642",
        token: str | None = None,
        *,
        identity: str | None = None,
        patience_s: float = 30,
        plain_http: bool = False,
    ) -> None:
        """Take what :class:`AsyncParley` takes."""
        super().__init__(
            AsyncParley(
                server, token, identity=identity, patience_s=patience_s, plain_http=plain_http
            )
        )

    def add_archive(self, document: Mapping[str, Any]) -> Archive:
        """Add an archive of the node; an identical one again changes nothing."""
        return self._run(self._client.add_archive(document))

    def add_campaign(self, document: Mapping[str, Any]) -> Campaign:
        """Add a campaign; an identical one again changes nothing."""
        return self._run(self._client.add_campaign(document))

    def add_node(self, addition: NodeAddition) -> Node:
        """Add another node; its key is pinned."""
        return self._run(self._client.add_node(addition))

    def add_pool(self, document: Mapping[str, Any]) -> Pool:
        """Add a pool; an identical one again changes nothing."""
        return self._run(self._client.add_pool(document))

    def add_reservation(self, document: Mapping[str, Any], key: str | None = None) -> Reservation:
        """Reserve time of the node; the answer has the runs that were booked in it before.

        A repeated ``key`` (Idempotency-Key) gives the reservation created before.
        """
        return self._run(self._client.add_reservation(document, key))

    def add_secret(self, document: Mapping[str, Any]) -> Secret:
        """Add a secret, or replace it; no answer has its value."""
        return self._run(self._client.add_secret(document))

    def add_token(self, request: TokenRequest) -> NewToken:
        """Make a token; only this answer has its secret."""
        return self._run(self._client.add_token(request))

    def add_webhook(self, document: Mapping[str, Any]) -> NewWebhook:
        """Add a webhook; only this answer has its secret."""
        return self._run(self._client.add_webhook(document))

    def archive(self, name: str) -> Archive:
        """Return one archive of the node."""
        return self._run(self._client.archive(name))

    def archiver(self, name: str) -> ArchiverKind:
        """Return one archiver, with the schema of its spec."""
        return self._run(self._client.archiver(name))

    def archivers(self) -> Page[ArchiverKind]:
        """Return the archivers."""
        return self._run(self._client.archivers())

    def archives(self, *, limit: int = 50, cursor: str | None = None) -> Page[Archive]:
        """Return a page of the node's archives, by name."""
        return self._run(self._client.archives(limit=limit, cursor=cursor))

    def archivings(
        self, query: Mapping[str, object], *, limit: int = 50, cursor: str | None = None
    ) -> Page[Archiving]:
        """Return a page of deliveries, newest first; ``query`` has the API's filters."""
        return self._run(self._client.archivings(query, limit=limit, cursor=cursor))

    def audit(
        self,
        *,
        principal: str | None = None,
        verb: str | None = None,
        thing: str | None = None,
        outcomes: Iterable[str] = (),
        since: int | None = None,
        until: int | None = None,
        oldest_first: bool = False,
        limit: int = 50,
        cursor: str | None = None,
        wait_s: int = 0,
    ) -> Page[AuditRecord]:
        """Return a page of the audit, by default newest first; with ``wait_s``, when it has rows.

        ``cursor`` may be the id of a row.
        """
        return self._run(
            self._client.audit(
                principal=principal,
                verb=verb,
                thing=thing,
                outcomes=outcomes,
                since=since,
                until=until,
                oldest_first=oldest_first,
                limit=limit,
                cursor=cursor,
                wait_s=wait_s,
            )
        )

    def backlog(self) -> Page[Backlog]:
        """Return the waiting and parked deliveries by destination."""
        return self._run(self._client.backlog())

    def campaign(self, name: str) -> Campaign:
        """Return one campaign."""
        return self._run(self._client.campaign(name))

    def campaigns(self, *, limit: int = 50, cursor: str | None = None) -> Page[Campaign]:
        """Return a page of campaigns, by name."""
        return self._run(self._client.campaigns(limit=limit, cursor=cursor))

    def cancel_run(self, run: UUID) -> Run:
        """Cancel one run; a running one is stopped on every participant."""
        return self._run(self._client.cancel_run(run))

    def cancel_task(self, task: UUID) -> Task:
        """Cancel a task with all its runs; idempotent."""
        return self._run(self._client.cancel_task(task))

    def change_tasks(
        self,
        change: str,
        tasks: Sequence[UUID],
        patch: Mapping[str, Any] | None = None,
        *,
        dry_run: bool = False,
    ) -> list[TaskChange]:
        """Cancel, pause, resume or edit at most TASKS_MAX tasks; return the answer for each."""
        return self._run(self._client.change_tasks(change, tasks, patch, dry_run=dry_run))

    def check(self, request: DiagnosisRequest) -> DiagnosisAnswer:
        """Have the node checked, or the way between two nodes."""
        return self._run(self._client.check(request))

    def check_node(self) -> None:
        """Check that the server is a node of any version, by its card, which is open to all.

        :raises PeerError: it is not.
        """
        return self._run(self._client.check_node())

    def clock(self) -> ClockState:
        """Return the state of the node's clock."""
        return self._run(self._client.clock())

    def compare_node(self, name: str) -> NodeComparison:
        """Have the node compare with another one, and repair what differs."""
        return self._run(self._client.compare_node(name))

    def create_task(
        self, document: Mapping[str, Any], key: str | None = None, *, if_time: bool = False
    ) -> Task:
        """Post a task document; the node validates it field by field.

        A repeated ``key`` (Idempotency-Key) gives the task created before. With ``if_time``, the
        task is created only if one of its runs finds time.

        :raises NoTime: none does; the error has other tasks that would find time.
        """
        return self._run(self._client.create_task(document, key, if_time=if_time))

    def create_tasks(
        self, documents: Sequence[tuple[Mapping[str, Any], str]]
    ) -> list[UUID | ParleyError]:
        """Post task documents, each with its Idempotency-Key, in one list of at most TASKS_MAX.

        Return the id of each task, or why it was not created.
        """
        return self._run(self._client.create_tasks(documents))

    def document(self, path: str, query: Mapping[str, object] | None = None) -> Members:
        """Return one object of the API."""
        return self._run(self._client.document(path, query))

    def edit_archive(self, name: str, patch: Mapping[str, Any]) -> Archive:
        """Change an archive by a merge patch."""
        return self._run(self._client.edit_archive(name, patch))

    def edit_campaign(self, name: str, patch: Mapping[str, Any]) -> Campaign:
        """Change a campaign by a merge patch."""
        return self._run(self._client.edit_campaign(name, patch))

    def edit_pool(self, name: str, patch: Mapping[str, Any]) -> Pool:
        """Change a pool by a merge patch."""
        return self._run(self._client.edit_pool(name, patch))

    def edit_reservation(self, reservation: UUID, patch: Mapping[str, Any]) -> Reservation:
        """Change a reservation by a merge patch."""
        return self._run(self._client.edit_reservation(reservation, patch))

    def edit_task(self, task: UUID, patch: Mapping[str, Any], *, dry_run: bool = False) -> Task:
        """Change a task by a merge patch; with ``dry_run``, only return the task as it would be."""
        return self._run(self._client.edit_task(task, patch, dry_run=dry_run))

    def events(
        self,
        after: int | None = None,
        *,
        types: Sequence[str] | None = None,
        task: UUID | None = None,
    ) -> Iterator[ServerEvent]:
        """Yield the events of the node as they happen; with ``after`` those since that one, too.

        Of earlier ones the node keeps some; an event ``gap`` tells that it has lost some. Only
        those of these types and about this task are sent, if given. The stream ends with the
        validity of the token, and if the reader is too slow.

        :raises PeerUnreachable: the connection was lost; the last number resumes the stream.
        """
        return self._each(self._client.events(after, types=types, task=task))

    def explain_run(self, run: UUID) -> Explanation:
        """Explain why a run is in its state, or did not take place."""
        return self._run(self._client.explain_run(run))

    def explain_task(self, task: UUID, slot: int | None = None) -> Explanation:
        """Explain why a task is in its state, or why its slot with this nominal start is."""
        return self._run(self._client.explain_task(task, slot))

    def intervals(
        self,
        run: UUID,
        *,
        after: int | None = None,
        since: int | None = None,
        latest_first: bool = False,
        limit: int = 50,
        cursor: str | None = None,
        wait_s: int = 0,
    ) -> Page[RunInterval]:
        """Return a page of a long run's intervals; with ``wait_s``, when there are some."""
        return self._run(
            self._client.intervals(
                run,
                after=after,
                since=since,
                latest_first=latest_first,
                limit=limit,
                cursor=cursor,
                wait_s=wait_s,
            )
        )

    def introduce(
        self, directory: Mapping[str, Any], *, dry_run: bool = False
    ) -> IntroductionReport:
        """Add the nodes of a signed directory, or with ``dry_run`` find out what would be added."""
        return self._run(self._client.introduce(directory, dry_run=dry_run))

    def limits(self) -> ShownLimits:
        """Return the limits of what other nodes may have of the node's host."""
        return self._run(self._client.limits())

    def limits_of(self, name: str) -> GrantedLimits:
        """Have the node ask another one what its limits allow it."""
        return self._run(self._client.limits_of(name))

    def listed(self, path: str, query: Mapping[str, object]) -> Page[Members]:
        """Return a page of a list as the objects of the API."""
        return self._run(self._client.listed(path, query))

    def make_directory(self, entries: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
        """Have the node sign a directory of these nodes, or of those that it knows."""
        return self._run(self._client.make_directory(entries))

    def mesh(self, name: str, since: int, until: int) -> MeshDelivery:
        """Return one mesh, and what it has delivered in ``[since, until)``, up to now at most."""
        return self._run(self._client.mesh(name, since, until))

    def mesh_pairs(
        self, name: str, since: int, until: int, cursor: str | None = None
    ) -> Page[MeshPair]:
        """Return a page of what each pair of a mesh has delivered, in the order of their keys."""
        return self._run(self._client.mesh_pairs(name, since, until, cursor))

    def mesh_tasks(self, name: str, cursor: str | None = None) -> Page[MeshTask]:
        """Return a page of the tasks of a mesh: those not over, and the newest of each key."""
        return self._run(self._client.mesh_tasks(name, cursor))

    def meshes(
        self, *, removed: bool = False, limit: int = 50, cursor: str | None = None
    ) -> Page[Mesh]:
        """Return a page of meshes; with ``removed``, also those with only cancelled tasks."""
        return self._run(self._client.meshes(removed=removed, limit=limit, cursor=cursor))

    def nodes(self, match: Mapping[str, Any] | None = None) -> Page[Node]:
        """Return the known nodes, itself included, or those that meet a predicate."""
        return self._run(self._client.nodes(match))

    def own_card(self) -> NodeCard:
        """Return the node's card."""
        return self._run(self._client.own_card())

    def pardon_node(self, name: str) -> Node:
        """Forget the failed runs and the refusals that policies hold against a node."""
        return self._run(self._client.pardon_node(name))

    def pause_task(self, task: UUID) -> Task:
        """Free a task's future runs, and plan no others; idempotent."""
        return self._run(self._client.pause_task(task))

    def plan(self, document: Mapping[str, Any]) -> Plan:
        """Preview a task document; nothing is booked or stored."""
        return self._run(self._client.plan(document))

    def plan_together(self, documents: Sequence[Mapping[str, Any]]) -> list[Plan | ParleyError]:
        """Preview the documents of at most PLANS_MAX tasks, as if they were created together.

        Return the plan of each, or why there is none.
        """
        return self._run(self._client.plan_together(documents))

    def policy_sets(self) -> Page[PolicySet]:
        """Return the policy sets that a pool can have, the recommended one first."""
        return self._run(self._client.policy_sets())

    def pool(self, name: str) -> Pool:
        """Return one pool."""
        return self._run(self._client.pool(name))

    def pools(self, *, limit: int = 50, cursor: str | None = None) -> Page[Pool]:
        """Return a page of pools, by name."""
        return self._run(self._client.pools(limit=limit, cursor=cursor))

    def rekey(self) -> Rekeying:
        """Replace the key of the node."""
        return self._run(self._client.rekey())

    def release_task(self, task: UUID) -> Task:
        """Try now what a task waits for, and end a hold by policies; idempotent."""
        return self._run(self._client.release_task(task))

    def remove_archive(self, name: str) -> None:
        """Remove an archive and its waiting deliveries."""
        return self._run(self._client.remove_archive(name))

    def remove_campaign(self, name: str) -> None:
        """Remove a campaign that was never used."""
        return self._run(self._client.remove_campaign(name))

    def remove_node(self, name: str) -> NodeRemoval:
        """Remove a node, and end all open tasks with it; return what ended."""
        return self._run(self._client.remove_node(name))

    def remove_pool(self, name: str) -> None:
        """Remove a pool; its nodes stay."""
        return self._run(self._client.remove_pool(name))

    def remove_reservation(self, reservation: UUID) -> None:
        """Remove a reservation; its time is free at once."""
        return self._run(self._client.remove_reservation(reservation))

    def remove_secret(self, name: str) -> None:
        """Remove a secret."""
        return self._run(self._client.remove_secret(name))

    def remove_webhook(self, name: str) -> None:
        """Remove a webhook, and drop what it was not told yet."""
        return self._run(self._client.remove_webhook(name))

    def reservation(self, reservation: UUID) -> Reservation:
        """Return one reservation, with the runs that were booked in its time before."""
        return self._run(self._client.reservation(reservation))

    def reservations(
        self, *, prefix: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[Reservation]:
        """Return a page of reservations, newest first."""
        return self._run(self._client.reservations(prefix=prefix, limit=limit, cursor=cursor))

    def resume_task(self, task: UUID) -> Task:
        """Plan a paused task again; idempotent."""
        return self._run(self._client.resume_task(task))

    def retry_archivings(self, document: Mapping[str, Any]) -> Retried:
        """Retry deliveries at once."""
        return self._run(self._client.retry_archivings(document))

    def revoke_key(self, statement: str) -> RevocationReport:
        """Have the node take in, and pass on, that a key is revoked."""
        return self._run(self._client.revoke_key(statement))

    def revoke_node(self, name: str) -> RevocationReport:
        """Let the keys of another node count for nothing at this one any more."""
        return self._run(self._client.revoke_node(name))

    def revoke_own_key(self, key: str | None = None, *, prepare: bool = False) -> RevocationReport:
        """Revoke a key of the node; with ``prepare`` only sign that it is revoked."""
        return self._run(self._client.revoke_own_key(key, prepare=prepare))

    def revoke_token(self, token: UUID) -> Token:
        """Make a token invalid at once."""
        return self._run(self._client.revoke_token(token))

    def run(self, run: UUID, *, wait_s: int = 0) -> Run:
        """Return one run with its parts; with ``wait_s``, when it is over."""
        return self._run(self._client.run(run, wait_s=wait_s))

    def run_bundle(self, run: UUID) -> dict[str, Any]:
        """Return the signed bundle of a run, as the JSON it is: its digests are of that."""
        return self._run(self._client.run_bundle(run))

    def runs(
        self,
        *,
        states: Iterable[str] = (),
        test: str | None = None,
        task: UUID | None = None,
        prefix: str | None = None,
        starts: int | None = None,
        ends: int | None = None,
        oldest_first: bool = False,
        requester: str | None = None,
        participant: str | None = None,
        target: str | None = None,
        campaign: str | None = None,
        mesh: str | None = None,
        classes: Iterable[str] = (),
        verdicts: Iterable[str] = (),
        limit: int = 50,
        cursor: str | None = None,
        wait_s: int = 0,
    ) -> Page[Run]:
        """Return a page of runs, by default newest first; with ``wait_s``, when there are some."""
        return self._run(
            self._client.runs(
                states=states,
                test=test,
                task=task,
                prefix=prefix,
                starts=starts,
                ends=ends,
                oldest_first=oldest_first,
                requester=requester,
                participant=participant,
                target=target,
                campaign=campaign,
                mesh=mesh,
                classes=classes,
                verdicts=verdicts,
                limit=limit,
                cursor=cursor,
                wait_s=wait_s,
            )
        )

    def schedule(
        self, starts: int | None = None, ends: int | None = None, as_of: int | None = None
    ) -> TimeSpan:
        """Return a span of the node's timeline, in the order of starts; page by page.

        With ``as_of``, as it stood then.
        """
        return self._run(self._client.schedule(starts, ends, as_of))

    def schedule_changes(
        self,
        since: int | None = None,
        until: int | None = None,
        *,
        starts: int | None = None,
        ends: int | None = None,
    ) -> ScheduleDifference:
        """Return what has changed in a span of the node's timeline between two instants."""
        return self._run(self._client.schedule_changes(since, until, starts=starts, ends=ends))

    def seats(self, task: UUID) -> Page[Seat]:
        """Return the seats of a pool task, in the terms that are not over."""
        return self._run(self._client.seats(task))

    def secrets(self, *, limit: int = 50, cursor: str | None = None) -> Page[Secret]:
        """Return a page of secrets by name, without their values."""
        return self._run(self._client.secrets(limit=limit, cursor=cursor))

    def set_attributes(self, attributes: Mapping[str, Any]) -> Node:
        """Set attributes of the node; ``None`` removes one."""
        return self._run(self._client.set_attributes(attributes))

    def shares(self) -> Page[LeadShare]:
        """Return the shares of leads in the node's time, and what each had."""
        return self._run(self._client.shares())

    def status(self) -> NodeStatus:
        """Return how the node is, and what needs attention."""
        return self._run(self._client.status())

    def task(self, task: UUID, *, wait_s: int = 0) -> Task:
        """Return one task; with ``wait_s``, when planning has been attempted."""
        return self._run(self._client.task(task, wait_s=wait_s))

    def tasks(
        self,
        *,
        state: str | None = None,
        test: str | None = None,
        prefix: str | None = None,
        seats: bool = False,
        requester: str | None = None,
        participant: str | None = None,
        target: str | None = None,
        campaign: str | None = None,
        mesh: str | None = None,
        classes: Iterable[str] = (),
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Task]:
        """Return a page of tasks, newest first; with ``seats``, also the tasks of seats."""
        return self._run(
            self._client.tasks(
                state=state,
                test=test,
                prefix=prefix,
                seats=seats,
                requester=requester,
                participant=participant,
                target=target,
                campaign=campaign,
                mesh=mesh,
                classes=classes,
                limit=limit,
                cursor=cursor,
            )
        )

    def test(self, name: str) -> TestDescription:
        """Return one test, with the schema of its spec."""
        return self._run(self._client.test(name))

    def test_archive(self, name: str) -> ArchiveTested:
        """Check whether results can be delivered, without delivering one."""
        return self._run(self._client.test_archive(name))

    def test_webhook(self, name: str) -> WebhookTested:
        """Send a message of the type test; return when it was accepted."""
        return self._run(self._client.test_webhook(name))

    def tests(self) -> Page[TestDescription]:
        """Return the tests."""
        return self._run(self._client.tests())

    def tokens(
        self, *, prefix: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[Token]:
        """Return a page of tokens, newest first."""
        return self._run(self._client.tokens(prefix=prefix, limit=limit, cursor=cursor))

    def tools(self) -> Page[ToolDescription]:
        """Return the tools, and whether the node's host has them."""
        return self._run(self._client.tools())

    def try_limits(self, lead: str, task: dict[str, Any]) -> LimitTrial:
        """Try a task against the node's limits, as if this node introduced it."""
        return self._run(self._client.try_limits(lead, task))

    def until_planned(self, task: UUID) -> Task:
        """Return the task when planning was attempted, or at once if that is not soon or here."""
        return self._run(self._client.until_planned(task))

    def until_run(self, task: UUID, states: Iterable[str] = ()) -> Run | None:
        """Return the task's first run in one of the states; ``None`` if it ends without one."""
        return self._run(self._client.until_run(task, states))

    def usage(
        self,
        name: str | None,
        *,
        since: int | None = None,
        until: int | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[UsageHour]:
        """Return a page of the usage of one campaign, or of all, hour by hour."""
        return self._run(
            self._client.usage(name, since=since, until=until, limit=limit, cursor=cursor)
        )

    def webhooks(self, *, limit: int = 50, cursor: str | None = None) -> Page[Webhook]:
        """Return a page of webhooks, by name."""
        return self._run(self._client.webhooks(limit=limit, cursor=cursor))

    def worst_mesh_pairs(self, name: str, since: int, until: int, limit: int) -> Page[MeshPair]:
        """Return the pairs of a mesh with the smallest share of delivered slots, worst first."""
        return self._run(self._client.worst_mesh_pairs(name, since, until, limit))
