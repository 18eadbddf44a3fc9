"""One DNS query in one HTTP request, on a TLS connection that is open already (RFC 8484).

The server chooses between HTTP/2 and HTTP/1.1 during the handshake. Many speak HTTP/2 alone, the
least version that RFC 8484 recommends. The request is a GET, which changes nothing at a server that
is none of DNS.
"""

from __future__ import annotations

import http.client
import ssl
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from http import HTTPStatus
from io import BufferedReader

import h2.config
import h2.connection
import h2.events
import h2.exceptions

from node.plugins.tools.programs import target

PROTOCOLS = ("h2", "http/1.1")
"""The protocols to offer during the handshake (ALPN), the preferred one first."""

_MESSAGE = "application/dns-message"
_ANSWER_BYTES_MAX = 65_535  # of a DNS message
_CHUNK_BYTES = 16_384


@dataclass(frozen=True)
class Resource:
    """The host to ask, with its port as in a URL, and the path; ``agent`` says who asks."""

    host: str
    path: str
    agent: str

    def path_of(self, message: bytes) -> str:
        """Return the path of a URL that has this message of DNS."""
        return f"{self.path}?dns={urlsafe_b64encode(message).rstrip(b'=').decode()}"


@dataclass
class _Answer:
    """An answer, as far as it has come."""

    status: int = 0
    content_type: str = ""
    body: bytes = b""

    def add(self, octets: bytes) -> None:
        """Add a piece of the body.

        :raises target.TargetUnreachable: no message of DNS is that long.
        """
        self.body += octets
        if len(self.body) > _ANSWER_BYTES_MAX:
            raise target.TargetUnreachable("it answered with more than a message of DNS may have")


def exchange(
    endpoint: ssl.SSLSocket, resource: Resource, message: bytes, deadline: target.Deadline
) -> bytes:
    """Send a DNS message, and return the one that is answered.

    :raises target.TargetUnreachable: there is no such answer; the message is the reason.
    """
    is_second = endpoint.selected_alpn_protocol() == "h2"
    over = _over_http_2 if is_second else _over_http_1
    try:
        answer = over(endpoint, resource, message, deadline)
    except (h2.exceptions.H2Error, http.client.HTTPException) as fault:
        name = "HTTP/2" if is_second else "HTTP"
        raise target.TargetUnreachable(
            f"it does not speak {name}: {type(fault).__name__}"
        ) from None
    if answer.status != HTTPStatus.OK:
        raise target.TargetUnreachable(f"it answered with HTTP status {answer.status}")
    if answer.content_type.partition(";")[0].strip().lower() != _MESSAGE:
        kind = answer.content_type[:100] or "nothing that is named"
        raise target.TargetUnreachable(f"it answered with {kind} where {_MESSAGE} was expected")
    return answer.body


def _over_http_1(
    endpoint: ssl.SSLSocket, resource: Resource, message: bytes, deadline: target.Deadline
) -> _Answer:
    lines = [
        f"GET {resource.path_of(message)} HTTP/1.1",
        f"Host: {resource.host}",
        f"User-Agent: {resource.agent}",
        f"Accept: {_MESSAGE}",
        "Connection: close",
    ]
    head = "".join(f"{line}\r\n" for line in [*lines, ""]).encode("ascii")
    _send(endpoint, head, deadline)
    wire = target.Wire(endpoint, deadline)
    with http.client.HTTPResponse(wire, method="GET") as response:  # type: ignore[arg-type]
        response.begin()
        answer = _Answer(response.status, response.getheader("Content-Type") or "")
        while octets := response.read1(_CHUNK_BYTES):
            answer.add(octets)
    return answer


def _over_http_2(
    endpoint: ssl.SSLSocket, resource: Resource, message: bytes, deadline: target.Deadline
) -> _Answer:
    settings = h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
    connection = h2.connection.H2Connection(config=settings)
    connection.initiate_connection()
    stream = connection.get_next_available_stream_id()
    connection.send_headers(
        stream,
        [
            (":method", "GET"),
            (":authority", resource.host),
            (":scheme", "https"),
            (":path", resource.path_of(message)),
            ("user-agent", resource.agent),
            ("accept", _MESSAGE),
        ],
        end_stream=True,
    )
    _send(endpoint, connection.data_to_send(), deadline)
    reader = BufferedReader(target.Wire(endpoint, deadline), _CHUNK_BYTES)
    answer = _Answer()
    while octets := reader.read1(_CHUNK_BYTES):
        for event in connection.receive_data(octets):
            if _take(connection, event, answer):
                return answer
        _send(endpoint, connection.data_to_send(), deadline)
    raise target.TargetUnreachable("it closed the connection without an answer")


def _take(connection: h2.connection.H2Connection, event: h2.events.Event, answer: _Answer) -> bool:
    """Add what an event tells to the answer; return whether it is complete.

    :raises target.TargetUnreachable: there will be no answer.
    """
    match event:
        case h2.events.ResponseReceived():
            headers = {str(name): str(value) for name, value in event.headers}
            answer.status = int(headers[":status"])
            answer.content_type = headers.get("content-type", "")
        case h2.events.DataReceived():
            answer.add(event.data)
            connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        case h2.events.StreamReset() | h2.events.ConnectionTerminated():
            raise target.TargetUnreachable(
                f"it refused the request: HTTP/2 error {int(event.error_code or 0)}"
            )
        case h2.events.StreamEnded():
            return True
        case _:
            pass
    return False


def _send(endpoint: ssl.SSLSocket, octets: bytes, deadline: target.Deadline) -> None:
    """Send octets before the deadline.

    :raises target.TargetUnreachable: it is over.
    """
    waited_for = "the request could not be sent"
    endpoint.settimeout(deadline.left(waited_for))
    try:
        endpoint.sendall(octets)
    except TimeoutError:
        raise deadline.over(waited_for) from None
