"""The typed client of a node's HTTP API, for people and their programs.

Every method returns the wire model that the API documents, or raises the :class:`ParleyError`
from which the node made its problem document. How it is sent is in :mod:`node.client.session`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from node.client.answers import Page
from node.client.responses import Model, page, read
from node.client.session import CARD, NodeSession
from node.model.errors import ParleyError, PeerAnswered
from node.model.taskstate import TaskState
from node.model.times import SECOND, format_instant, parse_instant
from node.model.wire.alerts import Alert
from node.model.wire.archives import (
    Archive,
    ArchiverKind,
    ArchiveTested,
    Archiving,
    Backlog,
    Retried,
)
from node.model.wire.audit import AuditRecord
from node.model.wire.bundles import RunBundle
from node.model.wire.campaigns import Campaign, UsageHour
from node.model.wire.checks import DiagnosisAnswer, DiagnosisRequest
from node.model.wire.comparisons import NodeComparison
from node.model.wire.directories import IntroductionReport, NodeDirectory
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
from node.model.wire.plans import ListedPlan, Plan
from node.model.wire.policy_plans import PolicyPlan
from node.model.wire.pools import PolicySet, Pool
from node.model.wire.problems import Problem, error_of
from node.model.wire.reservations import Reservation, ReservedSpan
from node.model.wire.runs import (
    Explanation,
    Run,
    RunInterval,
    ScheduleDifference,
    ScheduleEntry,
)
from node.model.wire.seats import Seat
from node.model.wire.secrets import Secret
from node.model.wire.shares import LeadShare
from node.model.wire.status import NodeStatus
from node.model.wire.task_lists import TaskChange, TaskCreation
from node.model.wire.tasks import Task
from node.model.wire.tokens import NewToken, Token, TokenRequest
from node.model.wire.webhooks import NewWebhook, Webhook, WebhookTested

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

Value = TypeVar("Value")

_POLL_S = 20
_PAUSE_S = 0.1
_SOON = 5 * SECOND
_ENTRIES_MAX = 20_000
"""Most runs that are read of one span of a schedule."""
_PAIRS = 500


@dataclass(frozen=True)
class TimeSpan:
    """A span of a node's timeline, and the node's time when it was read."""

    now: int
    starts_at: int
    ends_at: int
    entries: tuple[ScheduleEntry, ...]
    complete: bool
    """False if there are more than are read of one span."""
    reserved: tuple[ReservedSpan, ...] = ()


class UserClient(NodeSession):
    """A session with one node; use it as an asynchronous context manager."""

    async def _read(self, model: type[Model], method: str, path: str, **given: Any) -> Model:
        """Send a request, and return its answer as a model."""
        return read(model, await self._ask(method, path, **given))

    async def _page(
        self,
        model: type[Model],
        path: str,
        query: Mapping[str, object] | None = None,
        wait_s: int = 0,
    ) -> Page[Model]:
        return page(model, await self._ask("GET", path, query=query, wait_s=wait_s))

    async def _answers(
        self, model: type[Model], path: str, documents: Sequence[Mapping[str, Any]]
    ) -> tuple[Model, ...]:
        """Post several documents in one list, and return the answer to each."""
        answers = page(model, await self._ask("POST", path, body=documents)).items
        if len(answers) != len(documents):
            msg = f"{self.server} answered {len(answers)} of {len(documents)} {path[1:]}"
            raise PeerAnswered(msg)
        return answers

    def _or_error(
        self, value: Value | None, problem: Problem | None, what: str
    ) -> Value | ParleyError:
        if value is not None:
            return value
        if problem is not None:
            return error_of(problem)
        return PeerAnswered(f"{self.server} gave neither {what} nor a reason")

    # Tasks

    async def create_task(
        self, document: Mapping[str, Any], key: str | None = None, *, if_time: bool = False
    ) -> Task:
        """Post a task document; the node validates it field by field.

        A repeated ``key`` (Idempotency-Key) gives the task created before. With ``if_time``, the
        task is created only if one of its runs finds time.

        :raises NoTime: none does; the error has other tasks that would find time.
        """
        query = {"if_time": if_time}
        return await self._read(Task, "POST", "/tasks", query=query, body=document, key=key)

    async def create_tasks(
        self, documents: Sequence[tuple[Mapping[str, Any], str]]
    ) -> list[UUID | ParleyError]:
        """Post task documents, each with its Idempotency-Key, in one list of at most TASKS_MAX.

        Return the id of each task, or why it was not created.
        """
        body = [{**document, "idempotency_key": key} for document, key in documents]
        answers = await self._answers(TaskCreation, "/tasks", body)
        return [self._or_error(answer.task, answer.problem, "a task") for answer in answers]

    async def plan(self, document: Mapping[str, Any]) -> Plan:
        """Preview a task document; nothing is booked or stored."""
        return await self._read(Plan, "POST", "/plans", body=document)

    async def plan_together(
        self, documents: Sequence[Mapping[str, Any]]
    ) -> list[Plan | ParleyError]:
        """Preview the documents of at most PLANS_MAX tasks, as if they were created together.

        Return the plan of each, or why there is none.
        """
        answers = await self._answers(ListedPlan, "/plans", list(documents))
        return [self._or_error(answer.plan, answer.problem, "a plan") for answer in answers]

    async def tasks(  # noqa: PLR0913 - the API's filters, each by name
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
        outcomes: Iterable[str] = (),
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Task]:
        """Return a page of tasks, newest first; with ``seats``, also the tasks of seats."""
        query = {"state": state, "test": test, "prefix": prefix, "limit": limit, "cursor": cursor}
        query |= {"seats": seats, "requester": requester}
        query |= {"participant": participant, "target": target, "campaign": campaign}
        query |= {"mesh": mesh, "class": ",".join(classes) or None}
        query |= {"outcome": ",".join(outcomes) or None}
        return await self._page(Task, "/tasks", query)

    async def task(self, task: UUID, *, wait_s: int = 0) -> Task:
        """Return one task; with ``wait_s``, when planning has been attempted."""
        return await self._read(Task, "GET", f"/tasks/{task}", wait_s=wait_s)

    async def seats(self, task: UUID) -> Page[Seat]:
        """Return the seats of a pool task, in the terms that are not over."""
        return await self._page(Seat, f"/tasks/{task}/seats")

    async def cancel_task(self, task: UUID) -> Task:
        """Cancel a task with all its runs; idempotent."""
        return await self._read(Task, "DELETE", f"/tasks/{task}")

    async def pause_task(self, task: UUID) -> Task:
        """Free a task's future runs, and plan no others; idempotent."""
        return await self._read(Task, "POST", f"/tasks/{task}/pause")

    async def resume_task(self, task: UUID) -> Task:
        """Plan a paused task again; idempotent."""
        return await self._read(Task, "POST", f"/tasks/{task}/resume")

    async def release_task(self, task: UUID) -> Task:
        """Try now what a task waits for, and end a hold by policies; idempotent."""
        return await self._read(Task, "POST", f"/tasks/{task}/release")

    async def edit_task(
        self, task: UUID, patch: Mapping[str, Any], *, dry_run: bool = False
    ) -> Task:
        """Change a task by a merge patch; with ``dry_run``, only return the task as it would be."""
        query = {"dry_run": dry_run}
        return await self._read(Task, "PATCH", f"/tasks/{task}", query=query, body=patch)

    async def change_tasks(
        self,
        change: str,
        tasks: Sequence[UUID],
        patch: Mapping[str, Any] | None = None,
        *,
        dry_run: bool = False,
    ) -> list[TaskChange]:
        """Cancel, pause, resume or edit at most TASKS_MAX tasks; return the answer for each."""
        body: dict[str, Any] = {"change": change, "tasks": [str(task) for task in tasks]}
        if patch is not None:
            body["patch"] = patch
        query = {"dry_run": dry_run}
        answer = await self._ask("POST", "/tasks/changes", query=query, body=body)
        return list(page(TaskChange, answer).items)

    async def explain_task(self, task: UUID, slot: int | None = None) -> Explanation:
        """Explain why a task is in its state, or why its slot with this nominal start is."""
        query = {"slot": _instant_text(slot)}
        return await self._read(Explanation, "GET", f"/tasks/{task}/explain", query=query)

    # Runs

    async def runs(  # noqa: PLR0913 - the API's filters, each by name
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
        outcomes: Iterable[str] = (),
        limit: int = 50,
        cursor: str | None = None,
        wait_s: int = 0,
    ) -> Page[Run]:
        """Return a page of runs, by default newest first; with ``wait_s``, when there are some."""
        query = {
            "state": ",".join(states) or None,
            "test": test,
            "task": task,
            "prefix": prefix,
            "from": _instant_text(starts),
            "to": _instant_text(ends),
            "order": "asc" if oldest_first else None,
            "requester": requester,
            "participant": participant,
            "target": target,
            "campaign": campaign,
            "mesh": mesh,
            "class": ",".join(classes) or None,
            "verdict": ",".join(verdicts) or None,
            "outcome": ",".join(outcomes) or None,
            "limit": limit,
            "cursor": cursor,
        }
        return await self._page(Run, "/runs", query, wait_s=wait_s)

    async def run(self, run: UUID, *, wait_s: int = 0) -> Run:
        """Return one run with its parts; with ``wait_s``, when it is over."""
        return await self._read(Run, "GET", f"/runs/{run}", wait_s=wait_s)

    async def intervals(  # noqa: PLR0913 - the API's filters, each by name
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
        query = {
            "after": after,
            "since": _instant_text(since),
            "order": "desc" if latest_first else None,
            "limit": limit,
            "cursor": cursor,
        }
        return await self._page(RunInterval, f"/runs/{run}/intervals", query, wait_s=wait_s)

    async def cancel_run(self, run: UUID) -> Run:
        """Cancel one run; a running one is stopped on every participant."""
        return await self._read(Run, "DELETE", f"/runs/{run}")

    async def explain_run(self, run: UUID) -> Explanation:
        """Explain why a run is in its state, or did not take place."""
        return await self._read(Explanation, "GET", f"/runs/{run}/explain")

    async def run_bundle(self, run: UUID) -> dict[str, Any]:
        """Return the signed bundle of a run, as the JSON it is: its digests are of that."""
        document = await self._ask("GET", f"/runs/{run}/bundle")
        read(RunBundle, document)
        return dict(document)

    async def schedule_changes(
        self,
        since: int | None = None,
        until: int | None = None,
        *,
        starts: int | None = None,
        ends: int | None = None,
    ) -> ScheduleDifference:
        """Return what has changed in a span of the node's timeline between two instants."""
        instants = {"since": since, "until": until, "from": starts, "to": ends}
        query = {name: _instant_text(instant) for name, instant in instants.items()}
        return await self._read(ScheduleDifference, "GET", "/schedule/changes", query=query)

    async def schedule(
        self, starts: int | None = None, ends: int | None = None, as_of: int | None = None
    ) -> TimeSpan:
        """Return a span of the node's timeline, in the order of starts; page by page.

        With ``as_of``, as it stood then.
        """
        then = {"as_of": _instant_text(as_of)}
        query = {"from": _instant_text(starts), "to": _instant_text(ends), **then}
        body = await self._ask("GET", "/schedule", query=query)
        try:
            span = TimeSpan(
                now=parse_instant(body["now"]),
                starts_at=parse_instant(body["from"]),
                ends_at=parse_instant(body["to"]),
                entries=(),
                complete=True,
                reserved=tuple(read(ReservedSpan, each) for each in body.get("reserved", ())),
            )
            read_page = page(ScheduleEntry, body)
            entries = list(read_page.items)
            # Without these two, later pages would be those of a span that begins later.
            query = {
                "from": _instant_text(span.starts_at),
                "to": _instant_text(span.ends_at),
                **then,
            }
            while read_page.next is not None and len(entries) < _ENTRIES_MAX:
                asked = {**query, "cursor": read_page.next}
                read_page = await self._page(ScheduleEntry, "/schedule", query=asked)
                entries += read_page.items
            return replace(span, entries=tuple(entries), complete=read_page.next is None)
        except (KeyError, TypeError, ValueError) as error:
            msg = f"the node's schedule cannot be read: {error!r}"
            raise PeerAnswered(msg) from error

    # Reservations

    async def add_reservation(
        self, document: Mapping[str, Any], key: str | None = None
    ) -> Reservation:
        """Reserve time of the node; the answer has the runs that were booked in it before.

        A repeated ``key`` (Idempotency-Key) gives the reservation created before.
        """
        return await self._read(Reservation, "POST", "/reservations", body=document, key=key)

    async def reservations(
        self, *, prefix: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[Reservation]:
        """Return a page of reservations, newest first."""
        query = {"prefix": prefix, "limit": limit, "cursor": cursor}
        return await self._page(Reservation, "/reservations", query)

    async def reservation(self, reservation: UUID) -> Reservation:
        """Return one reservation, with the runs that were booked in its time before."""
        return await self._read(Reservation, "GET", f"/reservations/{reservation}")

    async def edit_reservation(self, reservation: UUID, patch: Mapping[str, Any]) -> Reservation:
        """Change a reservation by a merge patch."""
        return await self._read(Reservation, "PATCH", f"/reservations/{reservation}", body=patch)

    async def remove_reservation(self, reservation: UUID) -> None:
        """Remove a reservation; its time is free at once."""
        await self._ask("DELETE", f"/reservations/{reservation}")

    # Campaigns and pools

    async def add_campaign(self, document: Mapping[str, Any]) -> Campaign:
        """Add a campaign; an identical one again changes nothing."""
        return await self._read(Campaign, "POST", "/campaigns", body=document)

    async def campaigns(self, *, limit: int = 50, cursor: str | None = None) -> Page[Campaign]:
        """Return a page of campaigns, by name."""
        return await self._page(Campaign, "/campaigns", {"limit": limit, "cursor": cursor})

    async def campaign(self, name: str) -> Campaign:
        """Return one campaign."""
        return await self._read(Campaign, "GET", f"/campaigns/{_segment(name)}")

    async def edit_campaign(self, name: str, patch: Mapping[str, Any]) -> Campaign:
        """Change a campaign by a merge patch."""
        return await self._read(Campaign, "PATCH", f"/campaigns/{_segment(name)}", body=patch)

    async def remove_campaign(self, name: str) -> None:
        """Remove a campaign that was never used."""
        await self._ask("DELETE", f"/campaigns/{_segment(name)}")

    async def usage(
        self,
        name: str | None,
        *,
        since: int | None = None,
        until: int | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[UsageHour]:
        """Return a page of the usage of one campaign, or of all, hour by hour."""
        path = "/usage" if name is None else f"/campaigns/{_segment(name)}/usage"
        query = {
            "since": _instant_text(since),
            "until": _instant_text(until),
            "limit": limit,
            "cursor": cursor,
        }
        return await self._page(UsageHour, path, query)

    async def add_pool(self, document: Mapping[str, Any]) -> Pool:
        """Add a pool; an identical one again changes nothing."""
        return await self._read(Pool, "POST", "/pools", body=document)

    async def policy_sets(self) -> Page[PolicySet]:
        """Return the policy sets that a pool can have, the recommended one first."""
        return await self._page(PolicySet, "/policysets")

    async def pools(self, *, limit: int = 50, cursor: str | None = None) -> Page[Pool]:
        """Return a page of pools, by name."""
        return await self._page(Pool, "/pools", {"limit": limit, "cursor": cursor})

    async def pool(self, name: str) -> Pool:
        """Return one pool."""
        return await self._read(Pool, "GET", f"/pools/{_segment(name)}")

    async def edit_pool(self, name: str, patch: Mapping[str, Any]) -> Pool:
        """Change a pool by a merge patch."""
        return await self._read(Pool, "PATCH", f"/pools/{_segment(name)}", body=patch)

    async def plan_policy(self, name: str, request: Mapping[str, Any]) -> PolicyPlan:
        """Return what other policies would change in a pool; nothing is changed or booked."""
        path = f"/pools/{_segment(name)}/policy-plan"
        return await self._read(PolicyPlan, "POST", path, body=request)

    async def remove_pool(self, name: str) -> None:
        """Remove a pool; its nodes stay."""
        await self._ask("DELETE", f"/pools/{_segment(name)}")

    # Meshes

    async def meshes(
        self, *, removed: bool = False, limit: int = 50, cursor: str | None = None
    ) -> Page[Mesh]:
        """Return a page of meshes; with ``removed``, also those with only cancelled tasks."""
        query = {"removed": removed, "limit": limit, "cursor": cursor}
        return await self._page(Mesh, "/meshes", query)

    async def mesh(self, name: str, since: int, until: int) -> MeshDelivery:
        """Return one mesh, and what it has delivered in ``[since, until)``, up to now at most."""
        query = {"from": format_instant(since), "to": format_instant(until)}
        return await self._read(MeshDelivery, "GET", f"/meshes/{_segment(name)}", query=query)

    async def mesh_pairs(
        self, name: str, since: int, until: int, cursor: str | None = None
    ) -> Page[MeshPair]:
        """Return a page of what each pair of a mesh has delivered, in the order of their keys."""
        span = {"from": format_instant(since), "to": format_instant(until)}
        query = {**span, "limit": _PAIRS, "cursor": cursor}
        return await self._page(MeshPair, f"/meshes/{_segment(name)}/pairs", query)

    async def worst_mesh_pairs(
        self, name: str, since: int, until: int, limit: int
    ) -> Page[MeshPair]:
        """Return the pairs of a mesh with the smallest share of delivered slots, worst first."""
        span = {"from": format_instant(since), "to": format_instant(until)}
        query = {**span, "order": "worst", "limit": limit}
        return await self._page(MeshPair, f"/meshes/{_segment(name)}/pairs", query)

    async def mesh_tasks(self, name: str, cursor: str | None = None) -> Page[MeshTask]:
        """Return a page of the tasks of a mesh: those not over, and the newest of each key."""
        query = {"limit": _PAIRS, "cursor": cursor}
        return await self._page(MeshTask, f"/meshes/{_segment(name)}/tasks", query)

    # Nodes, tests, tools

    async def own_card(self) -> NodeCard:
        """Return the node's card."""
        return await self._read(NodeCard, "GET", CARD)

    async def add_node(self, addition: NodeAddition) -> Node:
        """Add another node; its key is pinned."""
        body = addition.model_dump(mode="json", exclude_none=True)
        return await self._read(Node, "POST", "/nodes", body=body)

    async def make_directory(self, entries: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
        """Have the node sign a directory of these nodes, or of those that it knows."""
        body = {} if entries is None else {"nodes": entries}
        signed = await self._read(NodeDirectory, "POST", "/directories", body=body)
        return signed.model_dump(mode="json")

    async def introduce(
        self, directory: Mapping[str, Any], *, dry_run: bool = False
    ) -> IntroductionReport:
        """Add the nodes of a signed directory, or with ``dry_run`` find out what would be added."""
        query = {"dry_run": dry_run}
        return await self._read(
            IntroductionReport, "POST", "/introductions", query=query, body=directory
        )

    async def remove_node(self, name: str) -> NodeRemoval:
        """Remove a node, and end all open tasks with it; return what ended."""
        return await self._read(NodeRemoval, "DELETE", f"/nodes/{_segment(name)}")

    async def rekey(self) -> Rekeying:
        """Replace the key of the node."""
        return await self._read(Rekeying, "POST", "/nodes/self/rekey")

    async def revoke_own_key(
        self, key: str | None = None, *, prepare: bool = False
    ) -> RevocationReport:
        """Revoke a key of the node; with ``prepare`` only sign that it is revoked."""
        body = {"key": key, "prepare": prepare}
        return await self._read(RevocationReport, "POST", "/nodes/self/revocation", body=body)

    async def revoke_key(self, statement: str) -> RevocationReport:
        """Have the node take in, and pass on, that a key is revoked."""
        body = {"statement": statement}
        return await self._read(RevocationReport, "POST", "/revocations", body=body)

    async def revoke_node(self, name: str) -> RevocationReport:
        """Let the keys of another node count for nothing at this one any more."""
        return await self._read(RevocationReport, "POST", "/revocations", body={"node": name})

    async def pardon_node(self, name: str) -> Node:
        """Forget the failed runs and the refusals that policies hold against a node."""
        return await self._read(Node, "POST", f"/nodes/{_segment(name)}/pardon")

    async def shares(self) -> Page[LeadShare]:
        """Return the shares of leads in the node's time, and what each had."""
        return await self._page(LeadShare, "/shares")

    async def limits(self) -> ShownLimits:
        """Return the limits of what other nodes may have of the node's host."""
        return await self._read(ShownLimits, "GET", "/limits")

    async def limits_of(self, name: str) -> GrantedLimits:
        """Have the node ask another one what its limits allow it."""
        return await self._read(GrantedLimits, "GET", f"/nodes/{_segment(name)}/limits")

    async def try_limits(self, lead: str, task: dict[str, Any]) -> LimitTrial:
        """Try a task against the node's limits, as if this node introduced it."""
        body = {"as": lead, "task": task}
        return await self._read(LimitTrial, "POST", "/limits/trials", body=body)

    async def compare_node(self, name: str) -> NodeComparison:
        """Have the node compare with another one, and repair what differs."""
        return await self._read(NodeComparison, "POST", f"/nodes/{_segment(name)}/compare")

    async def tests(self) -> Page[TestDescription]:
        """Return the tests."""
        return await self._page(TestDescription, "/tests")

    async def test(self, name: str) -> TestDescription:
        """Return one test, with the schema of its spec."""
        return await self._read(TestDescription, "GET", f"/tests/{_segment(name)}")

    async def tools(self) -> Page[ToolDescription]:
        """Return the tools, and whether the node's host has them."""
        return await self._page(ToolDescription, "/tools")

    async def clock(self) -> ClockState:
        """Return the state of the node's clock."""
        return await self._read(ClockState, "GET", "/clock")

    async def nodes(self, match: Mapping[str, Any] | None = None) -> Page[Node]:
        """Return the known nodes, itself included, or those that meet a predicate."""
        query = {"match": json.dumps(match) if match else None}
        return await self._page(Node, "/nodes", query)

    async def set_attributes(self, attributes: Mapping[str, Any]) -> Node:
        """Set attributes of the node; ``None`` removes one."""
        body = {"attributes": dict(attributes)}
        return await self._read(Node, "PATCH", "/nodes/self", body=body)

    # Status and checks

    async def status(self) -> NodeStatus:
        """Return how the node is, and what needs attention."""
        return await self._read(NodeStatus, "GET", "/status")

    async def check(self, request: DiagnosisRequest) -> DiagnosisAnswer:
        """Have the node checked, or the way between two nodes."""
        body = request.model_dump(mode="json", by_alias=True)
        return await self._read(DiagnosisAnswer, "POST", "/checks", body=body)

    # Archives

    async def archiver(self, name: str) -> ArchiverKind:
        """Return one archiver, with the schema of its spec."""
        return await self._read(ArchiverKind, "GET", f"/archivers/{_segment(name)}")

    async def archivers(self) -> Page[ArchiverKind]:
        """Return the archivers."""
        return await self._page(ArchiverKind, "/archivers")

    async def add_archive(self, document: Mapping[str, Any]) -> Archive:
        """Add an archive of the node; an identical one again changes nothing."""
        return await self._read(Archive, "POST", "/archives", body=document)

    async def archives(self, *, limit: int = 50, cursor: str | None = None) -> Page[Archive]:
        """Return a page of the node's archives, by name."""
        return await self._page(Archive, "/archives", {"limit": limit, "cursor": cursor})

    async def archive(self, name: str) -> Archive:
        """Return one archive of the node."""
        return await self._read(Archive, "GET", f"/archives/{_segment(name)}")

    async def edit_archive(self, name: str, patch: Mapping[str, Any]) -> Archive:
        """Change an archive by a merge patch."""
        return await self._read(Archive, "PATCH", f"/archives/{_segment(name)}", body=patch)

    async def remove_archive(self, name: str) -> None:
        """Remove an archive and its waiting deliveries."""
        await self._ask("DELETE", f"/archives/{_segment(name)}")

    async def test_archive(self, name: str) -> ArchiveTested:
        """Check whether results can be delivered, without delivering one."""
        return await self._read(ArchiveTested, "POST", f"/archives/{_segment(name)}/test")

    async def archivings(
        self, query: Mapping[str, object], *, limit: int = 50, cursor: str | None = None
    ) -> Page[Archiving]:
        """Return a page of deliveries, newest first; ``query`` has the API's filters."""
        full_query = {**query, "limit": limit, "cursor": cursor}
        return await self._page(Archiving, "/archivings", query=full_query)

    async def backlog(self) -> Page[Backlog]:
        """Return the waiting and parked deliveries by destination."""
        return await self._page(Backlog, "/archivings/backlog")

    async def retry_archivings(self, document: Mapping[str, Any]) -> Retried:
        """Retry deliveries at once."""
        return await self._read(Retried, "POST", "/archivings/retry", body=document)

    # Tokens, webhooks, secrets, audit

    async def add_token(self, request: TokenRequest) -> NewToken:
        """Make a token; only this answer has its secret."""
        body = request.model_dump(mode="json")
        return await self._read(NewToken, "POST", "/tokens", body=body)

    async def tokens(
        self, *, prefix: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[Token]:
        """Return a page of tokens, newest first."""
        query = {"prefix": prefix, "limit": limit, "cursor": cursor}
        return await self._page(Token, "/tokens", query)

    async def revoke_token(self, token: UUID) -> Token:
        """Make a token invalid at once."""
        return await self._read(Token, "DELETE", f"/tokens/{token}")

    async def add_webhook(self, document: Mapping[str, Any]) -> NewWebhook:
        """Add a webhook; only this answer has its secret."""
        return await self._read(NewWebhook, "POST", "/webhooks", body=document)

    async def alerts(
        self,
        *,
        state: str | None = None,
        task: UUID | None = None,
        mesh: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Alert]:
        """Return a page of alerts, the latest first; by default those that are raised."""
        asked = {"state": state, "task": task, "mesh": mesh, "limit": limit, "cursor": cursor}
        return await self._page(Alert, "/alerts", asked)

    async def change_alert(self, alert: UUID, document: Mapping[str, Any]) -> Alert:
        """Acknowledge an alert (``acknowledged``), or silence it (``silent_until``)."""
        return await self._read(Alert, "PATCH", f"/alerts/{alert}", body=document)

    async def webhooks(self, *, limit: int = 50, cursor: str | None = None) -> Page[Webhook]:
        """Return a page of webhooks, by name."""
        return await self._page(Webhook, "/webhooks", {"limit": limit, "cursor": cursor})

    async def test_webhook(self, name: str) -> WebhookTested:
        """Send a message of the type test; return when it was accepted."""
        return await self._read(WebhookTested, "POST", f"/webhooks/{_segment(name)}/test")

    async def remove_webhook(self, name: str) -> None:
        """Remove a webhook, and drop what it was not told yet."""
        await self._ask("DELETE", f"/webhooks/{_segment(name)}")

    async def add_secret(self, document: Mapping[str, Any]) -> Secret:
        """Add a secret, or replace it; no answer has its value."""
        return await self._read(Secret, "POST", "/secrets", body=document)

    async def secrets(self, *, limit: int = 50, cursor: str | None = None) -> Page[Secret]:
        """Return a page of secrets by name, without their values."""
        return await self._page(Secret, "/secrets", {"limit": limit, "cursor": cursor})

    async def remove_secret(self, name: str) -> None:
        """Remove a secret."""
        await self._ask("DELETE", f"/secrets/{_segment(name)}")

    async def audit(  # noqa: PLR0913 - the API's filters, each by name
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
        query = {
            "principal": principal,
            "verb": verb,
            "thing": thing,
            "outcome": ",".join(outcomes) or None,
            "since": _instant_text(since),
            "until": _instant_text(until),
            "order": "asc" if oldest_first else None,
            "limit": limit,
            "cursor": cursor,
        }
        return await self._page(AuditRecord, "/audit", query, wait_s=wait_s)

    # Waiting without a limit; a caller that wants one uses a timeout

    async def until_planned(self, task: UUID) -> Task:
        """Return the task when planning was attempted, or at once if that is not soon or here."""
        current = await self.task(task, wait_s=_POLL_S)
        while self._is_about_to_be_planned(current):
            await self._clock.sleep(_PAUSE_S)
            current = await self.task(task, wait_s=_POLL_S)
        return current

    def _is_about_to_be_planned(self, task: Task) -> bool:
        if task.planned or task.state != TaskState.ACTIVE or not task.led_here:
            return False
        return task.plan_at is not None and task.plan_at <= self._clock.now() + _SOON

    async def until_run(self, task: UUID, states: Iterable[str] = ()) -> Run | None:
        """Return the task's first run in one of the states; ``None`` if it ends without one."""
        wanted, wait_s = tuple(states), 0
        while True:
            page = await self.runs(
                task=task, states=wanted, oldest_first=True, limit=1, wait_s=wait_s
            )
            if page.items:
                return page.items[0]
            if (await self.task(task)).state != TaskState.ACTIVE:
                return None
            await self._clock.sleep(_PAUSE_S)
            wait_s = _POLL_S


def _instant_text(instant: int | None) -> str | None:
    return None if instant is None else format_instant(instant)


def _segment(name: str) -> str:
    """Return a name as one segment of a path, whatever is in it."""
    return quote(name, safe="")
