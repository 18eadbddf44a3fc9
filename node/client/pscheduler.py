"""The client for hosts that run pScheduler: the calls of a lead to a participant.

Each call is one request over TLS. The certificate of such a host proves nothing: they make their
own, and no authority signs it. An error comes as lines of text, which become the message of a
:class:`node.model.errors.ParleyError`. Documents are theirs: a member that is not of the expected
type is :class:`PeerAnswered`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

import aiohttp

from node.client.causes import cause_of
from node.model import times
from node.model.errors import (
    Conflict,
    NotAllowed,
    NotFound,
    ParleyError,
    PeerAnswered,
    PeerFailed,
    PeerUnreachable,
    RequestError,
)
from node.model.nodekinds import GREETING
from node.model.spans import Span
from node.trust.tls import anybody

JsonObject = dict[str, Any]
Kind = TypeVar("Kind")

API_LEVEL = 6
"""The level of their API that this client speaks; lower ones answer some requests otherwise."""
_PROMPT_S = 10.0
"""Time for a question; their own leads take as long."""
_BOOKING_S = 30.0
"""Time for what makes programs start over there: a new task, a booking."""
_ANSWER_BYTES_MAX = 32_000_000
_TEXT_MAX = 600


@dataclass(frozen=True)
class OfferedTool:
    """A tool that a host would use for a test, or why it would not."""

    name: str
    refusal: str | None = None


@dataclass(frozen=True)
class HostDescription:
    """The name and the level of a host, as it says itself."""

    name: str
    level: int


@dataclass(frozen=True)
class HostClock:
    """The clock of a host (µs), and whether it says that it is synchronised."""

    now: int
    synchronised: bool


class PschedulerHosts:
    """Sends requests to hosts that run pScheduler."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        """Use this session, which the caller closes."""
        self._session = session

    def client_at(self, url: str, name: str | None = None) -> PschedulerHost:
        """Return the client of the host at ``https://HOST[:PORT]/pscheduler``."""
        return PschedulerHost(self._session, url.rstrip("/"), name or urlsplit(url).netloc)


