"""A session with one node, for people and their programs: requests, and documents as they are.

A request whose connection was lost is sent once more, which is safe because every POST carries an
idempotency key and everything else is idempotent by itself. There are no further retries.

Its methods are coroutines. While one waits for the node, a thread of its own waits for it; or, in a
program without an event loop, the caller, and then the coroutine never stops before its end
(:func:`run_without_loop`). So commands are written once for both. It loads none of the models of
documents, which take longer to load than a list to read (:mod:`node.client.users` has them).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

from node.client.answers import (
    Members,
    Page,
    document_of,
    non_finite_faults,
    object_of,
    records_in,
)
from node.client.events import ServerEvent, parse_events
from node.client.exchanges import Exchange, NoAnswerError, Request, Server
from node.model.errors import InvalidDocument, NotAllowed, PeerAnswered, PeerUnreachable
from node.model.loopback import is_exposed
from node.runtime.clock import BlockingClock, Clock, steady_ns

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator
    from types import TracebackType
    from uuid import UUID

    from node.trust.tls import TlsOptions

Result = TypeVar("Result")

CARD = "/nodes/self"
_AT_ONCE = 100
"""Maximum number of requests under way; others wait."""
_DISPLACING_S = 600
"""Timeout of a reservation that displaces: of tens of thousands of runs that takes a minute."""
_SILENT_S = 40
"""Seconds after which a stream of events is broken: a node sends something every 15 s."""
_NS = 1_000_000_000


def run_without_loop(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine without an event loop; it may await only a session that blocks."""
    try:
        work.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    work.close()
    raise RuntimeError("it waits for a loop")


class NodeSession:
    """A session with one node; use it as an asynchronous context manager."""

    def __init__(  # noqa: PLR0913 - all but three have defaults
        self,
        server: str,
        token: str | None,
        clock: Clock,
        *,
        wary: bool = False,
        patience_s: float = 30,
        limit_s: float | None = None,
        tls: TlsOptions | None = None,
        plain_http: bool = False,
    ) -> None:
        """Use ``server`` (scheme, host and port); wait ``patience_s`` for an answer.

        ``wary``: send the token only to a server that answers like a node without it. ``limit_s``:
        the time from now in which all answers must be there. ``tls`` says whom to trust over https
        (:mod:`node.client.first_contact`), by default whom the authorities of this host do.
        ``plain_http``: send the token over http to other hosts, too. With a
        :class:`~node.runtime.clock.BlockingClock` the caller waits, without a loop.
        """
        self._tls = tls
        self._plain_http = plain_http
        self.server = server
        self._token = token
        self._wary = wary
        self._clock = clock
        self._patience_s = patience_s
        self._last_ns = None if limit_s is None else steady_ns() + round(limit_s * _NS)
        self._open: Server | None = None
        self._places: asyncio.Semaphore | None = None

    async def __aenter__(self) -> Self:
        """Open the session.

        :raises NotAllowed: the token would be sent so that others could read it on the way.
        :raises PeerError: ``wary``, and the server is not a node.
        """
        if self._token and not self._plain_http and is_exposed(self.server):
            raise NotAllowed(
                f"the token was not sent to {self.server}, because everybody on the way could read "
                f"it; use https{self.server.removeprefix('http')}, or allow it with --plain-http "
                "(PARLEY_PLAIN_HTTP=1), such as inside a tunnel or a lab"
            )
        if not isinstance(self._clock, BlockingClock):
            from asyncio import Semaphore  # slow to load, which what blocks does not need

            self._places = Semaphore(_AT_ONCE)
        tls = await self._tls_options()
        with self._told_as_unreachable():
            self._open = Server(self.server, tls)
        if self._wary and (token := self._token):
            self._token = None
            try:
                await self.check_node()
            except BaseException:
                self._open.close()
                raise
            self._token = token
        return self

    async def _tls_options(self) -> TlsOptions | None:
        """Return whom to trust over https."""
        return self._tls

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the session."""
        if self._open is not None:
            self._open.close()

    async def check_node(self) -> None:
        """Check that the server is a node of any version, by its card, which is open to all.

        :raises PeerError: it is not.
        """
        card = await self._ask("GET", CARD)
        if not isinstance(card, dict) or not str(card.get("identity")).startswith("ed25519:"):
            msg = f"{self.server} does not answer like a node; name a node with --server"
            raise PeerAnswered(msg)

    async def listed(self, path: str, query: Mapping[str, object]) -> Page[Members]:
        """Return a page of a list as the objects of the API."""
        return records_in(await self._ask("GET", path, query=query))

    async def document(self, path: str, query: Mapping[str, object] | None = None) -> Members:
        """Return one object of the API."""
        return object_of(await self._ask("GET", path, query=query))

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
        query = {"types": ",".join(types or ()) or None, "task": task}
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        request = self._request("GET", "/events", query, headers, patience_s=_SILENT_S)
        exchange = Exchange(self._server(), request)
        events = parse_events(exchange.lines("text/event-stream"))
        try:
            while True:
                with self._told_as_unreachable():
                    event = await self._wait(partial(next, events, None), exchange.abort)
                if event is None:
                    return
                yield event
        finally:
            with suppress(ValueError):  # a thread still waits for it, and is about to end it
                events.close()

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
        :raises TimeoutError: the time for all answers is over.
        """
        if faults := non_finite_faults(body):
            raise InvalidDocument(faults)
        # Each item of a list has its own.
        keyed = method == "POST" and not isinstance(body, list)
        headers = {"Idempotency-Key": key or str(uuid4())} if keyed else {}
        displaces = isinstance(body, dict) and body.get("displace") is True
        patience_s = (_DISPLACING_S if displaces else self._patience_s) + wait_s
        parameters = {**(query or {}), "wait": wait_s or None}
        request = self._request(method, path, parameters, headers, body, patience_s=patience_s)
        exchange = Exchange(self._server(), request, self._last_ns)
        with self._told_as_unreachable():
            answer = await self._wait(exchange.answer, exchange.abort)
        return document_of(answer)

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, object],
        headers: dict[str, str],
        body: Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        patience_s: float,
    ) -> Request:
        given = urlencode(
            {
                name: "true" if each is True else each
                for name, each in query.items()
                if each is not None and each is not False
            }
        )
        target = f"{urlsplit(self.server).path}/v1{path}{'?' if given else ''}{given}"
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if body is None:
            return Request(method, target, headers, patience_s=patience_s)
        headers["Content-Type"] = "application/json"
        return Request(method, target, headers, json.dumps(body).encode(), patience_s)

    @contextmanager
    def _told_as_unreachable(self) -> Iterator[None]:
        """Raise the error of a node that does not answer, for people."""
        try:
            yield
        except NoAnswerError as error:
            raise PeerUnreachable(
                f"no node answers at {self.server}: {error.cause}; "
                "start one with 'parley up' or name another with --server"
            ) from error

    def _server(self) -> Server:
        if self._open is None:
            raise RuntimeError("a session with a node is used as an asynchronous context manager")
        return self._open

    async def _wait(
        self, work: Callable[[], Result], abort: Callable[[], None] | None = None
    ) -> Result:
        """Return what ``work`` returns once the server has answered; ``abort`` ends it early."""
        if self._places is None:
            return work()
        from asyncio import CancelledError

        from node.runtime.threads import aside

        async with self._places:
            try:
                return await aside(work, "request to a node")
            except CancelledError:
                if abort is not None:
                    abort()
                raise
