"""The typed client of a node's HTTP API, for people and their programs.

Every method returns the wire model that the API documents, or raises the :class:`ParleyError`
from which the node made its problem document. A request whose connection was lost is sent once
more, which is safe because every POST carries an idempotency key and everything else is
idempotent by itself. There are no further retries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote
from uuid import uuid4

import aiohttp
from yarl import URL

from node.client.answers import (
    Answer,
    Members,
    document_of,
    foreign_answer_error,
    object_of,
    plain_http_refusal,
    records_in,
    unreachable_error,
)
from node.client.answers import Page as Page  # noqa: PLC0414 - the client's callers name it
from node.client.archives import ArchivesApi
from node.client.audit import AuditApi
from node.client.causes import cause_of
from node.client.diagnosis import DiagnosisApi
from node.client.events import ServerEvent, parse_events
from node.client.meshes import MeshesApi
from node.client.responses import non_finite_faults, page, read
from node.client.secrets import SecretsApi
from node.client.tokens import TokensApi
from node.client.webhooks import WebhooksApi
from node.model import times
from node.model.errors import (
    AnswerLost,
    InvalidDocument,
    NotAllowed,
    ParleyError,
    PeerAnswered,
    PeerUnreachable,
)
from node.model.loopback import is_exposed
from node.model.taskstate import TaskState
from node.model.wire.bundles import RunBundle
from node.model.wire.comparisons import NodeComparison
from node.model.wire.directories import IntroductionReport, NodeDirectory
from node.model.wire.host_limits import GrantedLimits, LimitTrial, ShownLimits
from node.model.wire.keys import Rekeying, RevocationReport
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
from node.model.wire.problems import error_of
from node.model.wire.reservations import Reservation, ReservedSpan
from node.model.wire.runs import (
    Explanation,
    Run,
    RunInterval,
    ScheduleDifference,
    ScheduleEntry,
)
from node.model.wire.seats import Seat
from node.model.wire.shares import LeadShare
from node.model.wire.task_lists import TaskChange, TaskCreation
from node.model.wire.tasks import Task

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
    from types import TracebackType
    from uuid import UUID

    from node.runtime.clock import Clock
    from node.trust.tls import TlsOptions

_CARD = "/nodes/self"
_CONNECT_S = 5
_POLL_S = 20
_DISPLACING_S = 600
"""Timeout of a reservation that displaces: of tens of thousands of runs that takes a minute."""
_SILENT_S = 40
"""Seconds after which a stream of events is broken: a node sends something every 15 s."""
_CLOSED = "a UserClient is used as an asynchronous context manager"
_PAUSE_S = 0.1
_SOON = 5 * times.SECOND
_ENTRIES_MAX = 20_000
"""Most runs that are read of one span of a schedule."""


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


class UserClient(
    MeshesApi, ArchivesApi, AuditApi, DiagnosisApi, TokensApi, WebhooksApi, SecretsApi
):
    """A session with one node; use it as an asynchronous context manager."""

    def __init__(  # noqa: PLR0913 - the last four have defaults
        self,
        server: str,
        token: str | None,
        clock: Clock,
        *,
        wary: bool = False,
        patience_s: float = 30,
        tls: TlsOptions | None = None,
        plain_http: bool = False,
    ) -> None:
        """Use ``server`` (scheme, host and port); wait ``patience_s`` for an answer.

        ``wary``: send the token only to a server that answers like a node without it. ``tls``
        says whom to trust over https (:mod:`node.client.first_contact`), by default whom the
        authorities of this host do. ``plain_http``: send the token over http to other hosts, too.
        """
        self._tls: TlsOptions = tls or {}
        self._plain_http = plain_http
        self.server = server
        self._token = token
        self._wary = wary
        self._clock = clock
        self._patience_s = patience_s
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the session.

        :raises NotAllowed: the token would be sent so that others could read it on the way.
        :raises PeerError: ``wary``, and the server is not a node.
        """
        if self._token and not self._plain_http and is_exposed(self.server):
            raise NotAllowed(plain_http_refusal(self.server))
        if self._wary and self._token:
            async with UserClient(
                self.server, None, self._clock, patience_s=self._patience_s, tls=self._tls
            ) as stranger:
                await stranger.check_node()
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        self._http = aiohttp.ClientSession(headers=headers)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the session."""
        if self._http is not None:
            await self._http.close()

    # Tasks

    async def create_task(
        self, document: Mapping[str, Any], key: str | None = None, *, if_time: bool = False
    ) -> Task:
        """Post a task document; the node validates it field by field.

        A repeated ``key`` (Idempotency-Key) gives the task created before. With ``if_time``, the
        task is created only if one of its runs finds time.

        :raises NoTime: none does; the error has other tasks that would find time.
        """
        query = {"if_time": "true" if if_time else None}
        return read(Task, await self._ask("POST", "/tasks", query=query, body=document, key=key))

    async def create_tasks(
        self, documents: Sequence[tuple[Mapping[str, Any], str]]
    ) -> list[UUID | ParleyError]:
        """Post task documents, each with its Idempotency-Key, in one list of at most TASKS_MAX.

        Return the id of each task, or why it was not created.
        """
        body = [{**document, "idempotency_key": key} for document, key in documents]
        answers = page(TaskCreation, await self._ask("POST", "/tasks", body=body)).items
        if len(answers) != len(body):
            msg = f"{self.server} answered {len(answers)} of {len(body)} tasks"
            raise PeerAnswered(msg)
        return [_id_or_error(answer, self.server) for answer in answers]

    async def plan(self, document: Mapping[str, Any]) -> Plan:
        """Preview a task document; nothing is booked or stored."""
        return read(Plan, await self._ask("POST", "/plans", body=document))

    async def plan_together(
        self, documents: Sequence[Mapping[str, Any]]
    ) -> list[Plan | ParleyError]:
        """Preview the documents of at most PLANS_MAX tasks, as if they were created together.

        Return the plan of each, or why there is none.
        """
        answers = page(ListedPlan, await self._ask("POST", "/plans", body=list(documents))).items
        if len(answers) != len(documents):
            msg = f"{self.server} answered {len(answers)} of {len(documents)} plans"
            raise PeerAnswered(msg)
        return [_plan_or_error(answer, self.server) for answer in answers]

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
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Task]:
        """Return a page of tasks, newest first; with ``seats``, also the tasks of seats."""
        query = {"state": state, "test": test, "prefix": prefix, "limit": limit, "cursor": cursor}
        query |= {"seats": "true" if seats else None, "requester": requester}
        query |= {"participant": participant, "target": target, "campaign": campaign}
        query |= {"mesh": mesh, "class": ",".join(classes) or None}
        return page(Task, await self._ask("GET", "/tasks", query=query))

    async def task(self, task: UUID, *, wait_s: int = 0) -> Task:
        """Return one task; with ``wait_s``, when planning has been attempted."""
        return read(Task, await self._ask("GET", f"/tasks/{task}", wait_s=wait_s))

    async def seats(self, task: UUID) -> Page[Seat]:
        """Return the seats of a pool task, in the terms that are not over."""
        return page(Seat, await self._ask("GET", f"/tasks/{task}/seats"))

    async def cancel_task(self, task: UUID) -> Task:
        """Cancel a task with all its runs; idempotent."""
        return read(Task, await self._ask("DELETE", f"/tasks/{task}"))

    async def pause_task(self, task: UUID) -> Task:
        """Free a task's future runs, and plan no others; idempotent."""
        return read(Task, await self._ask("POST", f"/tasks/{task}/pause"))

    async def resume_task(self, task: UUID) -> Task:
        """Plan a paused task again; idempotent."""
        return read(Task, await self._ask("POST", f"/tasks/{task}/resume"))

    async def release_task(self, task: UUID) -> Task:
        """Try now what a task waits for, and end a hold by policies; idempotent."""
        return read(Task, await self._ask("POST", f"/tasks/{task}/release"))

    async def edit_task(
        self, task: UUID, patch: Mapping[str, Any], *, dry_run: bool = False
    ) -> Task:
        """Change a task by a merge patch; with ``dry_run``, only return the task as it would be."""
        query = {"dry_run": "true" if dry_run else None}
        return read(Task, await self._ask("PATCH", f"/tasks/{task}", query=query, body=patch))

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
        query = {"dry_run": "true" if dry_run else None}
        answer = await self._ask("POST", "/tasks/changes", query=query, body=body)
        return list(page(TaskChange, answer).items)

    async def explain_task(self, task: UUID, slot: int | None = None) -> Explanation:
        """Explain why a task is in its state, or why its slot with this nominal start is."""
        query = {} if slot is None else {"slot": times.format_instant(slot)}
        return read(Explanation, await self._ask("GET", f"/tasks/{task}/explain", query=query))

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
            "limit": limit,
            "cursor": cursor,
        }
        return page(Run, await self._ask("GET", "/runs", query=query, wait_s=wait_s))

    async def run(self, run: UUID, *, wait_s: int = 0) -> Run:
        """Return one run with its parts; with ``wait_s``, when it is over."""
        return read(Run, await self._ask("GET", f"/runs/{run}", wait_s=wait_s))

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
        path = f"/runs/{run}/intervals"
        return page(RunInterval, await self._ask("GET", path, query=query, wait_s=wait_s))

    async def cancel_run(self, run: UUID) -> Run:
        """Cancel one run; a running one is stopped on every participant."""
        return read(Run, await self._ask("DELETE", f"/runs/{run}"))

    async def explain_run(self, run: UUID) -> Explanation:
        """Explain why a run is in its state, or did not take place."""
        return read(Explanation, await self._ask("GET", f"/runs/{run}/explain"))

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
        return read(ScheduleDifference, await self._ask("GET", "/schedule/changes", query=query))

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
                now=times.parse_instant(body["now"]),
                starts_at=times.parse_instant(body["from"]),
                ends_at=times.parse_instant(body["to"]),
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
                read_page = page(ScheduleEntry, await self._ask("GET", "/schedule", query=asked))
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
        return read(Reservation, await self._ask("POST", "/reservations", body=document, key=key))

    async def reservations(
        self, *, prefix: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[Reservation]:
        """Return a page of reservations, newest first."""
        query = {"prefix": prefix, "limit": limit, "cursor": cursor}
        return page(Reservation, await self._ask("GET", "/reservations", query=query))

    async def reservation(self, reservation: UUID) -> Reservation:
        """Return one reservation, with the runs that were booked in its time before."""
        return read(Reservation, await self._ask("GET", f"/reservations/{reservation}"))

    async def edit_reservation(self, reservation: UUID, patch: Mapping[str, Any]) -> Reservation:
        """Change a reservation by a merge patch."""
        path = f"/reservations/{reservation}"
        return read(Reservation, await self._ask("PATCH", path, body=patch))

    async def remove_reservation(self, reservation: UUID) -> None:
        """Remove a reservation; its time is free at once."""
        await self._ask("DELETE", f"/reservations/{reservation}")

    # Nodes, tests, tools

    async def own_card(self) -> NodeCard:
        """Return the node's card."""
        return read(NodeCard, await self._ask("GET", _CARD))

    async def check_node(self) -> None:
        """Check that the server is a node of any version, by its card, which is open to all.

        :raises PeerError: it is not.
        """
        card = await self._ask("GET", _CARD)
        if not isinstance(card, dict) or not str(card.get("identity")).startswith("ed25519:"):
            msg = f"{self.server} does not answer like a node; name a node with --server"
            raise PeerAnswered(msg)

    async def add_node(self, addition: NodeAddition) -> Node:
        """Add another node; its key is pinned."""
        body = addition.model_dump(mode="json", exclude_none=True)
        return read(Node, await self._ask("POST", "/nodes", body=body))

    async def make_directory(self, entries: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
        """Have the node sign a directory of these nodes, or of those that it knows."""
        body = {} if entries is None else {"nodes": entries}
        signed = read(NodeDirectory, await self._ask("POST", "/directories", body=body))
        return signed.model_dump(mode="json")

    async def introduce(
        self, directory: Mapping[str, Any], *, dry_run: bool = False
    ) -> IntroductionReport:
        """Add the nodes of a signed directory, or with ``dry_run`` find out what would be added."""
        query = {"dry_run": "true" if dry_run else None}
        answer = await self._ask("POST", "/introductions", query=query, body=directory)
        return read(IntroductionReport, answer)

    async def remove_node(self, name: str) -> NodeRemoval:
        """Remove a node, and end all open tasks with it; return what ended."""
        return read(NodeRemoval, await self._ask("DELETE", f"/nodes/{quote(name, safe='')}"))

    async def rekey(self) -> Rekeying:
        """Replace the key of the node."""
        return read(Rekeying, await self._ask("POST", "/nodes/self/rekey"))

    async def revoke_own_key(
        self, key: str | None = None, *, prepare: bool = False
    ) -> RevocationReport:
        """Revoke a key of the node; with ``prepare`` only sign that it is revoked."""
        body = {"key": key, "prepare": prepare}
        answer = await self._ask("POST", "/nodes/self/revocation", body=body)
        return read(RevocationReport, answer)

    async def revoke_key(self, statement: str) -> RevocationReport:
        """Have the node take in, and pass on, that a key is revoked."""
        answer = await self._ask("POST", "/revocations", body={"statement": statement})
        return read(RevocationReport, answer)

    async def revoke_node(self, name: str) -> RevocationReport:
        """Let the keys of another node count for nothing at this one any more."""
        answer = await self._ask("POST", "/revocations", body={"node": name})
        return read(RevocationReport, answer)

    async def pardon_node(self, name: str) -> Node:
        """Forget the failed runs and the refusals that policies hold against a node."""
        return read(Node, await self._ask("POST", f"/nodes/{quote(name, safe='')}/pardon"))

    async def shares(self) -> Page[LeadShare]:
        """Return the shares of leads in the node's time, and what each had."""
        return page(LeadShare, await self._ask("GET", "/shares"))

    async def limits(self) -> ShownLimits:
        """Return the limits of what other nodes may have of the node's host."""
        return read(ShownLimits, await self._ask("GET", "/limits"))

    async def limits_of(self, name: str) -> GrantedLimits:
        """Have the node ask another one what its limits allow it."""
        path = f"/nodes/{quote(name, safe='')}/limits"
        return read(GrantedLimits, await self._ask("GET", path))

    async def try_limits(self, lead: str, task: dict[str, Any]) -> LimitTrial:
        """Try a task against the node's limits, as if this node introduced it."""
        body = {"as": lead, "task": task}
        return read(LimitTrial, await self._ask("POST", "/limits/trials", body=body))

    async def compare_node(self, name: str) -> NodeComparison:
        """Have the node compare with another one, and repair what differs."""
        path = f"/nodes/{quote(name, safe='')}/compare"
        return read(NodeComparison, await self._ask("POST", path))

    async def tests(self) -> Page[TestDescription]:
        """Return the tests."""
        return page(TestDescription, await self._ask("GET", "/tests"))

    async def test(self, name: str) -> TestDescription:
        """Return one test, with the schema of its spec."""
        return read(TestDescription, await self._ask("GET", f"/tests/{quote(name, safe='')}"))

    async def tools(self) -> Page[ToolDescription]:
        """Return the tools, and whether the node's host has them."""
        return page(ToolDescription, await self._ask("GET", "/tools"))

    async def clock(self) -> ClockState:
        """Return the state of the node's clock."""
        return read(ClockState, await self._ask("GET", "/clock"))

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

    async def events(
        self,
        after: int | None = None,
        *,
        types: Sequence[str] | None = None,
        task: UUID | None = None,
    ) -> AsyncIterator[ServerEvent]:
        """Yield the events of the node as they happen; with ``after`` those since that one, too.

        Of earlier ones the node keeps some; an event ``gap`` tells that it has lost some. Only
        those of these types and about this task are sent, if given. The stream ends with the
        validity of the token, and if the reader is too slow.

        :raises PeerUnreachable: the connection was lost; the last number resumes the stream.
        """
        if self._http is None:
            raise RuntimeError(_CLOSED)
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        timeout = aiohttp.ClientTimeout(sock_connect=_CONNECT_S, sock_read=_SILENT_S)
        chosen = {"types": ",".join(types or ()), "task": str(task or "")}
        url = URL(f"{self.server}/v1/events").with_query(
            {name: value for name, value in chosen.items() if value}
        )
        try:
            async with self._http.get(
                url, headers=headers, timeout=timeout, allow_redirects=False, **self._tls
            ) as response:
                if response.content_type != "text/event-stream":
                    self._answer(response, await response.read())
                    raise foreign_answer_error(self._whole_answer(response, b""))
                async for event in parse_events(response.content):
                    yield event
        except TimeoutError as error:
            raise self._unreachable(f"it sent nothing for {_SILENT_S} s") from error
        except aiohttp.ClientError as error:
            raise self._unreachable(cause_of(error)) from error

    # Documents as they are, for commands that show them

    async def listed(self, path: str, query: Mapping[str, object]) -> Page[Members]:
        """Return a page of a list as the objects of the API."""
        return records_in(await self._ask("GET", path, query=query))

    async def document(self, path: str, query: Mapping[str, object] | None = None) -> Members:
        """Return one object of the API."""
        return object_of(await self._ask("GET", path, query=query))

    # The exchange of messages

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, Any] | Sequence[Any] | None = None,
        wait_s: int = 0,
        key: str | None = None,
    ) -> Any:
        """Send a request and return the JSON of its answer; repeat it once if the connection fails.

        :raises AnswerLost: the node may have carried out the request.
        """
        if faults := non_finite_faults(body):
            raise InvalidDocument(faults)
        parameters = {**(query or {}), "wait": wait_s or None}
        url = URL(f"{self.server}/v1{path}", encoded=True).with_query(
            {key: str(value) for key, value in parameters.items() if value is not None}
        )
        # Each item of a list has its own.
        keyed = method == "POST" and not isinstance(body, list)
        headers = {"Idempotency-Key": key or str(uuid4())} if keyed else {}
        displaces = isinstance(body, dict) and body.get("displace") is True
        timeout = aiohttp.ClientTimeout(
            total=(_DISPLACING_S if displaces else self._patience_s) + wait_s,
            sock_connect=min(_CONNECT_S, self._patience_s),
        )

        async def send() -> Any:
            return await self._send(
                method, url, json=body, headers=headers, timeout=timeout, allow_redirects=False
            )

        try:
            return await _send_twice_if_lost(send)
        except TimeoutError as error:
            cause = f"no answer within {timeout.total:g} s"
            if method == "GET" or isinstance(error, aiohttp.ClientError):
                raise self._unreachable(cause) from error
            msg = (
                f"the node at {self.server} gave {cause}; it may have carried out the request: "
                "check before you repeat it"
            )
            raise AnswerLost(msg) from error
        except aiohttp.ClientError as error:
            raise self._unreachable(cause_of(error)) from error

    async def _send(self, method: str, url: URL, **options: Any) -> Any:
        if self._http is None:
            raise RuntimeError(_CLOSED)
        async with self._http.request(method, url, **self._tls, **options) as response:
            return self._answer(response, await response.read())

    def _answer(self, response: aiohttp.ClientResponse, raw: bytes) -> Any:
        return document_of(self._whole_answer(response, raw))

    def _whole_answer(self, response: aiohttp.ClientResponse, raw: bytes) -> Answer:
        reason = response.reason or ""
        return Answer(self.server, response.status, reason, response.content_type, raw)

    def _unreachable(self, cause: str) -> PeerUnreachable:
        return unreachable_error(self.server, cause)


async def _send_twice_if_lost(send: Callable[[], Awaitable[Any]]) -> Any:
    """Return the answer; send again if the connection was lost after it had been established."""
    try:
        return await send()
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
        return await send()


def _instant_text(instant: int | None) -> str | None:
    return None if instant is None else times.format_instant(instant)


def _plan_or_error(answer: ListedPlan, server: str) -> Plan | ParleyError:
    if answer.plan is not None:
        return answer.plan
    if answer.problem is not None:
        return error_of(answer.problem)
    return PeerAnswered(f"{server} gave neither a plan nor a reason")


def _id_or_error(answer: TaskCreation, server: str) -> UUID | ParleyError:
    if answer.task is not None:
        return answer.task
    if answer.problem is not None:
        return error_of(answer.problem)
    return PeerAnswered(f"{server} gave neither a task nor a reason")
