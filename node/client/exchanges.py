"""Ask a server something over HTTP: one request and its whole answer, or a stream of lines.

All that people and programs ask a node goes through here. It uses the standard library, because
lists that people type again and again, and completion in shells, have to answer at once; a client
with an event loop of its own takes three times as long to load as a list to read.

A thread waits for the answer: that of the caller, or one beside its event loop, from which another
one can end the exchange (:meth:`Exchange.abort`).
"""

from __future__ import annotations

import contextlib
import http.client
import math
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from node.client.answers import Answer, document_of, foreign_answer_error
from node.model.errors import AnswerLost, PeerAnswered
from node.model.urls import split_url
from node.runtime.clock import steady_ns

if TYPE_CHECKING:
    from node.trust.tls import TlsOptions

CONNECT_S = 5.0
UNRESOLVED = "its name cannot be resolved"
_CHUNK = 1 << 20
_KEPT_S = 15.0
"""Time for which a connection is kept for the next request; servers keep theirs for longer."""
_NS = 1_000_000_000
_LOST_ERRORS = (ConnectionError, ssl.SSLEOFError, http.client.IncompleteRead)
"""Errors that end a connection; a request may be sent again on another one."""


class NoAnswerError(Exception):
    """A server does not answer; ``cause`` says why, without the address, which a sentence names."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


class UntrustedError(NoAnswerError):
    """TLS failed; ``certificate`` is true if it is because of the certificate of the server."""

    def __init__(self, error: ssl.SSLError) -> None:
        super().__init__(system_cause(error))
        self.certificate = isinstance(error, ssl.SSLCertVerificationError)


@dataclass(frozen=True)
class Request:
    """A request; ``target`` is its path with the query."""

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    patience_s: float = 30.0
    """Time for the whole answer; of a stream, for each of its pieces."""
    answer_bytes_max: float = math.inf


class _SecuredConnection(http.client.HTTPConnection):
    """A connection that begins with TLS."""

    default_port = http.client.HTTPS_PORT

    def __init__(self, host: str, port: int, tls: TlsOptions) -> None:
        """Connect to a port of a host later, if ``tls`` trusts it."""
        super().__init__(host, port)
        self._tls = tls

    def connect(self) -> None:
        """Connect, and check the server."""
        super().connect()
        name = self._tls.get("server_hostname", self.host)
        self.sock = self._tls["ssl"].wrap_socket(self.sock, server_hostname=name)


class Server:
    """A server, and the connections to it that wait for the next request."""

    def __init__(self, url: str, tls: TlsOptions | None = None) -> None:
        """Ask the server at ``url`` (scheme, host, port), if ``tls`` trusts it over https.

        Without ``tls``, the authorities of this host say whom to trust.

        :raises NoAnswerError: it is no URL.
        """
        self.url = url
        parts = split_url(url)
        if parts is None or parts.scheme not in {"http", "https"}:
            raise NoAnswerError("this is no URL of a server")
        self._host = parts.hostname or ""
        self._port = parts.port
        self._tls = tls if parts.scheme == "https" else None
        if parts.scheme == "https" and not tls:
            from node.trust.tls import public  # loads cryptography

            self._tls = public()
        self._kept: list[tuple[int, http.client.HTTPConnection]] = []

    def kept_connection(self) -> http.client.HTTPConnection | None:
        """Return a connection that has answered a moment ago; it is kept no longer."""
        while self._kept:
            since, connection = self._kept.pop()
            if steady_ns() - since < _KEPT_S * _NS:
                return connection
            connection.close()
        return None

    def new_connection(self) -> http.client.HTTPConnection:
        """Return a connection that is not open yet."""
        if self._tls:
            return _SecuredConnection(self._host, self._port or http.client.HTTPS_PORT, self._tls)
        return http.client.HTTPConnection(self._host, self._port or http.client.HTTP_PORT)

    def keep(self, connection: http.client.HTTPConnection) -> None:
        """Keep a connection for the next request."""
        self._kept.append((steady_ns(), connection))

    def close(self) -> None:
        """Close the connections that wait."""
        while self._kept:
            self._kept.pop()[1].close()


class Exchange:
    """One request and its answer.

    A connection that is lost after it was established is replaced once, by a new one.
    """

    def __init__(self, server: Server, request: Request, last_ns: int | None = None) -> None:
        """Ask ``server``; at ``last_ns`` of the steady clock, if given, it is too late for all."""
        self._server = server
        self._request = request
        self._last_ns = last_ns
        self._ends_ns = steady_ns() + round(request.patience_s * _NS)
        self._wire: socket.socket | None = None
        self._aborted = False

    def abort(self) -> None:
        """Let the thread that waits for the answer wait no longer."""
        self._aborted = True
        if self._wire is not None:
            with contextlib.suppress(OSError):
                self._wire.shutdown(socket.SHUT_RDWR)

    def answer(self) -> Answer:
        """Return the answer with its whole body.

        :raises NoAnswerError: there is none.
        :raises AnswerLost: there is none in time, and the server may have carried out the request.
        :raises PeerAnswered: it is longer than the request allows.
        :raises TimeoutError: it is too late for all.
        """
        try:
            try:
                return self._whole_answer(self._server.kept_connection())
            except _LOST_ERRORS:
                if self._aborted:
                    raise
                return self._whole_answer(None)
        except TimeoutError as error:
            raise self._late_error() from error
        except (OSError, http.client.HTTPException) as error:
            raise self._no_answer(error) from error

    def lines(self, media_type: str) -> Iterator[bytes]:
        """Yield the lines of a stream of this type as they come, each within the patience.

        :raises NoAnswerError: the connection is lost.
        :raises ParleyError: the answer is none of this type.
        """
        connection = self._new_connection()
        try:
            response = self._head(connection)
            if response.headers.get_content_type() != media_type:
                answer = self._answer_of(response, response.read())
                document_of(answer)
                raise foreign_answer_error(answer)
            self._wait_for(self._request.patience_s)
            rest = b""
            while chunk := response.read1(_CHUNK):  # readline takes a lost connection for the end
                *lines, rest = (rest + chunk).split(b"\n")
                yield from lines
        except TimeoutError as error:
            cause = f"it sent nothing for {self._request.patience_s:g} s"
            raise NoAnswerError(cause) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._no_answer(error) from error
        finally:
            connection.close()

    def _whole_answer(self, kept: http.client.HTTPConnection | None) -> Answer:
        connection = kept or self._new_connection()
        try:
            response = self._head(connection)
            raw = self._body(response)
        except BaseException:
            connection.close()
            raise
        response.close()
        if not response.will_close:
            self._server.keep(connection)
        return self._answer_of(response, raw)

    def _new_connection(self) -> http.client.HTTPConnection:
        """Return a new connection; its failure proves that the server was not asked."""
        connection = self._server.new_connection()
        connection.timeout = min(CONNECT_S, self._seconds_left())
        try:
            connection.connect()
        except TimeoutError as error:
            raise self._late_error(asked=False) from error
        except (OSError, UnicodeError) as error:
            raise self._no_answer(error) from error
        return connection

    def _head(self, connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
        """Send the request, and return the answer as far as its head."""
        self._wire = connection.sock  # the connection forgets it if it will not be kept
        if self._aborted:
            raise ConnectionAbortedError
        self._wait_for(self._seconds_left())
        asked = self._request
        headers = {name: value.encode() for name, value in asked.headers.items()}
        connection.request(asked.method, asked.target, asked.body, headers)
        return connection.getresponse()

    def _body(self, response: http.client.HTTPResponse) -> bytes:
        raw = bytearray()
        while chunk := response.read1(_CHUNK):
            raw += chunk
            if len(raw) > self._request.answer_bytes_max:
                most = f"{self._request.answer_bytes_max:,} bytes"
                raise PeerAnswered(
                    f"{self._server.url} answered with more than {most}; name a node with --server"
                )
            if not response.isclosed():  # from Python 3.12 on the last chunk may close the wire
                self._wait_for(self._seconds_left())
        if response.length:
            raise http.client.IncompleteRead(bytes(raw), response.length)
        return bytes(raw)

    def _answer_of(self, response: http.client.HTTPResponse, raw: bytes) -> Answer:
        headers = cast("Mapping[str, str]", response.headers)
        kind = response.headers.get_content_type()
        return Answer(self._server.url, response.status, response.reason, kind, raw, headers)

    def _wait_for(self, seconds: float) -> None:
        """Let each wait for the server end after some seconds."""
        if self._wire is not None:
            self._wire.settimeout(seconds)

    def _seconds_left(self) -> float:
        """Return the seconds that are left.

        :raises TimeoutError: there are none.
        """
        ends = min(self._ends_ns, self._last_ns or self._ends_ns)
        if (left := (ends - steady_ns()) / _NS) <= 0:
            raise TimeoutError
        return left

    def _late_error(self, *, asked: bool = True) -> Exception:
        if self._last_ns is not None and steady_ns() >= self._last_ns:
            return TimeoutError()
        cause = f"no answer within {self._request.patience_s:g} s"
        if not asked or self._request.method == "GET":
            return NoAnswerError(cause)
        return AnswerLost(
            f"the node at {self._server.url} gave {cause}; it may have carried out the request: "
            "check before you repeat it"
        )

    def _no_answer(self, error: Exception) -> NoAnswerError:
        if isinstance(error, ssl.SSLError):
            return UntrustedError(error)
        return NoAnswerError(system_cause(error))


def system_cause(error: Exception) -> str:
    """Return why a connection failed, in words and without the address."""
    match error:
        case ssl.SSLCertVerificationError():
            return error.verify_message or "its certificate is not valid"
        case ssl.SSLError():
            return f"TLS failed: {str(error.reason or error).replace('_', ' ').lower()}"
        case socket.gaierror():
            return UNRESOLVED
        case http.client.IncompleteRead() | http.client.RemoteDisconnected():
            return "the connection was lost"
        case OSError(errno=int(number)):
            return os.strerror(number).lower()
        case _:
            return str(error) or type(error).__name__
