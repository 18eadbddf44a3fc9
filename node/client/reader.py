"""A client that only reads documents, and loads in a few milliseconds.

Lists that people type again and again, and completion in shells, have to answer at once; aiohttp,
asyncio and the models of all documents take three times as long to load as a list to read.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import urlencode, urlsplit

from node.client.answers import (
    Answer,
    Members,
    Page,
    document_of,
    object_of,
    plain_http_refusal,
    records_in,
    unreachable_error,
)
from node.model import times
from node.model.errors import NotAllowed
from node.model.loopback import is_exposed
from node.runtime.clock import Clock

if TYPE_CHECKING:
    from node.trust.tls import TlsOptions

Result = TypeVar("Result")

_CONNECT_S = 5.0
_PATIENCE_S = 30.0
_CHUNK = 1 << 20
_HTTPS = 443


class UntrustedError(Exception):
    """The server has another certificate; :mod:`node.client.first_contact` knows what it means."""


class Reader(Protocol):
    """Reads lists and documents of a node."""

    async def listed(self, path: str, query: Mapping[str, object]) -> Page[Members]:
        """Return a page of a list as the objects of the API."""
        ...

    async def document(self, path: str, query: Mapping[str, object] | None = None) -> Members:
        """Return one object of the API."""
        ...


def run_without_loop(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine without an event loop; it may await only a :class:`QuickReader`."""
    try:
        work.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    work.close()
    raise RuntimeError("it waits for a loop")


class QuickReader:
    """Reads over plain HTTP, or from a node whose key is known, one request at a time.

    Its methods are coroutines that never wait for a loop, so that commands are written once for
    this and for :class:`~node.client.users.UserClient`; :func:`run_without_loop` runs them.
    """

    def __init__(
        self,
        server: str,
        token: str | None,
        clock: Clock,
        *,
        tls: TlsOptions | None = None,
        plain_http: bool = False,
        limit_s: float | None = None,
    ) -> None:
        """Ask ``server`` for at most ``limit_s`` altogether.

        ``tls`` says whom to trust over https.

        :raises NotAllowed: the token would be sent so that others could read it on the way.
        """
        if token and not plain_http and is_exposed(server):
            raise NotAllowed(plain_http_refusal(server))
        self.server = server
        self._tls = tls or {}
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._clock = clock
        self._ends = None if limit_s is None else clock.monotonic() + round(limit_s * times.SECOND)

    async def listed(self, path: str, query: Mapping[str, object]) -> Page[Members]:
        """Return a page of a list as the objects of the API."""
        return records_in(self._get(path, query))

    async def document(self, path: str, query: Mapping[str, object] | None = None) -> Members:
        """Return one object of the API."""
        return object_of(self._get(path, query or {}))

    def _get(self, path: str, query: Mapping[str, object]) -> object:
        """Return the JSON of an answer; ask once more if the connection is lost.

        :raises TimeoutError: the whole time is over.
        :raises UntrustedError: the server does not have the certificate of the key.
        """
        given = {name: str(value) for name, value in query.items() if value is not None}
        target = f"/v1{path}?{urlencode(given)}" if given else f"/v1{path}"
        try:
            try:
                answer = self._request_once(target)
            except (ConnectionResetError, BrokenPipeError, http.client.IncompleteRead):
                answer = self._request_once(target)
        except TimeoutError:
            if self._ends is not None and self._seconds_left() <= 0:
                raise
            raise unreachable_error(self.server, f"no answer within {_PATIENCE_S:g} s") from None
        except ssl.SSLError as error:
            raise UntrustedError(str(error)) from error
        except socket.gaierror as error:
            raise unreachable_error(self.server, "its name cannot be resolved") from error
        except OSError as error:
            cause = os.strerror(error.errno).lower() if error.errno else str(error)
            raise unreachable_error(self.server, cause) from error
        except http.client.HTTPException as error:
            raise unreachable_error(self.server, str(error) or type(error).__name__) from error
        return document_of(answer)

    def _request_once(self, target: str) -> Answer:
        ends = self._clock.monotonic() + round(_PATIENCE_S * times.SECOND)
        parts = urlsplit(self.server)
        connection = http.client.HTTPConnection(
            parts.hostname or "",
            parts.port or (_HTTPS if self._tls else None),
            timeout=min(_CONNECT_S, self._seconds_left(ends)),
        )
        try:
            connection.connect()
            if self._tls:
                name = self._tls["server_hostname"]
                connection.sock = self._tls["ssl"].wrap_socket(
                    connection.sock, server_hostname=name
                )
            connection.request("GET", target, headers=self._headers)
            wire = connection.sock
            wire.settimeout(self._seconds_left(ends))
            response = connection.getresponse()
            raw = bytearray()
            while chunk := response.read1(_CHUNK):
                raw += chunk
                wire.settimeout(self._seconds_left(ends))
            return Answer(
                server=self.server,
                status=response.status,
                reason=response.reason,
                content_type=response.headers.get_content_type(),
                raw=bytes(raw),
            )
        finally:
            connection.close()

    def _seconds_left(self, ends: int | None = None) -> float:
        """Return the seconds that are left, at most until ``ends``.

        :raises TimeoutError: there are none, and ``ends`` is given.
        """
        bounds = [each for each in (ends, self._ends) if each is not None]
        left = (min(bounds) - self._clock.monotonic()) / times.SECOND
        if left <= 0 and ends is not None:
            raise TimeoutError
        return left