class PschedulerHost:
    """One host that runs pScheduler, seen by a lead.

    Every method raises :class:`PeerUnreachable` without an answer, :class:`PeerAnswered` for one
    that makes no sense, and :class:`PeerFailed` if the host says that it has failed.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str, name: str) -> None:
        """Use :meth:`PschedulerHosts.client_at` instead."""
        self.url = url
        self.name = name
        self._session = session

    async def describe(self) -> HostDescription:
        """Return its name and the level of its API.

        :raises PeerAnswered: it does not run pScheduler, or is a node that answers like one.
        """
        if (await self.look()).startswith(GREETING):
            raise PeerAnswered(
                f"a node of Parley answers at {self.url}; add it by its own URL and key, which its "
                "owner sees with: parley node show"
            )
        name = await self._json("GET", "/hostname")
        if not isinstance(name, str) or not name:
            raise PeerAnswered(f"{self.name} does not say what it is called")
        return HostDescription(name, await self.level())

    async def look(self) -> str:
        """Return its greeting.

        :raises PeerAnswered: it does not run pScheduler.
        """
        try:
            answered = await self._json("GET", "/")
        except RequestError as error:
            raise PeerAnswered(f"no pScheduler answers at {self.url}: {error.detail}") from error
        if not isinstance(answered, str):
            raise PeerAnswered(f"{self.name} does not answer like pScheduler at {self.url}")
        return answered

    async def level(self) -> int:
        """Return the level of its API, a whole number that grows with each extension."""
        return self._checked_type(await self._json("GET", "/api"), int, "the level of its API")

    async def clock(self) -> HostClock:
        """Return the time of its clock (µs), and whether it is synchronised."""
        answered = await self._document("GET", "/clock", "its clock")
        now = self._instant(answered.get("time"))
        return HostClock(now, answered.get("synchronized") is True)

    async def horizon(self) -> int:
        """Return how far ahead it books (µs)."""
        return self._duration(await self._json("GET", "/schedule-horizon"))

    async def tools(self, test: JsonObject) -> list[OfferedTool]:
        """Return its tools for ``{"type": …, "spec": …}``, best first, and why others cannot."""
        query = {"test": json.dumps(test), "api": str(API_LEVEL)}
        listed = self._checked_type(await self._json("GET", "/tools", query), list, "its tools")
        return [self._offered_tool(each) for each in listed]

    def _offered_tool(self, listed: Any) -> OfferedTool:
        """Read an entry of the list of tools: the tool itself, or one with whether it can run."""
        entry: JsonObject = self._checked_type(listed, dict, "a tool")
        verdict = entry.get("can-run")
        tool = entry if verdict is None else self._checked_type(entry.get("tool"), dict, "a tool")
        name = self._checked_type(tool.get("name"), str, "the name of a tool")
        if verdict is None or self._checked_type(verdict, dict, "a tool").get("can-run") is True:
            return OfferedTool(name)
        reasons = verdict.get("reasons")
        words = [str(each) for each in reasons] if isinstance(reasons, list) else []
        return OfferedTool(name, "; ".join(words) or "it cannot run this test")

    async def limits_refusal(self, document: JsonObject) -> str | None:
        """Return why its limits forbid a task of its own, or None; also where it cannot tell."""
        query = {"proposal": json.dumps(document)}
        try:
            answered = await self._document("GET", "/limits", "its limits", query)
        except (NotFound, NotAllowed, RequestError, PeerFailed):
            return None
        if answered.get("passed") is not False:
            return None
        return (
            " ".join(str(answered.get("diags") or "").split())[:_TEXT_MAX] or "they do not say why"
        )

    async def join(self, task: UUID, participant: int, document: JsonObject) -> None:
        """Post a task in which it is this participant, from 1.

        :raises NotAllowed: its limits forbid the task.
        :raises RequestError: it does not take the task, or has one of this id.
        """
        query = {"participant": str(participant)}
        await self._send("POST", f"/tasks/{task}", query, document, patience_s=_BOOKING_S)

    async def task(self, task: UUID, key: str) -> JsonObject:
        """Return a task with its details.

        :raises NotFound: it has no such task.
        """
        query = {"detail": "true", "key": key}
        return await self._document("GET", f"/tasks/{task}", "a task", query)

    async def end_task(self, task: UUID, key: str | None) -> None:
        """End a task and its runs to come; what is under way goes on there.

        :raises NotFound: it has no such task.
        """
        query = {} if key is None else {"key": key}
        await self._send("DELETE", f"/tasks/{task}", query)

    async def runtimes(self, task: UUID, key: str, span: Span, priority: int | None) -> list[Span]:
        """Return the ranges of a span in which it says that a run of the task could take place.

        With a ``priority``, runs of a lower one count as absent.

        :raises NotFound: it has no such task.
        """
        query = {"start": instant_text(span[0]), "end": instant_text(span[1]), "key": key}
        if priority is not None:
            query |= {"priority": str(priority), "api": "4"}
        listed = await self._json("GET", f"/tasks/{task}/runtimes", query)
        return [
            (self._instant(each.get("lower")), self._instant(each.get("upper")))
            for each in self._checked_type(listed, list, "free ranges")
            if isinstance(each, dict)
        ]

    async def book(self, task: UUID, run: UUID, key: str, starts_at: int) -> None:
        """Book a run, at once and for good.

        :raises Conflict: the time is taken.
        :raises NotFound: it has no such task.
        """
        document = {"start-time": instant_text(starts_at)}
        await self._send(
            "PUT", f"/tasks/{task}/runs/{run}", {"key": key}, document, patience_s=_BOOKING_S
        )

    async def run(self, task: UUID, run: UUID, key: str, wait_s: int = 0) -> JsonObject:
        """Return a run; with ``wait_s``, once it has its result, or as it is then.

        :raises NotFound: it has no such run.
        """
        query = {"key": key}
        if wait_s:
            query |= {"wait-local": "true", "wait": str(wait_s)}
        path = f"/tasks/{task}/runs/{run}"
        return self._checked_run(await self._json("GET", path, query, _PROMPT_S + wait_s))

    async def first_run(self, task: UUID, key: str, wait_s: int = 0) -> JsonObject:
        """Return the first run of a task that it leads; with ``wait_s``, once it is merged.

        :raises NotFound: it has none, or no such task.
        """
        query = {"key": key, "wait": str(wait_s)}
        if wait_s:
            query |= {"wait-merged": "true"}
        path = f"/tasks/{task}/runs/first"
        return self._checked_run(await self._json("GET", path, query, _PROMPT_S + 2 * wait_s))

    def _checked_run(self, answered: Any) -> JsonObject:
        """Return a run whose members are of the types that the callers rely on, or absent."""
        run: JsonObject = self._checked_type(answered, dict, "a run")
        kinds = {
            "state": str,
            "errors": str,
            "participant-data": dict,
            "result": dict,
            "result-merged": dict,
        }
        return {
            name: value
            for name, value in run.items()
            if name not in kinds or isinstance(value, kinds[name])
        }

    async def tasks_with(self, reference: JsonObject) -> list[UUID]:
        """Return the tasks that have this in their reference and were not deleted."""
        wanted = {"detail": {"enabled": True}, "reference": reference}
        listed = await self._json("GET", "/tasks", {"json": json.dumps(wanted)})
        return [self._id_in(each) for each in self._checked_type(listed, list, "its tasks")]

    async def tell_data(self, task: UUID, run: UUID, key: str, data: Sequence[JsonObject]) -> None:
        """Give a run what all participants say, by their places; it needs this to begin.

        :raises NotFound: it has no such run.
        """
        document = {"part-data-full": list(data)}
        await self._send(
            "PUT", f"/tasks/{task}/runs/{run}", {"key": key}, document, patience_s=_BOOKING_S
        )

    async def drop(self, task: UUID, run: UUID, key: str) -> None:
        """Take a run back.

        :raises NotFound: it has no such run.
        """
        await self._send("DELETE", f"/tasks/{task}/runs/{run}", {"key": key})

    async def schedule(self, task: UUID, since: int, until: int) -> dict[UUID, JsonObject]:
        """Return the entries of its schedule that are runs of a task, by run."""
        query = {"task": str(task), "start": instant_text(since), "end": instant_text(until)}
        listed = self._checked_type(
            await self._json("GET", "/schedule", query), list, "its schedule"
        )
        return {
            self._run_of_entry(each): self._checked_run(each)
            for each in listed
            if isinstance(each, dict)
        }

    def _run_of_entry(self, entry: JsonObject) -> UUID:
        href = str(entry.get("href", ""))
        try:
            return UUID(href.rstrip("/").rpartition("/")[2])
        except ValueError as error:
            raise PeerAnswered(f"{self.name} lists a run without its id") from error

    def start_of(self, run: JsonObject) -> int:
        """Return the start of a run or of an entry of the schedule (µs)."""
        return self._instant(run.get("start-time"))

    def duration_of(self, task: JsonObject) -> int:
        """Return how long it books for a run of a task that was read with its details (µs)."""
        detail = self._checked_type(task.get("detail"), dict, "the details of a task")
        return self._duration(detail.get("duration"))

    async def post(self, document: JsonObject) -> UUID:
        """Post a task that it leads itself; return the id.

        :raises RequestError: it does not take the task.
        """
        body = await self._send("POST", "/tasks", {}, document, patience_s=_BOOKING_S)
        return self._id_in(self._parsed_body(body))

    def _id_in(self, answered: Any) -> UUID:
        """Return the id at the end of the URL of a task."""
        url = self._checked_type(answered, str, "the URL of a task")
        try:
            return UUID(url.rstrip("/").rpartition("/")[2])
        except ValueError as error:
            raise PeerAnswered(f"{self.name} answered with no URL of a task") from error

    async def _document(
        self,
        method: str,
        path: str,
        what: str,
        query: Mapping[str, str] | None = None,
        patience_s: float = _PROMPT_S,
    ) -> JsonObject:
        answered = await self._json(method, path, query, patience_s)
        return self._checked_type(answered, dict, what)

    async def _json(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        patience_s: float = _PROMPT_S,
    ) -> Any:
        return self._parsed_body(await self._send(method, path, query or {}, patience_s=patience_s))

    def _parsed_body(self, body: bytes) -> Any:
        try:
            # Our database keeps no NUL, and nothing that is meant has one.
            return json.loads(body.replace(b"\\u0000", b"\\ufffd"))
        except (ValueError, RecursionError) as error:
            raise PeerAnswered(f"{self.name} sent an answer that is not JSON") from error

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        document: JsonObject | None = None,
        patience_s: float = _PROMPT_S,
    ) -> bytes:
        limit = aiohttp.ClientTimeout(total=patience_s, sock_connect=_PROMPT_S)
        body = None if document is None else json.dumps(document).encode("ascii")
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            async with self._session.request(
                method,
                f"{self.url}{path}",
                params=query,
                data=body,
                headers={"Accept-Encoding": "identity", **headers},
                timeout=limit,
                allow_redirects=False,
                **anybody(),
            ) as response:
                answer = await self._read(response)
                status = response.status
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            late = isinstance(error, TimeoutError)
            cause = f"no answer within {patience_s:g} s" if late else cause_of(error)
            raise PeerUnreachable(f"{self.name} cannot be reached: {cause}") from error
        if status == HTTPStatus.OK:
            return answer
        raise self._error_of(status, answer)

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > _ANSWER_BYTES_MAX:
                msg = f"{self.name} answered with more than {_ANSWER_BYTES_MAX} bytes"
                raise PeerAnswered(msg)
        return bytes(body)

    def _error_of(self, status: int, body: bytes) -> ParleyError:
        """Return the error for an answer that is no success; its message is the answer's text."""
        text = " ".join(body.decode("utf-8", "replace").split())[:_TEXT_MAX]
        sentence = text.rstrip(".") or f"it answered {status} without a reason"
        match status:
            case HTTPStatus.NOT_FOUND | HTTPStatus.GONE:
                return NotFound(sentence)
            case HTTPStatus.FORBIDDEN:
                return NotAllowed(sentence)
            case HTTPStatus.CONFLICT:
                return Conflict(sentence)
            case _ if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
                return RequestError(sentence)
            case _ if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                return PeerFailed(f"{self.name} cannot do it: {sentence}")
            case _:
                return PeerAnswered(f"{self.name} answered {status}; is it pScheduler?")

    def _checked_type(self, value: Any, kind: type[Kind], what: str) -> Kind:
        if not isinstance(value, kind) or isinstance(value, bool):
            raise PeerAnswered(f"{self.name} does not tell {what} as pScheduler does")
        return value

    def _instant(self, value: Any) -> int:
        try:
            return times.parse_instant(str(value))
        except ValueError as error:
            raise PeerAnswered(f"{self.name} sent an instant that cannot be read") from error

    def _duration(self, value: Any) -> int:
        try:
            return times.parse_duration(str(value))
        except ValueError as error:
            raise PeerAnswered(f"{self.name} sent a duration that cannot be read") from error


def instant_text(instant: int) -> str:
    """Return an instant as pScheduler writes it: whole seconds, with the offset."""
    return times.to_datetime(instant - instant % times.SECOND).isoformat()
